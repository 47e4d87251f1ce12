/* fuzz_state.c - the files that a run leaves for the run that resumes it.  The first line of an input says which: state,
 * checksums, files, plan or unit; the rest is the file.
 *
 * What is accepted of a state is written such that it reads back equal: a run that resumed from it can be resumed again.
 * A list of checksums passes only if it describes the files.  A list of files knows what it was read from.  A unit's state is
 * taken whole, in place, or refused with a message. */
#define _GNU_SOURCE
#include "ckpt/ckpt_state.h"
#include "ckpt/manifest.h"
#include "run/run_files.h"
#include "run/train_internal.h"
#include "folder.h"
#include "harness.h"

#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- state.json ------------------------------------------------------------------------------------ */

static bool same_progress(const progress *a, const progress *b)
{
    return a->step == b->step && a->updates == b->updates && a->n_tokens == b->n_tokens && a->n_trained == b->n_trained &&
           a->n_skipped == b->n_skipped && a->bad_in_row == b->bad_in_row && a->window_loss == b->window_loss &&
           a->window_steps == b->window_steps && a->unfinished == b->unfinished;
}

static bool same_state(const saved_state *a, const saved_state *b)
{
    return same_progress(&a->at, &b->at) && a->data == b->data && a->model == b->model && a->metrics_bytes == b->metrics_bytes &&
           mt_arithmetic_hash(&a->arithmetic) == mt_arithmetic_hash(&b->arithmetic);
}

static void check_state(fuzz_part text)
{
    mt_err err = { 0 };
    struct tm now = { .tm_year = 126, .tm_mday = 1 }, then = { 0 };
    saved_state s = { 0 }, again = { 0 };
    if (mt__train_state_parse(text.s, text.n, &s, &now, &err)) {
        expect(*err.msg);
        return;
    }
    static mt_settings settings;
    static mt_plan plan;
    static mt_trainer t; /* only what the text is made of */
    mt_str written = { 0 };
    mt_schedule_config schedule = mt_schedule_defaults();
    schedule.lr = 1;
    schedule.n_steps = 10;
    expect(mt_schedule_init(&t.course.schedule, &schedule, &err) == MT_OK);
    plan.arithmetic = s.arithmetic;
    t.s = &settings;
    t.exec.plan = &plan;
    t.at = s.at;
    t.data.now = now;
    t.data.info = (mt_source_info){ .steps_per_epoch = 7, .fingerprint = s.data, .shows_date = true };
    t.net.fingerprint = s.model;
    t.metrics.bytes = s.metrics_bytes;
    expect(mt__train_state_text(&t, &written, &err) == MT_OK);
    expect(mt__train_state_parse(written.s, written.n, &again, &then, &err) == MT_OK);
    expect(same_state(&s, &again));
    expect(then.tm_year == now.tm_year && then.tm_mon == now.tm_mon && then.tm_mday == now.tm_mday &&
           then.tm_hour == now.tm_hour);
    mt_str_free(&written);
}

/* -- lists ----------------------------------------------------------------------------------------- */

/* The directory holds a, b/c, and a link out of it. */
static void check_checksums(fuzz_part text)
{
    mt_err err = { 0 };
    folder_put("checkpoint/checksums.json", text);
    mt_rc rc = mt_manifest_verify(folder_at("checkpoint").s, &err);
    expect(!rc || *err.msg);
    if (!rc) expect(!part_has(text.s, text.n, "\"link\":"));
}

static void check_files(fuzz_part text)
{
    mt_err err = { 0 };
    mt_run_files f;
    folder_path dir = folder_at("files");
    char *foreign = NULL;
    folder_put("files/.files", text);
    mt_rc rc = mt_run_files_read(&f, dir.s, &err);
    expect(!rc || *err.msg);
    if (rc) return;
    for (size_t i = 0; i < f.n; i++) expect(mt_run_files_has(&f, f.paths[i]));
    expect(mt_run_files_foreign(&foreign, &f, dir.s, "a", "a", &err) == MT_OK);
    expect(!foreign == mt_run_files_has(&f, "a"));
    mt_free(foreign);
    mt_run_files_free(&f);
    expect(mt_run_files_add(dir.s, "a", &err) == MT_OK && mt_run_files_read(&f, dir.s, &err) == MT_OK);
    expect(mt_run_files_has(&f, "a"));
    mt_run_files_free(&f);
}

static void check_plan(fuzz_part text)
{
    mt_err err = { 0 };
    static mt_trainer t;
    folder_path dir = folder_at("files");
    t.dir.path = dir.s;
    t.resume = (resume_point){ 0 };
    folder_put("files/plan.json", text);
    expect(mt__train_read_earlier(&t, &err) == MT_OK || *err.msg);
    mt__train_forget_earlier(&t);
}

/* -- a unit ---------------------------------------------------------------------------------------- */

static const char tiny[] = "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,"
                           "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"num_key_value_heads\":1,"
                           "\"vocab_size\":16,\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
                           "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"}";

static mt_rc take_state(void *user, mt_state_range r, const void *src, mt_err *err)
{
    const mt_model *m = user;
    unsigned sum = 0;
    (void)err;
    expect(r.first >= 0 && r.n >= 0 && r.first + r.n <= m->units[r.unit].layout->n_elems);
    for (size_t i = 0; i < (size_t)r.n * (r.kind >= MT_STATE_ARRAYS ? 4 : 2); i++) sum += ((const uint8_t *)src)[i];
    return sum == 0xffffffff ? MT_EIO : MT_OK; /* never; keeps the reads */
}

static void check_unit(fuzz_part text)
{
    static mt_config *config;
    static mt_model *model;
    mt_err err = { 0 };
    if (!config) expect(mt_config_parse(&config, tiny, sizeof tiny - 1, "config.json", &err) == MT_OK);
    if (!model) expect(mt_model_create(&model, config, NULL, &err) == MT_OK);
    folder_put("unit-001.safetensors", text);
    mt_state_io io = { .user = model, .write = take_state };
    mt_rc rc = mt__ckpt_load_file(folder_root, model, 1, &io, &err);
    expect(!rc || *err.msg);
}

/* -- all ------------------------------------------------------------------------------------------- */

static void fill_folder(void)
{
    mkdir(folder_at("checkpoint").s, 0777);
    mkdir(folder_at("checkpoint/b").s, 0777);
    mkdir(folder_at("files").s, 0777);
    folder_put_text("secret", "abc");
    folder_put_text("checkpoint/a", "abc");
    folder_put_text("checkpoint/b/c", "");
    expect(symlink("../secret", folder_at("checkpoint/link").s) == 0);
    folder_put_text("files/a", "abc");
}

static void hush(void *user, mt_log_level level, const char *text) { (void)user, (void)level, (void)text; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        const char *name;
        void (*check)(fuzz_part text);
    } kinds[] = { { "state\n", check_state },
                  { "checksums\n", check_checksums },
                  { "files\n", check_files },
                  { "plan\n", check_plan },
                  { "unit\n", check_unit } };
    if (folder_make()) fill_folder();
    mt_log_set_sink(hush, NULL);
    for (size_t i = 0; i < MT_COUNT(kinds); i++) {
        size_t n = strlen(kinds[i].name);
        if (size >= n && memcmp(data, kinds[i].name, n) == 0) kinds[i].check((fuzz_part){ (const char *)data + n, size - n });
    }
    return 0;
}
