/* The cache of tokenized samples: the same file from any number of threads, nothing torn by a crash, nothing stale, nothing
 * damaged unnoticed. */
#include "fake_maker.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "data/cache.h"
#include "data/cache_trim.h"
#include "data/report.h"
#include "data/store_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

static mt_store_job job_of(const char *path, int n_workers)
{
    return (mt_store_job){ .what = "fake", .path = path, .maker = fake_maker(1), .vocab = FAKE_VOCAB, .n_workers = n_workers };
}

static void read_all(char **bytes, size_t *n, const char *path)
{
    mt_err err = { 0 };
    assert_ok(mt_file_read(bytes, n, path, SIZE_MAX, &err));
}

/* Sample i of a store of fake_records that begin with id `first`. */
static void expect_sample(const mt_store *s, int64_t i, int64_t id, int64_t part)
{
    int32_t ids[FAKE_LONGEST], labels[FAKE_LONGEST];
    assert_int_equal(mt_store_read(s, i, ids, labels, NULL), MT_OK);
    for (int64_t k = 0; k < mt_store_length(s, i); k++) {
        assert_int_equal(ids[k], fake_token(id, part, k));
        assert_int_equal(labels[k], k ? ids[k] : MT_IGNORE);
    }
}

static void samples_come_back_in_the_order_of_the_records(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 1000, 40);
    char *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 2);
    mt_store *s;
    assert_ok(mt_store_build(path, 42, &job, &err));
    assert_ok(mt_store_map(&s, path, 42, &err));
    assert_int_equal(mt_store_samples(s), 1000);
    int64_t n_tokens = 0;
    for (int64_t i = 0; i < 1000; i++) {
        expect_sample(s, i, i, 0);
        assert_true(mt_store_first_of_record(s, i));
        n_tokens += mt_store_length(s, i);
    }
    const mt_store_counts *c = mt_store_counted(s);
    assert_int_equal(c->n_tokens, n_tokens);
    assert_int_equal(c->n_trained, n_tokens - 1000);
    assert_int_equal(c->longest, 40);
    assert_int_equal(mt_store_bad(c), 0);
    assert_null(mt_store_bad_text(s, 0));
    mt_store_close(s);
    assert_int_equal(mt_store_map(&s, path, 43, &err), MT_EFORMAT);
    assert_says("other data or settings");
    mt_free(data);
    mt_free(path);
}

/* Wide ids need wide words; everything else stays the same. */
static void large_vocabularies_take_four_bytes(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 50, 40), *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 1);
    job.vocab = 1 << 20;
    mt_store *s;
    assert_ok(mt_store_build(path, 1, &job, &err));
    assert_ok(mt_store_map(&s, path, 1, &err));
    for (int64_t i = 0; i < 50; i++) expect_sample(s, i, i, 0);
    mt_store_close(s);
    mt_free(data);
    mt_free(path);
}

static void the_file_does_not_depend_on_the_number_of_threads(void **state)
{
    mt_err err = { 0 };
    mt_str text = { 0 };
    for (int i = 0; i < 3000; i++)
        if (i % 97 == 5)
            mt_str_puts(&text, "{ broken\n");
        else if (i % 41 == 3)
            mt_str_printf(&text, "{\"id\": %d, \"bad\": %d}\n", i, 2 + i % 5);
        else
            mt_str_printf(&text, "{\"id\": %d, \"n\": %d, \"parts\": %d}\n", i, 1 + i % 200, 1 + i % 3);
    char *data = fake_file(*state, "data.jsonl", text.s), *first = NULL, *other;
    size_t n_first = 0, n_other;
    mt_str_free(&text);
    for (int n_workers = 1; n_workers <= 5; n_workers += 2) {
        char name[32];
        snprintf(name, sizeof name, "store-%d", n_workers);
        char *path = mt_path_join(*state, name);
        mt_store_job job = job_of(data, n_workers);
        assert_ok(mt_store_build(path, 42, &job, &err));
        read_all(&other, &n_other, path);
        if (first) {
            assert_int_equal(n_other, n_first);
            assert_memory_equal(first, other, n_first);
            mt_free(other);
        } else {
            first = other;
            n_first = n_other;
        }
        mt_free(path);
    }
    mt_free(first);
    mt_free(data);
}

static void bad_records_are_counted_by_reason_and_the_first_three_are_shown(void **state)
{
    mt_err err = { 0 };
    char *data = fake_file(
        *state, "data.jsonl",
        "{\"id\": 1}\n{\"id\": 2, \"bad\": 4}\n{ nonsense\n{\"id\": 4}\n{\"id\": 5, \"bad\": 5}\n{\"id\": 6, \"bad\": 4}\n"
        "{\"id\": 7, \"bad\": 9}\n{\"id\": 8, \"parts\": 0}\n");
    char *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 2);
    mt_store *s;
    assert_ok(mt_store_build(path, 1, &job, &err));
    assert_ok(mt_store_map(&s, path, 1, &err));
    const mt_store_counts *c = mt_store_counted(s);
    assert_int_equal(c->n_records, 8);
    assert_int_equal(c->by_reason[MT_REASON_NONE], 2);
    assert_int_equal(c->by_reason[MT_REASON_REPEATED_SIDE], 2);
    assert_int_equal(c->by_reason[MT_REASON_NOT_JSON], 1);
    assert_int_equal(c->by_reason[MT_REASON_NO_ROOM], 1);
    assert_int_equal(c->n_empty, 1);
    assert_int_equal(mt_store_bad(c), 4); /* too long is not bad */
    assert_non_null(strstr(mt_store_bad_text(s, 0), "data.jsonl, line 2: record 2 is bad on purpose"));
    assert_non_null(strstr(mt_store_bad_text(s, 1), "data.jsonl"));
    assert_non_null(strstr(mt_store_bad_text(s, 1), "line 3"));
    assert_non_null(strstr(mt_store_bad_text(s, 2), "data.jsonl, line 5: "));
    assert_null(mt_store_bad_text(s, 3));
    assert_ok(mt_report_check(s, "fake", false, 0.5, &err));
    assert_int_equal(mt_report_check(s, "fake", false, 0.05, &err), MT_EFORMAT);
    assert_says("dataset fake: 4 of 8 records are bad (50%): malformed record (1), two turns of one side in a row (2), unknown "
                "role (1), no answer token left");
    assert_says("line 2: record 2 is bad on purpose");
    assert_says("More than max_bad_share (5%)");
    assert_int_equal(mt_report_check(s, "fake", true, 1, &err), MT_EFORMAT);
    assert_says("on_bad_record: skip");
    mt_store_close(s);
    job.stop_on_bad = true;
    assert_int_equal(mt_store_build(path, 1, &job, &err), MT_EFORMAT);
    assert_says("line 2: record 2 is bad on purpose");
    mt_free(data);
    mt_free(path);
}

static void the_first_fatal_record_is_named_whoever_meets_it(void **state)
{
    mt_err err = { 0 };
    mt_str text = { 0 };
    for (int i = 1; i <= 2000; i++) mt_str_printf(&text, i >= 500 && i % 100 == 0 ? "{\"fatal\": %d}\n" : "{\"id\": %d}\n", i);
    char *data = fake_file(*state, "data.jsonl", text.s), *path = mt_path_join(*state, "store");
    mt_str_free(&text);
    mt_store_job job = job_of(data, 3);
    assert_int_equal(mt_store_build(path, 1, &job, &err), MT_EFORMAT);
    assert_says("data.jsonl, line 500: the template changes the answer");
    assert_int_equal(tempdir_count(*state, NULL), 1); /* nothing but the data */
    mt_free(data);
    mt_free(path);
}

static void a_dataset_without_samples_says_so(void **state)
{
    mt_err err = { 0 };
    char *data = fake_file(*state, "data.jsonl", "{\"bad\": 9}\n"), *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 1);
    mt_store *s;
    assert_ok(mt_store_build(path, 1, &job, &err));
    assert_ok(mt_store_map(&s, path, 1, &err));
    assert_int_equal(mt_report_check(s, "fake", false, 0.05, &err), MT_EFORMAT);
    assert_says("none of its 1 records gives a sample: no answer token left");
    mt_store_close(s);
    mt_free(data);
    mt_free(path);
}

/* -- the cache ------------------------------------------------------------------------------------- */

static void later_runs_map_what_the_first_one_made(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 100, 20);
    mt_store_job job = job_of(data, 2);
    mt_store *a, *b;
    bool built;
    assert_ok(mt_cache_open(&a, *state, &job, &built, &err));
    assert_true(built);
    assert_ok(mt_cache_open(&b, *state, &job, &built, &err));
    assert_false(built);
    assert_int_equal(mt_store_content(a), mt_store_content(b));
    mt_store_close(a);
    mt_store_close(b);
    mt_free(data);
}

static uint64_t key_of(const mt_store_job *job)
{
    mt_err err = { 0 };
    uint64_t key;
    assert_ok(mt_cache_key(&key, job, &err));
    return key;
}

static void changed_data_or_settings_lead_to_another_key(void **state)
{
    char *data = fake_records(*state, "data.jsonl", 0, 100, 20), *copy = fake_records(*state, "copy.jsonl", 0, 100, 20);
    mt_store_job job = job_of(data, 1), other = job;
    uint64_t key = key_of(&job);
    other.n_workers = 7;
    assert_true(key_of(&other) == key); /* threads change nothing */
    other = job, other.maker.fingerprint++;
    assert_true(key_of(&other) != key);
    other = job, other.max_records = 10;
    assert_true(key_of(&other) != key);
    other = job, other.vocab++;
    assert_true(key_of(&other) != key);
    other = job, other.path = copy;
    assert_true(key_of(&other) != key);
    other = job, other.records.format = "json";
    assert_true(key_of(&other) != key);
    other = job, other.records.subset = "en";
    assert_true(key_of(&other) != key);
    other = job, other.records.sample_by = MT_SAMPLE_PARAGRAPH;
    assert_true(key_of(&other) != key);
    /* the same size and the same time, another byte */
    struct stat st;
    assert_int_equal(stat(data, &st), 0);
    FILE *f = fopen(data, "r+");
    assert_non_null(f);
    fseek(f, 7, SEEK_SET);
    fputc('9', f);
    fclose(f);
    struct timespec times[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, data, times, 0), 0);
    assert_true(key_of(&job) != key);
    mt_free(data);
    mt_free(copy);
}

/* -- the code that makes samples ------------------------------------------------------------------- */

static uint64_t other_code;
uint64_t __real_mt_sample_code(void);
uint64_t __wrap_mt_sample_code(void);
uint64_t __wrap_mt_sample_code(void) { return other_code ? other_code : __real_mt_sample_code(); }

static void what_other_code_has_made_is_not_used(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 20, 20);
    mt_store_job job = job_of(data, 1);
    mt_store *s;
    uint64_t key = key_of(&job);
    for (int i = 0; i < 3; i++) {
        bool built;
        other_code = i == 1 ? 7 : 0;
        assert_int_equal(key_of(&job) == key, i != 1);
        assert_ok(mt_cache_open(&s, *state, &job, &built, &err));
        mt_store_close(s);
        assert_int_equal(built, i != 2);
    }
    mt_free(data);
}

/* Sources in `folder`: each is in `list`, a line of which is "hash path".  Returns how many there are. */
static int listed_sources(const char *folder, const char *list)
{
    int n = 0;
    char path[512], line[300], other[32];
    snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s", folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        size_t k = strlen(e->d_name);
        if (e->d_name[0] == '.' || e->d_name[k - 1] == '~' || strcmp(e->d_name, "sources.cmake") == 0) continue;
        snprintf(line, sizeof line, " src/%s/%s\n", folder, e->d_name);
        if (!strstr(list, line)) fail_msg("%s decides samples too: name it in cmake/sources.cmake", line);
        n++;
        snprintf(path, sizeof path, MT_TESTS_DIR "/../src/%s/%s", folder, e->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        while (fgets(path, sizeof path, f))
            if (sscanf(path, "#include \"%31[a-z]/", other) == 1 && !strstr("base tokenizer jinja data", other))
                fail_msg("%s includes %s, whose folder decides samples too: name it in cmake/sources.cmake", line, other);
        fclose(f);
    }
    closedir(d);
    return n;
}

static void the_code_of_samples_is_all_that_they_are_made_by(void **state)
{
    (void)state;
    char *list;
    size_t n;
    int n_lines = 0;
    read_all(&list, &n, MT_SAMPLE_CODE);
    for (const char *at = list; (at = strstr(at, " src/")); at++) n_lines++;
    int n_files = listed_sources("base", list) + listed_sources("tokenizer", list) + listed_sources("jinja", list) +
                  listed_sources("data", list);
    assert_int_equal(n_files, n_lines);
    mt_free(list);
}

/* What cmake/sample_code.cmake makes of two files in a folder. */
static char *code_of(const char *dir, const char *a, const char *b, const char *locale, const char *files)
{
    char command[1024], *text;
    size_t n;
    tempdir_write(dir, "one.c", a);
    tempdir_write(dir, "two.c", b);
    snprintf(command, sizeof command,
             "cd / && LC_ALL=%s '" MT_CMAKE "' '-DROOT=%s' '-DFILES=%s' '-DOUT=%s/code.c' -P '" MT_TESTS_DIR
             "/../cmake/sample_code.cmake'",
             locale, dir, files, dir);
    assert_int_equal(system(command), 0);
    char *out = mt_path_join(dir, "code.c");
    read_all(&text, &n, out);
    mt_free(out);
    return text;
}

static void the_number_of_the_code_depends_on_names_and_contents_alone(void **state)
{
    void *other = NULL;
    assert_int_equal(tempdir_make(&other), 0);
    char *first = code_of(*state, "int a;\n", "int b;\n", "C", "one.c;two.c");
    const struct {
        const char *a, *b, *files;
    } cases[] = { { "int a;\n", "int b;\n", "two.c;one.c" },
                  { "int a;\n", "int c;\n", "two.c;one.c" },
                  { "int b;\n", "int a;\n", "two.c;one.c" },
                  { "int a;\n", "int b;\n", "one.c" } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        char *code = code_of(other, cases[i].a, cases[i].b, "C.UTF-8", cases[i].files);
        assert_int_equal(strcmp(code, first) == 0, i == 0);
        assert_int_equal(strcmp(strstr(code, "UINT64_C"), strstr(first, "UINT64_C")) == 0, i == 0);
        mt_free(code);
    }
    mt_free(first);
    assert_int_equal(tempdir_remove(&other), 0);
}

/* -------------------------------------------------------------------------------------------------- */

static char *only_store(const char *dir)
{
    DIR *d = opendir(dir);
    char *path = NULL;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".samples")) path = mt_path_join(dir, e->d_name);
    closedir(d);
    assert_non_null(path);
    return path;
}

static void keep_notice(void *user, mt_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 512, "%s", text);
}

static void damaged_files_are_noticed_and_made_anew(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 100, 20), notice[512];
    mt_store_job job = job_of(data, 1);
    mt_store *s;
    assert_ok(mt_cache_open(&s, *state, &job, NULL, &err));
    uint64_t content = mt_store_content(s);
    mt_store_close(s);
    char *path = only_store(*state);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    mt_log_set_sink(keep_notice, notice);
    for (int64_t at = 0; at < st.st_size; at += at < 256 ? 3 : 331) {                     /* header, words, index, lengths */
        if (at >= (int64_t)sizeof(mt__store_header) && at < MT__STORE_WORDS_AT) continue; /* nothing is there */
        FILE *f = fopen(path, "r+");
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 0x20, f);
        fclose(f);
        bool built;
        notice[0] = '\0';
        assert_ok(mt_cache_open(&s, *state, &job, &built, &err));
        if (!built) fail_msg("a changed byte at %lld went unnoticed", (long long)at);
        assert_non_null(strstr(notice, "it is made anew"));
        assert_int_equal(mt_store_content(s), content);
        mt_store_close(s);
    }
    for (int64_t size = 0; size < st.st_size; size += 997) {
        bool built;
        assert_int_equal(truncate(path, size), 0);
        assert_ok(mt_cache_open(&s, *state, &job, &built, &err));
        assert_true(built);
        mt_store_close(s);
    }
    mt_log_set_sink(NULL, NULL);
    mt_free(path);
    mt_free(data);
}

static void a_crash_at_any_moment_leaves_nothing_torn(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 400, 20);
    mt_store_job job = job_of(data, 2);
    uint64_t key = key_of(&job);
    char name[64];
    snprintf(name, sizeof name, "%016llx.samples", (unsigned long long)key);
    char *path = mt_path_join(*state, name);
    int n_killed = 0;
    for (int n = 0;; n++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            mt_store *s;
            mt_fault_arm_kill(MT_FAULT_FILE, n);
            mt_cache_open(&s, *state, &job, NULL, &err);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status)) break;
        n_killed++;
        mt_store *s;
        if (mt_file_exists(path)) { /* whole or not there */
            assert_ok(mt_store_map(&s, path, key, &err));
            mt_store_close(s);
            unlink(path);
        }
        bool built;
        assert_ok(mt_cache_open(&s, *state, &job, &built, &err));
        assert_true(built);
        assert_int_equal(mt_store_samples(s), 400);
        mt_store_close(s);
        unlink(path);
    }
    assert_true(n_killed >= 10);
    assert_int_equal(tempdir_count(*state, ".tmp"), 0); /* what a crash left was replaced, then renamed */
    mt_free(path);
    mt_free(data);
}

static void failing_files_memory_and_threads_are_clean_errors(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 200, 20);
    mt_store_job job = job_of(data, 2);
    static const mt_fault_kind kinds[] = { MT_FAULT_FILE, MT_FAULT_THREAD, MT_FAULT_ALLOC };
    for (size_t k = 0; k < MT_COUNT(kinds); k++)
        for (int n = 0;; n++) {
            mt_store *s = NULL;
            mt_fault_arm(kinds[k], n);
            mt_rc rc = mt_cache_open(&s, *state, &job, NULL, &err);
            bool delivered = mt_fault_disarm();
            if (!rc) mt_store_close(s);
            if (!delivered) break;
            if (rc) assert_null(s);
            if (rc) assert_true(err.msg[0]);
            assert_int_equal(tempdir_count(*state, ".tmp"), 0);
            if (tempdir_count(*state, ".samples")) {
                char *path = only_store(*state);
                unlink(path);
                mt_free(path);
            }
        }
    mt_free(data);
}

static void two_processes_make_it_once(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 3000, 300);
    mt_store_job job = job_of(data, 2);
    enum { N = 4 };
    pid_t pids[N];
    int n_built = 0;
    fflush(NULL);
    for (int i = 0; i < N; i++)
        if ((pids[i] = fork()) == 0) {
            mt_store *s;
            bool built;
            if (mt_cache_open(&s, *state, &job, &built, &err) || mt_store_samples(s) != 3000) _exit(9);
            _exit(built);
        }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        n_built += WEXITSTATUS(status);
    }
    assert_int_equal(n_built, 1);
    assert_int_equal(tempdir_count(*state, ".samples"), 1);
    mt_free(data);
}

static void the_folder_is_the_users_cache(void **state)
{
    mt_err err = { 0 };
    char *dir, *data = fake_records(*state, "data.jsonl", 0, 10, 20);
    setenv("XDG_CACHE_HOME", *state, 1);
    assert_ok(mt_cache_dir(&dir, "", &err));
    assert_non_null(strstr(dir, "/megatrain"));
    assert_ptr_equal(strstr(dir, *state), dir);
    mt_free(dir);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/somebody", 1);
    assert_ok(mt_cache_dir(&dir, NULL, &err));
    assert_string_equal(dir, "/home/somebody/.cache/megatrain");
    mt_free(dir);
    unsetenv("HOME");
    assert_int_equal(mt_cache_dir(&dir, NULL, &err), MT_EINVAL);
    assert_says("dataset.cache_dir");
    mt_store_job job = job_of(data, 1);
    mt_store *s;
    assert_int_equal(mt_cache_open(&s, "/proc/nowhere/deep", &job, NULL, &err), MT_EIO);
    assert_says("dataset.cache_dir chooses another place");
    mt_free(data);
}

/* Stores of three different keys, closed; the k-th was used k days after the first.  Returns the size of one. */
static int64_t three_stores(const char *dir, const char *data, int64_t first_use)
{
    mt_err err = { 0 };
    struct stat st = { 0 };
    for (int k = 0; k < 3; k++) {
        char name[64];
        mt_store *s;
        mt_store_job job = job_of(data, 1);
        job.maker.fingerprint = 100 + (uint64_t)k;
        assert_ok(mt_cache_open(&s, dir, &job, NULL, &err));
        mt_store_close(s);
        snprintf(name, sizeof name, "%016llx.samples", (unsigned long long)key_of(&job));
        char *path = mt_path_join(dir, name);
        struct timespec used = { .tv_sec = first_use + k * 86400 }, times[2] = { used, used };
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(stat(path, &st), 0);
        mt_free(path);
    }
    return st.st_size;
}

static void what_is_unused_longest_leaves_a_cache_that_is_full(void **state)
{
    const int64_t now = 2000000000;
    char *data = fake_records(*state, "data.jsonl", 0, 50, 20), *other = fake_file(*state, "notes.samples", "not ours");
    int64_t size = three_stores(*state, data, now - 10 * 86400);
    mt_trimmed t = mt_cache_trim(*state, 0, now);
    assert_int_equal(t.n_files, 0); /* any number of bytes */
    t = mt_cache_trim(*state, (uint64_t)size * 3, now);
    assert_int_equal(t.n_files, 0);
    t = mt_cache_trim(*state, (uint64_t)size * 3 - 1, now);
    assert_int_equal(t.n_files, 1);
    assert_int_equal(t.bytes, size);
    mt_store_job oldest = job_of(data, 1), newest = oldest;
    oldest.maker.fingerprint = 100;
    newest.maker.fingerprint = 102;
    mt_err err = { 0 };
    mt_store *s;
    bool built;
    assert_ok(mt_cache_open(&s, *state, &newest, &built, &err));
    assert_false(built);
    mt_store_close(s);
    assert_ok(mt_cache_open(&s, *state, &oldest, &built, &err));
    assert_true(built);
    mt_store_close(s);
    t = mt_cache_trim(*state, 1, now);
    assert_int_equal(t.n_files, 3);
    assert_int_equal(tempdir_count(*state, ".samples"), 1); /* whatever has another name stays */
    assert_int_equal(tempdir_count(*state, ".lock"), 0);
    mt_free(data);
    mt_free(other);
}

static void what_is_old_leaves_and_what_is_in_use_stays(void **state)
{
    const int64_t now = 2000000000;
    mt_err err = { 0 };
    mt_store *s;
    char *data = fake_records(*state, "data.jsonl", 0, 50, 20);
    three_stores(*state, data, now - 31 * 86400); /* 31, 30 and 29 days ago */
    mt_store_job job = job_of(data, 1);
    mt_trimmed t = mt_cache_trim(*state, 0, now);
    assert_int_equal(t.n_files, 1);
    job.maker.fingerprint = 101;
    assert_ok(mt_cache_open(&s, *state, &job, NULL, &err)); /* marks it used today, which is after `now` */
    t = mt_cache_trim(*state, 1, INT64_MAX / 2);
    assert_int_equal(t.n_files, 1); /* not the one that is open */
    assert_int_equal(mt_store_samples(s), 50);
    mt_store_close(s);
    t = mt_cache_trim(*state, 1, now);
    assert_int_equal(t.n_files, 1);
    assert_int_equal(tempdir_count(*state, ".samples"), 0);
    mt_free(data);
}

static void leftovers_of_a_killed_run_leave_with_their_lock(void **state)
{
    const int64_t now = 4000000000;
    char *files[] = { fake_file(*state, "00000000000000ab.samples.tmp", "half"),
                      fake_file(*state, "00000000000000ab.samples.index.tmp", "half"),
                      fake_file(*state, "00000000000000ab.lock", ""), fake_file(*state, "00000000000000cd.samples.tmp", "half"),
                      fake_file(*state, "00000000000000cd.lock", "") };
    int held = open(files[4], O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX), 0); /* another process is making it */
    mt_cache_trim(*state, 0, now);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(mt_file_exists(files[i]), i >= 3);
        mt_free(files[i]);
    }
    close(held);
}

static mt_rc stop_early(void *user, const mt_store_progress *p, mt_err *err)
{
    int64_t *seen = user;
    assert_true(p->n_records > *seen && p->share > 0 && p->share <= 1);
    *seen = p->n_records;
    return p->n_records > 500 ? mt_fail(err, MT_ESTOPPED, "stopped on request") : MT_OK;
}

/* A store too large to be hashed when it is mapped: a token that the disk has changed is noticed where it is read. */
static void a_large_store_is_verified_where_it_is_read(void **state)
{
    enum { WORD = 2 };
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 12000, 250), *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 2);
    mt_store *s;
    int32_t ids[FAKE_LONGEST], labels[FAKE_LONGEST];
    assert_ok(mt_store_build(path, 1, &job, &err));
    assert_ok(mt__store_map(&s, path, 1, 0, &err));
    int64_t n = mt_store_samples(s);
    assert_true(mt_store_counted(s)->n_tokens * WORD > 2 * MT__STORE_BLOCK); /* several blocks */
    for (int64_t i = 0; i < n; i++) assert_ok(mt_store_read(s, i, ids, labels, &err));
    mt_store_close(s);
    int fd = open(path, O_RDWR);
    uint8_t byte;
    off_t at = MT__STORE_WORDS_AT + MT__STORE_BLOCK + 1000; /* in the second block */
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    assert_int_equal(mt__store_map(&s, path, 1, SIZE_MAX, &err), MT_EFORMAT);
    assert_ok(mt__store_map(&s, path, 1, 0, &err));
    assert_ok(mt_store_read(s, 0, ids, labels, &err));
    assert_ok(mt_store_read(s, n - 1, ids, labels, &err));
    int64_t n_bad = 0;
    for (int64_t i = 0; i < n; i++) n_bad += mt_store_read(s, i, ids, labels, &err) == MT_EFORMAT;
    assert_true(n_bad > 0 && n_bad < n);
    assert_says("tokens are damaged; remove the file");
    mt_store_close(s);
    mt_free(path);
    mt_free(data);
}

/* A file after the first blocks of which one byte may change, with size and time of change as rsync -t and tar leave them. */
static char *large_file(const char *dir)
{
    struct stat st;
    char *data = fake_records(dir, "data.jsonl", 0, 150000, 60);
    assert_int_equal(stat(data, &st), 0);
    assert_true(st.st_size > 17 << 16);
    return data;
}

static void exchange_a_byte(const char *path, char byte)
{
    struct stat st;
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, &byte, 1, (1 << 16) + 10), 1); /* after the first block */
    assert_int_equal(futimens(fd, (const struct timespec[]){ st.st_atim, st.st_mtim }), 0);
    close(fd);
}

/* Whether two changes get two times depends on the file system and the kernel, so these give both contents the same times. */
static uint64_t hash_with(const char *path, const struct stat *st, bool whole, const mt_store_job *job)
{
    mt_err err = { 0 };
    uint64_t h = 0;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_ok(mt__cache_hash_file(&h, fd, path, st, whole, job, &err));
    close(fd);
    return h;
}

static void a_file_exchanged_within_one_tick_has_another_key(void **state)
{
    mt_err err = { 0 };
    char *data = large_file(*state);
    mt_store_job job = job_of(data, 1);
    struct stat st;
    uint64_t sampled, whole;
    assert_int_equal(stat(data, &st), 0);
    uint64_t before = hash_with(data, &st, true, &job), before_sampled = hash_with(data, &st, false, &job);
    exchange_a_byte(data, '7');
    assert_true(hash_with(data, &st, true, &job) != before);
    assert_true(hash_with(data, &st, false, &job) == before_sampled); /* times have to tell them apart */
    struct stat later = st;
    later.st_ctim.tv_nsec = (later.st_ctim.tv_nsec + 1) % 1000000000;
    assert_true(hash_with(data, &later, false, &job) != before_sampled);
    /* a dataset of this size is hashed as a whole */
    assert_ok(mt__cache_key(&whole, &job, st.st_size, &err));
    assert_true(key_of(&job) == whole);
    assert_ok(mt__cache_key(&sampled, &job, st.st_size - 1, &err));
    assert_true(sampled != whole);
    mt_free(data);
}

/* The key waits until the clock of this file system, whatever it is, gives the next change another time. */
static void a_large_file_that_was_exchanged_has_another_key(void **state)
{
    mt_err err = { 0 };
    char *data = large_file(*state);
    mt_store_job job = job_of(data, 1);
    uint64_t before, after;
    for (int i = 0; i < 5; i++) {
        exchange_a_byte(data, (char)('0' + 2 * i));
        assert_ok(mt__cache_key(&before, &job, 0, &err));
        exchange_a_byte(data, (char)('1' + 2 * i));
        assert_ok(mt__cache_key(&after, &job, 0, &err));
        assert_true(before != after);
    }
    mt_free(data);
}

static void times_are_trusted_once_the_clock_has_moved_on(void **state)
{
    (void)state;
    const int64_t ms = 1000000;
    const struct timespec fine = { 1000, 500 * ms }, coarse = { 1000, 0 }, seconds_ago = { 990, 1 };
    assert_true(mt__cache_unsettled(fine, fine) > 10 * ms);
    assert_true(mt__cache_unsettled(fine, (struct timespec){ 1000, 510 * ms }) > 0);
    assert_int_equal(mt__cache_unsettled(fine, (struct timespec){ 1000, 700 * ms }), 0);
    /* whole seconds: maybe of a file system that counts in twos */
    assert_true(mt__cache_unsettled(coarse, (struct timespec){ 1000, 700 * ms }) > 0);
    assert_true(mt__cache_unsettled(coarse, (struct timespec){ 1001, 999 * ms }) > 0);
    assert_int_equal(mt__cache_unsettled(coarse, (struct timespec){ 1002, 200 * ms }), 0);
    assert_int_equal(mt__cache_unsettled(seconds_ago, fine), 0);
    /* after what it says the answer is 0 */
    int64_t ns = mt__cache_unsettled(fine, fine);
    assert_int_equal(mt__cache_unsettled(fine, (struct timespec){ 1000, 500 * ms + ns }), 0);
    /* the clock of another machine */
    assert_true(mt__cache_unsettled(fine, (struct timespec){ 999, 0 }) > 1500 * ms);
    assert_int_equal(mt__cache_unsettled((struct timespec){ INT64_MAX, 0 }, fine), INT64_MAX);
    assert_int_equal(mt__cache_unsettled((struct timespec){ INT64_MIN, 0 }, fine), 0);
}

static void progress_is_told_and_may_stop_the_work(void **state)
{
    mt_err err = { 0 };
    char *data = fake_records(*state, "data.jsonl", 0, 2000, 20), *path = mt_path_join(*state, "store");
    mt_store_job job = job_of(data, 2);
    int64_t seen = 0;
    job.progress = stop_early;
    job.user = &seen;
    assert_int_equal(mt_store_build(path, 1, &job, &err), MT_ESTOPPED);
    assert_true(seen > 500 && seen < 2000);
    job.max_records = 100;
    seen = 0;
    assert_ok(mt_store_build(path, 1, &job, &err));
    assert_int_equal(seen, 100);
    mt_free(data);
    mt_free(path);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(a_large_store_is_verified_where_it_is_read), IN_TEMPDIR(a_file_exchanged_within_one_tick_has_another_key),
             IN_TEMPDIR(a_large_file_that_was_exchanged_has_another_key), IN_TEMPDIR(what_other_code_has_made_is_not_used),
             cmocka_unit_test(the_code_of_samples_is_all_that_they_are_made_by),
             IN_TEMPDIR(the_number_of_the_code_depends_on_names_and_contents_alone),
             cmocka_unit_test(times_are_trusted_once_the_clock_has_moved_on),
             IN_TEMPDIR(samples_come_back_in_the_order_of_the_records), IN_TEMPDIR(large_vocabularies_take_four_bytes),
             IN_TEMPDIR(the_file_does_not_depend_on_the_number_of_threads),
             IN_TEMPDIR(bad_records_are_counted_by_reason_and_the_first_three_are_shown),
             IN_TEMPDIR(the_first_fatal_record_is_named_whoever_meets_it), IN_TEMPDIR(a_dataset_without_samples_says_so),
             IN_TEMPDIR(later_runs_map_what_the_first_one_made), IN_TEMPDIR(changed_data_or_settings_lead_to_another_key),
             IN_TEMPDIR(damaged_files_are_noticed_and_made_anew), IN_TEMPDIR(a_crash_at_any_moment_leaves_nothing_torn),
             IN_TEMPDIR(failing_files_memory_and_threads_are_clean_errors), IN_TEMPDIR(two_processes_make_it_once),
             IN_TEMPDIR(what_is_unused_longest_leaves_a_cache_that_is_full),
             IN_TEMPDIR(what_is_old_leaves_and_what_is_in_use_stays), IN_TEMPDIR(leftovers_of_a_killed_run_leave_with_their_lock),
             IN_TEMPDIR(the_folder_is_the_users_cache), IN_TEMPDIR(progress_is_told_and_may_stop_the_work))
