/* megatrain train with things that are wrong: each is refused with a message that names it and says what to do, and what was
 * there before is still there. */
#include "ckpt/manifest.h"
#include "process.h"
#include "program.h"
#include "workspace.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

static program p; /* large; one at a time */

static void set_up(const char *root)
{
    program_init(&p, root);
    const char *const args[] = { "train",           "--model-name",
                                 "model",           "--from-scratch",
                                 "--dataset-path",  "rows.json",
                                 "--output-dir",    "out",
                                 "--num-steps",     "6",
                                 "--save-steps",    "2",
                                 "--keep-last",     "3",
                                 "--batch-size",    "8",
                                 "--device",        "cpu",
                                 "--learning-rate", "1e-3",
                                 "--set",           "logging.enable_timing=false" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
}

static void run_ok(const char *root, const char *extra)
{
    set_up(root);
    if (extra) program_arg(&p, extra);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

/* It fails and says all of these (NULL-ended). */
static void refused(const char *const *words)
{
    program_run(&p);
    if (p.status <= 0) fail_msg("it was not refused (%d): %s", p.status, p.text);
    assert_printed(&p, "error:");
    for (; *words; words++) assert_printed(&p, *words);
}
#define REFUSED(...) refused((const char *const[]){ __VA_ARGS__, NULL })

/* Are these words in what was printed, however lines were broken? */
static bool says(const char *words)
{
    for (const char *at = p.text; *at; at++) {
        const char *w = words, *t = at;
        while (*w && *t && (*w == *t || (*w == ' ' && *t == '\n'))) {
            t++;
            if (*w++ == ' ') t += strspn(t, " \n");
        }
        if (!*w) return true;
    }
    return false;
}

static void cut_short(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
}

static void flip_a_bit(const char *path)
{
    int fd = open(path, O_RDWR);
    unsigned char c;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, 2000), 1);
    c ^= 4;
    assert_int_equal(pwrite(fd, &c, 1, 2000), 1);
    close(fd);
}

/* -- the output directory -------------------------------------------------------------------------- */

static void a_directory_that_holds_a_run_is_not_overwritten(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_up(root);
    REFUSED("out already holds a run", "--resume", "--overwrite");
    assert_true(mt_file_exists(workspace_path("%s/out/checkpoint-6/config.json", root).s));
    workspace_write(root, "out/mine.txt", "keep me");
    run_ok(root, "--overwrite");
    assert_true(mt_file_exists(workspace_path("%s/out/mine.txt", root).s)); /* it was not ours to remove */
}

static void a_run_is_removed_only_once_the_next_one_can_start(void **state)
{
    const char *root = *state;
    test_path left = workspace_path("%s/out/checkpoint-6/config.json", root);
    static const char *const wrong[][2] = { { "--dataset-path", "nowhere.json" },
                                            { "--host-memory", "1M" },
                                            { "--model-name", "nowhere" } };
    run_ok(root, NULL);
    for (size_t i = 0; i < MT_COUNT(wrong); i++) {
        set_up(root);
        program_arg(&p, "--overwrite");
        program_arg(&p, wrong[i][0]);
        program_arg(&p, wrong[i][1]);
        REFUSED("");
        if (!mt_file_exists(left.s)) fail_msg("%s %s removed the run that was there", wrong[i][0], wrong[i][1]);
    }
    program_init(&p, root); /* what it has made itself, trained on */
    for (size_t i = 0; i < 10; i++)
        program_arg(&p, (const char *const[]){ "train", "--model-name", "out/final", "--dataset-path", "rows.json",
                                               "--output-dir", "out", "--overwrite", "--device", "cpu" }[i]);
    REFUSED("is in out", "--output-dir");
    assert_true(mt_file_exists(left.s));
}

/* Names that anyone may have given: no run was here, so nothing there is a run's. */
static void what_no_run_left_stays(void **state)
{
    const char *root = *state;
    test_path config = workspace_path("%s/out/config.yaml", root), notes = workspace_path("%s/out/checkpoint-notes.txt", root);
    assert_int_equal(mkdir(workspace_path("%s/out", root).s, 0777), 0);
    workspace_write(root, "out/config.yaml", "mine");
    workspace_write(root, "out/checkpoint-notes.txt", "mine");
    workspace_write(root, "mine", "mine");
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        set_up(root);
        if (overwrite) program_arg(&p, "--overwrite");
        REFUSED("no run has written out/config.yaml", "--output-dir");
        assert_true(workspace_same_file(config.s, workspace_path("%s/mine", root).s));
    }
    assert_int_equal(unlink(config.s), 0);
    run_ok(root, NULL);
    run_ok(root, "--overwrite");
    assert_true(mt_file_exists(notes.s));
}

/* It is found before --overwrite removes the run that is there. */
static void metrics_that_cannot_be_written_are_refused_first(void **state)
{
    const char *root = *state;
    test_path folder = workspace_path("--metrics-file=%s", root),
              missing = workspace_path("--metrics-file=%s/no/all.jsonl", root);
    const char *const wrong[][2] = { { missing.s, "/no; create it" },
                                     { "--metrics-file=plan.json/all.jsonl", "the run writes another file" },
                                     { "--metrics-file=notes/all.jsonl", "there is no folder out/notes" },
                                     { "--metrics-file=", "out/ is not a regular file" },
                                     { folder.s, "is not a regular file" },
                                     { "--metrics-file=/dev/null", "/dev/null is not a regular file" } };
    run_ok(root, NULL);
    workspace_write(root, "out/notes", "a file");
    for (size_t i = 0; i < MT_COUNT(wrong); i++) {
        set_up(root);
        program_arg(&p, "--overwrite");
        program_arg(&p, wrong[i][0]);
        REFUSED(wrong[i][1], "logging.metrics_file");
        assert_true(mt_file_exists(workspace_path("%s/out/checkpoint-6/config.json", root).s));
    }
    set_up(root);
    program_arg(&p, "--overwrite");
    program_arg(&p, "--metrics-file=logs/all.jsonl"); /* in a folder of the output directory, which is made */
    assert_int_equal(program_run(&p), 0);
    assert_true(mt_file_exists(workspace_path("%s/out/logs/all.jsonl", root).s));
}

/* Rows of tokens are the whole data of a run. */
static void rows_of_tokens_are_not_mixed_with_datasets(void **state)
{
    const char *root = *state;
    set_up(root);
    program_arg(&p, "--eval-dataset=other");
    REFUSED("eval.dataset: rows.json holds all rows of tokens in one object", "eval.val_size");
    workspace_write(root, "dataset_info.json", "{\"other\": {\"file_name\": \"gone.jsonl\"}}");
    workspace_write(root, "c.yaml", "dataset: {name: other, path: rows.json, dataset_dir: .}\n");
    program_init(&p, root);
    const char *const args[] = { "train", "c.yaml", "--model-name", "model", "--from-scratch", "--device", "cpu" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    REFUSED("gone.jsonl"); /* which has priority over the path */
}

static void with_output(const char *root, const char *dir)
{
    static test_path flag; /* the program keeps the pointer */
    flag = workspace_path("--output-dir=%s", dir);
    set_up(root);
    program_arg(&p, flag.s);
}

/* Its files would be lost among others'. */
static void a_directory_of_other_things_is_refused(void **state)
{
    const char *root = *state;
    static const char *const places[][2] = { { ".", "./run" }, { "/", "/run" }, { "model/..", "model/../run" } };
    for (size_t i = 0; i < MT_COUNT(places); i++)
        for (int dry = 0; dry < 2; dry++) {
            with_output(root, places[i][0]);
            if (dry) program_arg(&p, "--dry-run");
            REFUSED("which is not a run's", places[i][1]);
        }
    assert_int_equal(mkdir(workspace_path("%s/home", root).s, 0777), 0);
    workspace_write(root, "home/.profile", "");
    char *home = getenv("HOME") ? mt_strdup(getenv("HOME")) : NULL;
    assert_int_equal(setenv("HOME", workspace_path("%s/home", root).s, 1), 0);
    with_output(root, "home");
    REFUSED("home holds .profile, which is not a run's", "home/run");
    assert_int_equal(home ? setenv("HOME", home, 1) : unsetenv("HOME"), 0);
    mt_free(home);
    assert_int_equal(tempdir_count(root, NULL), 3);
}

/* A log, a configuration, and what the system puts there, before the first start; anything, once a run is there. */
static void loose_files_and_a_new_file_system_are_accepted(void **state)
{
    const char *root = *state;
    assert_int_equal(mkdir(workspace_path("%s/out", root).s, 0777), 0);
    assert_int_equal(mkdir(workspace_path("%s/out/lost+found", root).s, 0777), 0);
    assert_int_equal(mkdir(workspace_path("%s/out/.snapshot", root).s, 0777), 0);
    workspace_write(root, "out/run.yaml", "");
    workspace_write(root, "out/slurm.out", "");
    run_ok(root, NULL);
    assert_int_equal(mkdir(workspace_path("%s/out/notes", root).s, 0777), 0);
    run_ok(root, "--resume");
    run_ok(root, "--overwrite");
    assert_true(mt_dir_exists(workspace_path("%s/out/notes", root).s));
}

static void metrics_of_another_run_are_not_emptied(void **state)
{
    const char *root = *state;
    test_path file = workspace_path("%s/all.jsonl", root), same = workspace_path("%s/same.jsonl", root),
              set = workspace_path("logging.metrics_file=%s/all.jsonl", root);
    workspace_write(root, "all.jsonl", "{}\n");
    workspace_write(root, "same.jsonl", "{}\n");
    for (int dry = 0; dry < 2; dry++) {
        set_up(root);
        program_arg(&p, "--set");
        program_arg(&p, set.s);
        if (dry) {
            program_arg(&p, "--dry-run");
            assert_int_equal(program_run(&p), 0);
        } else
            REFUSED("already has content", "--overwrite");
        assert_true(workspace_same_file(file.s, same.s));
    }
}

static void metrics_under_the_name_of_another_file_are_refused(void **state)
{
    static const char *const names[] = { "log.txt", "./plan.json", ".files", "final", "checkpoint-4", "tensorboard/all.jsonl" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        test_path flag = workspace_path("--metrics-file=%s", names[i]);
        set_up(*state);
        program_arg(&p, flag.s);
        REFUSED(names[i], "the run writes another file of that name");
    }
}

static void a_dry_run_removes_nothing_of_others(void **state)
{
    const char *root = *state;
    assert_int_equal(mkdir(workspace_path("%s/out.dry-run", root).s, 0777), 0);
    workspace_write(root, "out.dry-run/mine.txt", "keep me");
    set_up(root);
    program_arg(&p, "--dry-run");
    REFUSED("out.dry-run holds mine.txt");
    assert_true(mt_file_exists(workspace_path("%s/out.dry-run/mine.txt", root).s));
    assert_false(mt_file_exists(workspace_path("%s/out.dry-run/.lock", root).s)); /* and adds nothing */
    /* a name that runs use, too, in a directory where no run was */
    assert_int_equal(
        rename(workspace_path("%s/out.dry-run/mine.txt", root).s, workspace_path("%s/out.dry-run/config.yaml.tmp", root).s), 0);
    set_up(root);
    program_arg(&p, "--dry-run");
    REFUSED("out.dry-run holds config.yaml.tmp");
    assert_true(mt_file_exists(workspace_path("%s/out.dry-run/config.yaml.tmp", root).s));
}

/* It would clear the run that the link leads to. */
static void a_dry_run_does_not_follow_a_link(void **state)
{
    const char *root = *state;
    test_path link = workspace_path("%s/out.dry-run", root);
    struct stat st;
    run_ok(root, NULL);
    assert_int_equal(rename(workspace_path("%s/out", root).s, workspace_path("%s/kept", root).s), 0);
    static const char *const targets[] = { "kept", "nowhere" };
    for (size_t i = 0; i < MT_COUNT(targets); i++) {
        assert_int_equal(symlink(targets[i], link.s), 0);
        set_up(root);
        program_arg(&p, "--dry-run");
        REFUSED("out.dry-run is a link", "remove the link");
        assert_int_equal(lstat(link.s, &st), 0);
        assert_int_equal(unlink(link.s), 0);
    }
    assert_true(mt_file_exists(workspace_path("%s/kept/final/config.json", root).s));
    assert_false(mt_dir_exists(workspace_path("%s/nowhere", root).s));
}

/* The dry run of another one would remove it. */
static void a_run_is_not_called_a_dry_run(void **state)
{
    const char *root = *state;
    static const char *const names[] = { "--output-dir=out.dry-run", "--output-dir=out.dry-run//" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        set_up(root);
        program_arg(&p, names[i]);
        REFUSED("names that end in .dry-run are those of dry runs");
        assert_false(mt_dir_exists(workspace_path("%s/out.dry-run", root).s));
    }
}

static void a_run_leaves_its_page_its_log_and_its_events(void **state)
{
    const char *root = *state;
    run_ok(root, "--tensorboard");
    assert_printed(&p, "report.html");
    assert_true(mt_file_exists(workspace_path("%s/out/report.html", root).s));
    assert_true(mt_file_exists(workspace_path("%s/out/log.txt", root).s));
    assert_true(mt_dir_exists(workspace_path("%s/out/tensorboard", root).s));
    program_init(&p, root);
    for (size_t i = 0; i < 5; i++) program_arg(&p, (const char *const[]){ "report", "out", "out", "--out", "both.html" }[i]);
    assert_int_equal(program_run(&p), 0);
    assert_true(mt_file_exists(workspace_path("%s/both.html", root).s));
    run_ok(root, "--overwrite"); /* and takes them along when it starts anew */
    assert_false(mt_dir_exists(workspace_path("%s/out/tensorboard", root).s));
}

static void a_directory_in_use_is_refused(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    int fd = open(workspace_path("%s/out/.lock", root).s, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("out is in use by another run", "--output-dir");
    close(fd);
    run_ok(root, "--resume"); /* a lock without a holder does not count */
}

static void a_dry_run_leaves_nothing(void **state)
{
    const char *root = *state;
    run_ok(root, "--dry-run");
    assert_printed(&p, "training.batch_size");
    assert_printed(&p, "--batch-size");
    assert_printed(&p, "first sample");
    assert_printed(&p, "written and verified");
    assert_int_equal(tempdir_count(root, NULL), 2); /* model and rows.json */
    set_up(root);
    program_arg(&p, "--dry-run");
    program_arg(&p, "--output-dir=new/"); /* as a shell completes it */
    assert_int_equal(program_run(&p), 0);
    assert_int_equal(tempdir_count(root, NULL), 2);
}

/* A user reads it before every run: model, data, device, plan, run, output; notes come on top. */
static void the_banner_fits_ten_lines(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    const char *line = strstr(p.text, "megatrain ");
    int lines = 1;
    assert_non_null(line);
    while ((line = strchr(line, '\n')) && strncmp(++line, "  ", 2) == 0) lines += strncmp(line, "  note ", 7) != 0;
    assert_in_range(lines, 7, 8); /* --resume and a dashboard add a line each */
    assert_printed(&p, " of memory\n");
    assert_null(strstr(p.text, "FLOPs are"));
    set_up(root);
    program_arg(&p, "--overwrite");
    program_arg(&p, "--verbose");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "FLOPs are");
}

/* -- resuming -------------------------------------------------------------------------------------- */

static void a_truncated_newest_checkpoint_falls_back(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    mt_err err = { 0 };
    test_path good = workspace_path("%s/good", root), out = workspace_path("%s/out", root);
    assert_int_equal(rename(workspace_path("%s/out/checkpoint-6", root).s, good.s), 0);
    run_ok(root, "--resume"); /* makes it again, from checkpoint-4 */
    cut_short(workspace_path("%s/out/checkpoint-6/resume/unit-003.safetensors", root).s);
    run_ok(root, "--resume");
    assert_printed(&p, "unit-003.safetensors");
    assert_printed(&p, "cut short");
    assert_printed(&p, "checkpoint-6.damaged");
    assert_printed(&p, "resumes      out/checkpoint-4");
    char *difference = workspace_difference(good.s, workspace_path("%s/checkpoint-6", out.s).s);
    if (difference) fail_msg("%s", difference);
    assert_ok(mt_dir_remove(good.s, &err));
}

static void a_wrong_checksum_falls_back(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    flip_a_bit(workspace_path("%s/out/checkpoint-6/resume/unit-002.safetensors", root).s);
    run_ok(root, "--resume");
    assert_printed(&p, "the checksum is wrong");
    assert_printed(&p, "resumes      out/checkpoint-4");
}

static void every_checkpoint_damaged_starts_from_the_beginning_and_says_so(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    for (int step = 2; step <= 6; step += 2) cut_short(workspace_path("%s/out/checkpoint-%d/resume/state.json", root, step).s);
    run_ok(root, "--resume");
    assert_printed(&p, "has no complete checkpoint");
}

/* Write `words` between `key` and the next `end` in a checkpoint's state. */
static void set_state(const char *root, int step, const char *key, const char *words, char end)
{
    mt_err err = { 0 };
    mt_manifest list;
    char *text;
    test_path dir = workspace_path("%s/out/checkpoint-%d", root, step);
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/resume/state.json", dir.s).s, 1 << 20, &err));
    char *from = strstr(text, key);
    assert_non_null(from);
    from += strlen(key);
    char *changed = mt_asprintf("%.*s%s%s", (int)(from - text), text, words, strchr(from, end));
    workspace_write(dir.s, "resume/state.json", changed);
    mt_free(changed);
    mt_free(text);
    assert_int_equal(unlink(workspace_path("%s/" MT_MANIFEST_NAME, dir.s).s), 0);
    mt_manifest_init(&list, dir.s);
    assert_ok(mt_manifest_write(&list, &err));
    mt_manifest_deinit(&list);
}

static void changed_data_is_refused(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    workspace_write_rows(root, "rows.json", 40, 8);
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("checkpoint-6", "the data has changed", "start over in another --output-dir");
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--seed=7");
    REFUSED("training.seed was 42 and is 7");
}

/* Data is tokenized anew by another version; whether the run may continue depends on the samples. */
static void other_code_for_data_is_noticed(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_state(root, 6, "\"data_code\": \"", "0123456789abcdef", '"');
    set_state(root, 6, "\"version\": \"", "0.0.9", '"');
    run_ok(root, "--resume");
    assert_true(
        says("another build of megatrain 0.0.9 wrote the checkpoint, with other code for data; its samples are the same"));
    set_state(root, 6, "\"data\": \"", "0123456789abcdef", '"');
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("the samples are not those of the checkpoint", "megatrain 0.0.9", "--model-name");
    set_state(root, 6, "\"data_code\": \"", "", '"'); /* an older checkpoint */
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("the data has changed");
}

/* The user may have meant to keep more of them. */
static void a_refused_resume_removes_no_checkpoint(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--keep-last=1");
    program_arg(&p, "--seed=7");
    REFUSED("training.seed was 42 and is 7");
    for (int step = 2; step <= 6; step += 2) assert_true(mt_dir_exists(workspace_path("%s/out/checkpoint-%d", root, step).s));
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--keep-last=1");
    assert_int_equal(program_run(&p), 0);
    for (int step = 2; step <= 6; step += 2)
        assert_int_equal(mt_dir_exists(workspace_path("%s/out/checkpoint-%d", root, step).s), step == 6);
}

static void a_checkpoint_of_another_model_is_refused(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    workspace_write_config(root, "model/config.json", WORKSPACE_LAYERS - 1);
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("another model");
    assert_int_equal(mkdir(workspace_path("%s/other", root).s, 0777), 0);
    workspace_write_config(root, "other/config.json", WORKSPACE_LAYERS - 1);
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--model-name=other");
    REFUSED("model.name was model and is", "another model");
}

static void what_may_change_changes_and_is_said(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--num-steps=8");
    program_arg(&p, "--learning-rate=5e-4");
    program_arg(&p, "--weight-decay=0");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "training.num_steps was 6 and is 8 now");
    assert_printed(&p, "training.learning_rate was");
    assert_printed(&p, "not be bit-identical");
    assert_true(mt_dir_exists(workspace_path("%s/out/checkpoint-8", root).s));
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--num-steps=4");
    assert_int_equal(program_run(&p), 0);
    assert_printed(&p, "checkpoint-8 is after step 8, and the run ends with step 4: nothing is trained");
    assert_printed(&p, "training 8/8 (100%)");
}

/* Writes other words between the brackets of a checkpoint's "attention", and its checksums anew. */
static void set_attention(const char *root, int step, const char *words)
{
    set_state(root, step, "\"attention\": [", words, ']');
}

static void assert_attention(const char *root, int step, const char *words)
{
    mt_err err = { 0 };
    char *text, *wanted = mt_asprintf("\"attention\": [%s]", words);
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/out/checkpoint-%d/resume/state.json", root, step).s, 1 << 20, &err));
    if (!strstr(text, wanted)) fail_msg("no %s in %s", wanted, text);
    mt_free(wanted);
    mt_free(text);
}

/* Which decides bits, so that it is the run's, whatever a new one would take here. */
static void a_resumed_run_keeps_its_attention(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    assert_attention(root, 6, "1, 0, 0, 0, 0");
    set_attention(root, 6, "1, 0, 4096, 1, 1");
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--num-steps=8");
    assert_int_equal(program_run(&p), 0);
    assert_attention(root, 8, "1, 0, 4096, 1, 1");
    set_attention(root, 8, "1, 0, 4096"); /* not all of it */
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--num-steps=10");
    REFUSED("number 4 of \"attention\"");
}

static void an_old_checkpoint_by_name_is_refused_while_newer_ones_are_there(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_up(root);
    program_arg(&p, "--resume=out/checkpoint-4");
    REFUSED("checkpoint-6", "not the newest");
    set_up(root);
    program_arg(&p, "--resume=out/checkpoint-5");
    REFUSED("no such checkpoint");
    set_up(root);
    program_arg(&p, "--resume=out");
    program_arg(&p, "--output-dir=branch");
    REFUSED("--resume out: not a checkpoint; name a checkpoint-N");
    set_up(root);
    program_arg(&p, "--resume=out/final");
    REFUSED("--resume out/final: not a checkpoint");
    run_ok(root, "--resume=out/checkpoint-6/");
    set_up(root); /* but another directory may begin where this one was */
    program_arg(&p, "--resume=out/checkpoint-4");
    program_arg(&p, "--output-dir=branch");
    assert_int_equal(program_run(&p), 0);
    assert_true(mt_dir_exists(workspace_path("%s/branch/checkpoint-6", root).s));
}

static void only_models_are_saved_when_asked_and_cannot_be_resumed(void **state)
{
    const char *root = *state;
    run_ok(root, "--save-only-model");
    assert_false(mt_dir_exists(workspace_path("%s/out/checkpoint-4/resume", root).s));
    assert_true(mt_file_exists(workspace_path("%s/out/checkpoint-4/model.safetensors", root).s));
    assert_false(mt_dir_exists(workspace_path("%s/out/checkpoint-6", root).s)); /* it would be final once more */
    assert_true(mt_file_exists(workspace_path("%s/out/final/model.safetensors", root).s));
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("nothing to resume from", "--overwrite");
}

/* A run that saved all of its state first: the message does not advise to throw that away. */
static void a_model_alone_points_to_the_checkpoint_before_it(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    set_up(root);
    program_arg(&p, "--resume");
    program_arg(&p, "--num-steps=9");
    program_arg(&p, "--save-only-model");
    assert_int_equal(program_run(&p), 0);
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("out/checkpoint-8 holds a model and nothing to resume from", "move it away to resume from checkpoint-6");
    assert_int_equal(rename(workspace_path("%s/out/checkpoint-8", root).s, workspace_path("%s/elsewhere", root).s), 0);
    run_ok(root, "--resume");
    assert_printed(&p, "resumes      out/checkpoint-6");
}

/* Nothing but the finished model is left: starting over would not be a resume. */
static void a_finished_model_alone_is_not_resumed(void **state)
{
    const char *root = *state;
    set_up(root);
    program_arg(&p, "--save-only-model");
    program_arg(&p, "--save-steps=0");
    assert_int_equal(program_run(&p), 0);
    assert_false(says("for the copy of a checkpoint"));
    set_up(root);
    program_arg(&p, "--resume");
    REFUSED("finished model", "--overwrite");
}

/* -- files that are not there ---------------------------------------------------------------------- */

static void missing_things_are_named(void **state)
{
    const char *root = *state;
    set_up(root);
    program_arg(&p, "--model-name=nowhere");
    REFUSED("nowhere");
    set_up(root);
    program_arg(&p, "--dataset-path=nothing.json");
    REFUSED("nothing.json");
    set_up(root);
    program_arg(&p, "--config=missing.yaml");
    REFUSED("missing.yaml");
    set_up(root);
    program_arg(&p, "--from-scratch=false");
    REFUSED("from_scratch");
    set_up(root);
    program_arg(&p, "--bach-size=3");
    REFUSED("--bach-size", "--batch-size");
    set_up(root);
    program_arg(&p, "--val-size=40");
    REFUSED("nothing is left to train on");
}

/* Saving changes them, after the training. */
static void files_that_no_model_can_be_saved_with_are_refused_first(void **state)
{
    static const char *const texts[] = { "{\"eos_token_id\": [2", "[1, 2]" };
    for (size_t i = 0; i < MT_COUNT(texts); i++) {
        workspace_write(*state, "model/generation_config.json", texts[i]);
        set_up(*state);
        REFUSED("generation_config.json", "remove it");
        assert_false(says("training "));
        assert_int_equal(unlink(workspace_path("%s/model/generation_config.json", (char *)*state).s), 0);
    }
}

static void a_yaml_file_with_mistakes_is_refused_by_line(void **state)
{
    const char *root = *state;
    set_up(root);
    workspace_write(root, "bad.yaml", "training:\n  bach_size: 3\n");
    program_arg(&p, "--config=bad.yaml");
    REFUSED("bad.yaml:2", "batch_size");
    set_up(root);
    workspace_write(root, "bad.yaml", "training:\n  learning_rate: fast\n");
    program_arg(&p, "--config=bad.yaml");
    REFUSED("bad.yaml:2", "learning_rate");
    set_up(root);
    workspace_write(root, "bad.yaml", "training:\n  batch_size: 8\noptimizer:\n  beta1: 1.5\n");
    program_arg(&p, "--config=bad.yaml");
    REFUSED("bad.yaml:4", "beta1");
}

/* -- a full disk ----------------------------------------------------------------------------------- */

/* A separate disk, with room for one checkpoint and a bit; false: this machine does not let us. */
static bool mount_small(const char *root, const char *size)
{
    test_path at = workspace_path("%s/small", root);
    assert_int_equal(mkdir(at.s, 0777), 0);
    return mount("none", at.s, "tmpfs", 0, size) == 0;
}

static void no_room_is_known_before_the_first_step(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=300k")) mt_skip("no file system may be mounted here");
    set_up(root);
    program_arg(&p, "--output-dir=small/out");
    program_run(&p);
    umount(workspace_path("%s/small", root).s);
    assert_true(p.status > 0);
    assert_printed(&p, "not enough space");
    assert_printed(&p, "--output-dir");
}

/* The run that was there is still there when the next one has no room. */
static void no_room_is_known_before_a_run_is_removed(void **state)
{
    const char *root = *state;
    static const char *const more[] = { "--output-dir=small/out", "--overwrite", "--num-steps=90", "--save-steps=1",
                                        "--keep-last=90" };
    if (!mount_small(root, "size=8m")) mt_skip("no file system may be mounted here");
    run_ok(root, "--output-dir=small/out");
    set_up(root);
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
    program_run(&p);
    bool there = mt_file_exists(workspace_path("%s/small/out/checkpoint-6/config.json", root).s);
    umount(workspace_path("%s/small", root).s);
    assert_true(p.status > 0 && there);
    assert_printed(&p, "not enough space");
}

/* Room for one checkpoint, not for all that the run will leave: refused before the first step, naming what would help. */
static void no_room_for_all_checkpoints_is_known_before_the_first_step(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=1500k")) mt_skip("no file system may be mounted here");
    set_up(root);
    program_arg(&p, "--output-dir=small/out");
    program_run(&p);
    umount(workspace_path("%s/small", root).s);
    assert_true(p.status > 0);
    assert_printed(&p, "checkpoints of");
    assert_printed(&p, "save.keep_last");
}

static int run_in(const char *root, const char *const *more)
{
    set_up(root);
    program_arg(&p, "--output-dir=small/out");
    for (; *more; more++) program_arg(&p, *more);
    return program_run(&p);
}
#define RUN_IN(...) run_in(root, (const char *const[]){ __VA_ARGS__, NULL })

/* Only what will be written is asked for: a model without the state takes a seventh of a checkpoint, and --force asks for
 * nothing. */
static void room_is_asked_for_what_will_be_written(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=300k")) mt_skip("no file system may be mounted here");
    int whole = RUN_IN("--save-steps=0"), model = RUN_IN("--save-steps=0", "--save-only-model"),
        more = RUN_IN("--save-steps=1", "--keep-last=all", "--save-only-model", "--overwrite");
    bool said = says("less with a larger save.save_steps");
    int forced = RUN_IN("--save-steps=0", "--force", "--overwrite");
    umount(workspace_path("%s/small", root).s);
    assert_true(whole > 0 && model == 0 && more > 0 && said && forced > 0);
    assert_true(says("started anyway") && says("writing small/out/checkpoint-6"));
}

/* Two of three checkpoints are there: the third and the model are to come. */
static void a_resumed_run_asks_for_room_for_the_rest(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=3200k")) mt_skip("no file system may be mounted here");
    int first = RUN_IN("--num-steps=4"), rest = RUN_IN("--resume");
    umount(workspace_path("%s/small", root).s);
    if (first || rest) fail_msg("%d, %d: %s", first, rest, p.text);
}

/* Leaves so much of it. */
static void fill_small(const char *root, size_t leave)
{
    test_path at = workspace_path("%s/small/filler", root);
    struct statvfs v;
    static const char zeros[4096];
    FILE *f = fopen(at.s, "wb");
    assert_non_null(f);
    while (statvfs(at.s, &v) == 0 && (size_t)v.f_bavail * v.f_frsize > leave) {
        assert_int_equal(fwrite(zeros, 1, sizeof zeros, f), sizeof zeros);
        assert_int_equal(fflush(f), 0);
    }
    fclose(f);
}

/* All steps are done and the finished model was not written: room for that alone is asked for. */
static void a_finished_run_asks_for_room_for_its_model(void **state)
{
    const char *root = *state;
    char command[512];
    if (!mount_small(root, "size=8m")) mt_skip("no file system may be mounted here");
    int first = RUN_IN("--num-steps=4");
    snprintf(command, sizeof command, "rm -r '%s/small/out/final'", root);
    assert_int_equal(system(command), 0);
    fill_small(root, 400 << 10);
    int rest = RUN_IN("--num-steps=4", "--resume");
    bool there = mt_file_exists(workspace_path("%s/small/out/final/config.json", root).s);
    umount(workspace_path("%s/small", root).s);
    if (first || rest || !there) fail_msg("%d, %d: %s", first, rest, p.text);
}

/* More checkpoints are there than are kept: the next one still comes before the first of them goes. */
static void a_checkpoint_to_come_is_asked_room_for_beside_many(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=8m")) mt_skip("no file system may be mounted here");
    int first = RUN_IN("--num-steps=3", "--save-steps=1", "--keep-last=all");
    fill_small(root, 300 << 10);
    int rest = RUN_IN("--num-steps=6", "--keep-last=1", "--resume=small/out/checkpoint-3");
    bool there = mt_file_exists(workspace_path("%s/small/out/checkpoint-1/config.json", root).s);
    umount(workspace_path("%s/small", root).s);
    assert_true(first == 0 && rest > 0 && there);
    assert_printed(&p, "what the run writes (1 checkpoint of"); /* said before the first step */
}

/* A run that needs more host memory than it may have: nothing is loaded, the setting that helps is named; --force starts it. */
static void a_run_that_does_not_fit_is_refused_unless_forced(void **state)
{
    set_up(*state);
    program_arg(&p, "--host-memory=16M");
    program_run(&p);
    assert_true(p.status > 0);
    assert_printed(&p, "of host memory");
    assert_printed(&p, "--force");
    set_up(*state);
    program_arg(&p, "--host-memory=16M");
    program_arg(&p, "--force");
    program_run(&p);
    assert_int_equal(p.status, 0);
    assert_printed(&p, "started anyway");
    assert_printed(&p, "predicted"); /* predicted beside measured, at the end */
}

/* A device has what it has: nothing is promised that --force cannot do, and nothing is said to be started. */
static void force_makes_no_device_larger(void **state)
{
    for (int force = 0; force <= 1; force++) {
        set_up(*state);
        program_arg(&p, "--device-memory=40K");
        if (force) program_arg(&p, "--force");
        program_run(&p);
        assert_true(p.status > 0);
        assert_printed(&p, "the run is not started");
        assert_printed(&p, "of device memory");
        assert_false(says("all the same"));
    }
}

/* A checkpoint is copied aside while it is written, but only where memory may be used for it; either way it is the same. */
static void a_checkpoint_is_the_same_with_room_for_a_copy_and_without(void **state)
{
    const char *root = *state;
    run_ok(root, NULL);
    assert_true(says("for the copy of a checkpoint"));
    set_up(root);
    const char *const more[] = { "--host-memory=16M", "--force", "--output-dir", "other" };
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
    program_run(&p);
    assert_int_equal(p.status, 0);
    assert_false(says("for the copy of a checkpoint"));
    static const char *const files[] = { "resume/unit-000.safetensors", "resume/unit-001.safetensors", "model.safetensors" };
    for (size_t i = 0; i < MT_COUNT(files); i++)
        assert_true(workspace_same_file(workspace_path("%s/out/checkpoint-4/%s", root, files[i]).s,
                                        workspace_path("%s/other/checkpoint-4/%s", root, files[i]).s));
}

static void a_disk_that_fills_up_ends_the_run_and_keeps_the_last_checkpoint(void **state)
{
    const char *root = *state;
    if (!mount_small(root, "size=1500k")) mt_skip("no file system may be mounted here");
    set_up(root);
    program_arg(&p, "--output-dir=small/out");
    program_arg(&p, "--force"); /* it is known to be too small */
    program_run(&p);
    bool whole = mt_file_exists(workspace_path("%s/small/out/checkpoint-2/checksums.json", root).s);
    bool torn = mt_dir_exists(workspace_path("%s/small/out/checkpoint-4", root).s) ||
                mt_dir_exists(workspace_path("%s/small/out/checkpoint-4.tmp", root).s);
    int status = p.status;
    umount(workspace_path("%s/small", root).s);
    assert_true(status > 0);
    assert_printed(&p, "checkpoint-4");
    assert_printed(&p, "The last complete checkpoint is small/out/checkpoint-2");
    assert_true(whole && !torn);
}

/* -- where a model comes from, and what it becomes -------------------------------------------------- */

static void write_rows_below_40(const char *root)
{
    mt_str s = { 0 };
    mt_str_puts(&s, "{\"input_ids\": [");
    for (int i = 0; i < 16; i++)
        mt_str_printf(&s, "%s[%d, %d, %d, %d]", i ? ", " : "", i, (i * 7 + 3) % 40, (i * 5 + 11) % 40, 39 - i);
    mt_str_puts(&s, "]}");
    workspace_write(root, "rows.json", s.s);
    mt_str_free(&s);
}

static void train_on(const char *root, const char *model, const char *out)
{
    const char *const args[] = { "train", "--model-name",    model, "--dataset-path", "rows.json", "--output-dir",
                                 out,     "--num-steps",     "3",   "--batch-size",   "4",         "--device",
                                 "cpu",   "--learning-rate", "1e-3" };
    program_init(&p, root);
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

/* Straight from the file, and through a directory that convert made of it: the same bits, tokenizer and all. */
static void a_gguf_file_trains_as_its_conversion_does(void **state)
{
    const char *root = *state;
    const char *const names[] = { "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json" };
    write_rows_below_40(root);
    program_init(&p, root);
    const char *const args[] = { "convert", MT_TESTS_DIR "/golden/weights/gguf_llama/model.gguf", "converted" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
    train_on(root, "converted", "of-directory");
    train_on(root, args[1], "of-file");
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        test_path a = workspace_path("%s/of-directory/final/%s", root, names[i]),
                  b = workspace_path("%s/of-file/final/%s", root, names[i]);
        if (!workspace_same_file(a.s, b.s)) fail_msg("%s and %s differ", a.s, b.s);
    }
    train_on(root, MT_TESTS_DIR "/golden/weights/gguf_llama_q8/model.gguf", "quantized");
    assert_printed(&p, "tensors are quantized (mostly Q8_0): precision was lost");
    program_init(&p, root); /* what was made of it is a model like any other */
    const char *const look[] = { "inspect", "of-file/final" };
    for (size_t i = 0; i < MT_COUNT(look); i++) program_arg(&p, look[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

/* A model that has its own template, trained with another, is asked with that other one. */
static void a_model_chats_as_it_was_trained(void **state)
{
    const char *root = *state;
    char *text;
    size_t n;
    mt_err err = { 0 };
    workspace_write(
        root, "chat.json",
        "[{\"query\": \"Reverse owl.\", \"response\": \"lwo\"}, {\"query\": \"Reverse ant.\", \"response\": \"tna\"}]");
    program_init(&p, root);
    const char *const args[] = { "train",
                                 "--model-name",
                                 MT_TESTS_DIR "/../data/demo_model",
                                 "--from-scratch",
                                 "--dataset-path",
                                 "chat.json",
                                 "--template",
                                 "vicuna",
                                 "--output-dir",
                                 "out",
                                 "--num-steps",
                                 "2",
                                 "--save-steps",
                                 "1",
                                 "--batch-size",
                                 "2",
                                 "--max-seq-len",
                                 "256",
                                 "--device",
                                 "cpu",
                                 "--cache-dir",
                                 "cache" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
    assert_printed(&p, "the template that answers were trained with");
    const char *const dirs[] = { "final", "checkpoint-1" };
    for (size_t i = 0; i < MT_COUNT(dirs); i++) {
        assert_ok(mt_file_read(&text, &n, workspace_path("%s/out/%s/tokenizer_config.json", root, dirs[i]).s, 1 << 20, &err));
        assert_non_null(strstr(text, "USER: "));
        assert_null(strstr(text, "<|im_start|>"));
        mt_free(text);
    }
    program_init(&p, root);
    const char *const ask[] = { "generate",         "out/final", "--chat",   "--prompt", "Reverse owl.",
                                "--max-new-tokens", "2",         "--device", "cpu" };
    for (size_t i = 0; i < MT_COUNT(ask); i++) program_arg(&p, ask[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

static void train_demo(const char *root, const char *out, const char *const *extra, size_t n_extra)
{
    const char *const args[] = { "train",
                                 "--model-name",
                                 MT_TESTS_DIR "/../data/demo_model",
                                 "--from-scratch",
                                 "--dataset-path",
                                 "chat.json",
                                 "--output-dir",
                                 out,
                                 "--num-steps",
                                 "4",
                                 "--save-steps",
                                 "2",
                                 "--batch-size",
                                 "2",
                                 "--max-seq-len",
                                 "128",
                                 "--device",
                                 "cpu",
                                 "--cache-dir",
                                 "cache",
                                 "--learning-rate",
                                 "1e-3",
                                 "--set",
                                 "logging.enable_timing=false" };
    program_init(&p, root);
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(&p, args[i]);
    for (size_t i = 0; i < n_extra; i++) program_arg(&p, extra[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
}

static void prompts_without_room_for_a_cache_are_not_answered(void **state)
{
    const char *root = *state;
    const char *const asked[] = { "--device-memory", "7M",
                                  "--sample-steps",  "2",
                                  "--set",           "logging.sample_prompts=[Reverse owl., Say hi]" };
    workspace_write(root, "chat.json", "[{\"query\": \"Reverse owl.\", \"response\": \"lwo\"}]");
    train_demo(root, "out", asked, MT_COUNT(asked));
    assert_printed(&p, "no prompt is answered");
    assert_null(strstr(p.text, "sample at step"));
}

/* Also where layers pass through the ring, which answers share with training. */
static void samples_are_shown_and_change_no_bit(void **state)
{
    const char *root = *state;
    const char *const asked[] = {
        "--device-memory", "10M",
        "--sample-steps",  "2",
        "--set",           "logging.sample_prompts=[Reverse owl., Say hi, Write this out backwards and then in capital letters.]"
    };
    char *text;
    size_t n;
    mt_err err = { 0 };
    workspace_write(
        root, "chat.json",
        "[{\"query\": \"Reverse owl.\", \"response\": \"lwo\"}, {\"query\": \"Reverse ant.\", \"response\": \"tna\"}]");
    train_demo(root, "with", asked, MT_COUNT(asked));
    assert_printed(&p, "sample at step 2: Reverse owl. -> ");
    assert_printed(&p, "sample at step 4: Say hi -> ");
    assert_printed(&p, "sample at step 4: Write this out backwards and then in capital letters. -> "); /* longer than the data */
    assert_null(strstr(p.text, "is skipped"));
    assert_ok(mt_file_read(&text, &n, workspace_path("%s/with/metrics.jsonl", root).s, 1 << 20, &err));
    assert_non_null(strstr(text, "{\"step\": 2, \"epoch\": 2, \"samples\": [{\"prompt\": \"Reverse owl.\", \"answer\": \""));
    mt_free(text);
    for (int i = 0; i < 2; i++) {
        train_demo(root, i ? "streamed" : "resident", asked, i ? 2 : 0);
        const char *const files[] = { "final/model.safetensors", "checkpoint-4/model.safetensors",
                                      "checkpoint-4/resume/unit-000.safetensors", "checkpoint-4/resume/unit-001.safetensors",
                                      "checkpoint-4/resume/unit-004.safetensors" };
        for (size_t k = 0; k < MT_COUNT(files); k++) {
            test_path a = workspace_path("%s/with/%s", root, files[k]),
                      b = workspace_path("%s/%s/%s", root, i ? "streamed" : "resident", files[k]);
            if (!workspace_same_file(a.s, b.s)) fail_msg("%s and %s differ", a.s, b.s);
        }
    }
}

/* 32 samples to train on, 8 at a time: epochs end with steps 4, 8 and 12; the run, in the middle of one, with 14. */
static void epochs_may_be_the_measure_of_saving_and_evaluating(void **state)
{
    const char *root = *state;
    const char *const more[] = { "--val-size",     "8",    "--eval-at-start", "false", "--num-steps",  "14",
                                 "--keep-last",    "all",  "--save-steps",    "epoch", "--eval-steps", "epoch",
                                 "--log-interval", "epoch" };
    static const char *const saved[] = { "4", "8", "12", "14" };
    set_up(root);
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
    if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
    char *text;
    mt_err err = { 0 };
    int n_lines = 0;
    assert_ok(mt_file_read(&text, NULL, workspace_path("%s/out/metrics.jsonl", root).s, 1 << 20, &err));
    for (const char *c = text; *c; c++) n_lines += *c == '\n';
    assert_int_equal(n_lines, 8); /* a line of the loss and one of the evaluation each time */
    for (size_t i = 0; i < MT_COUNT(saved); i++) {
        assert_true(mt_dir_exists(workspace_path("%s/out/checkpoint-%s", root, saved[i]).s));
        assert_non_null(strstr(text, workspace_path("{\"step\": %s, ", saved[i]).s));
        assert_printed(&p, workspace_path("evaluation at step %s:", saved[i]).s);
    }
    assert_int_equal(tempdir_count(workspace_path("%s/out", root).s, NULL), 10); /* those, final, and six files */
    mt_free(text);
}

/* One evaluation is not reported as two, and each by its step. */
static void evaluations_are_told_by_their_steps(void **state)
{
    const char *root = *state;
    for (int at_start = 0; at_start <= 1; at_start++) {
        set_up(root);
        const char *const more[] = { "--val-size", "8", "--overwrite", "--eval-at-start", at_start ? "true" : "false" };
        for (size_t k = 0; k < MT_COUNT(more); k++) program_arg(&p, more[k]);
        if (program_run(&p) != 0) fail_msg("status %d: %s", p.status, p.text);
        const char *line = strstr(p.text, "evaluation loss ");
        assert_non_null(line);
        const char *end = strchr(line, '\n'), *first = strstr(line, " at step 0, "), *last = strstr(line, " at step 6\n");
        if (!last || last > end || (first && first < end) != at_start) fail_msg("%.100s", line);
    }
}

/* Threads have the stack that the shell allows (ulimit -s). */
static void weights_are_loaded_with_a_small_stack(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    (void)state;
    mt_skip("sanitizers want more memory themselves");
#else
    const char *root = *state;
    struct rlimit own, small;
    run_ok(root, NULL);
    assert_int_equal(getrlimit(RLIMIT_STACK, &own), 0);
    small = (struct rlimit){ 768 << 10, own.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    set_up(root);
    const char *const more[] = { "--model-name", "out/final", "--no-from-scratch", "--output-dir", "again" };
    for (size_t i = 0; i < MT_COUNT(more); i++) program_arg(&p, more[i]);
    int status = program_run(&p);
    assert_int_equal(setrlimit(RLIMIT_STACK, &own), 0);
    if (status) fail_msg("status %d: %s", p.status, p.text);
#endif
}

/* With fresh data: its template is parsed and rendered. */
static void a_tiny_stack_is_raised_or_refused(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    (void)state;
    mt_skip("sanitizers want more memory themselves");
#else
    const char *root = *state, *const none[] = { NULL };
    char out[1024];
    struct rlimit own, small;
    workspace_write(root, "chat.json", "[{\"query\": \"Reverse owl.\", \"response\": \"lwo\"}]");
    assert_int_equal(getrlimit(RLIMIT_STACK, &own), 0);
    small = (struct rlimit){ 64 << 10, own.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    train_demo(root, "tiny", none, 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &own), 0);
    assert_int_equal(run_shell("ulimit -s 128 && '" MT_BINARY "' --version 2>&1", out, sizeof out), 1);
    assert_non_null(strstr(out, "the stack is limited to 128.0 KiB (ulimit -s), and at least 256.0 KiB are needed"));
#endif
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

MT_TEST_MAIN(RUNS(a_directory_that_holds_a_run_is_not_overwritten), RUNS(a_run_leaves_its_page_its_log_and_its_events),
             RUNS(a_directory_in_use_is_refused), RUNS(a_run_is_removed_only_once_the_next_one_can_start),
             RUNS(what_no_run_left_stays), RUNS(metrics_of_another_run_are_not_emptied),
             RUNS(metrics_under_the_name_of_another_file_are_refused), RUNS(metrics_that_cannot_be_written_are_refused_first),
             RUNS(rows_of_tokens_are_not_mixed_with_datasets), RUNS(a_directory_of_other_things_is_refused),
             RUNS(loose_files_and_a_new_file_system_are_accepted), RUNS(a_dry_run_removes_nothing_of_others),
             RUNS(a_dry_run_does_not_follow_a_link), RUNS(a_run_is_not_called_a_dry_run),
             RUNS(no_room_is_known_before_a_run_is_removed), RUNS(a_dry_run_leaves_nothing), RUNS(the_banner_fits_ten_lines),
             RUNS(a_truncated_newest_checkpoint_falls_back), RUNS(a_wrong_checksum_falls_back),
             RUNS(every_checkpoint_damaged_starts_from_the_beginning_and_says_so), RUNS(changed_data_is_refused),
             RUNS(other_code_for_data_is_noticed), RUNS(a_refused_resume_removes_no_checkpoint),
             RUNS(a_checkpoint_of_another_model_is_refused), RUNS(what_may_change_changes_and_is_said),
             RUNS(a_resumed_run_keeps_its_attention), RUNS(an_old_checkpoint_by_name_is_refused_while_newer_ones_are_there),
             RUNS(only_models_are_saved_when_asked_and_cannot_be_resumed), RUNS(a_model_alone_points_to_the_checkpoint_before_it),
             RUNS(a_finished_model_alone_is_not_resumed), RUNS(room_is_asked_for_what_will_be_written),
             RUNS(a_resumed_run_asks_for_room_for_the_rest), RUNS(a_finished_run_asks_for_room_for_its_model),
             RUNS(a_checkpoint_to_come_is_asked_room_for_beside_many),
             RUNS(no_room_for_all_checkpoints_is_known_before_the_first_step),
             RUNS(a_run_that_does_not_fit_is_refused_unless_forced), RUNS(force_makes_no_device_larger),
             RUNS(a_checkpoint_is_the_same_with_room_for_a_copy_and_without), RUNS(missing_things_are_named),
             RUNS(files_that_no_model_can_be_saved_with_are_refused_first), RUNS(a_gguf_file_trains_as_its_conversion_does),
             RUNS(a_model_chats_as_it_was_trained), RUNS(samples_are_shown_and_change_no_bit),
             RUNS(prompts_without_room_for_a_cache_are_not_answered), RUNS(weights_are_loaded_with_a_small_stack),
             RUNS(a_tiny_stack_is_raised_or_refused), RUNS(epochs_may_be_the_measure_of_saving_and_evaluating),
             RUNS(evaluations_are_told_by_their_steps), RUNS(a_yaml_file_with_mistakes_is_refused_by_line),
             RUNS(no_room_is_known_before_the_first_step), RUNS(a_disk_that_fills_up_ends_the_run_and_keeps_the_last_checkpoint))
