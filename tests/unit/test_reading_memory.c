/* Files are mapped, and what has been read of them is let go: no plan has room for an embedding of gigabytes, or for all of a
 * unit's state.  Looks at the process's own peak (VmHWM), which Linux can set back. */
#include "tempdir.h"

#include "base/str.h"
#include "ckpt/ckpt_state.h"
#include "ckpt/safetensors_write.h"
#include "ckpt/shards.h"
#include "engine/load.h"
#include "plan/search.h"
#include "schedule/plan.h"

#include <stdio.h>
#include <string.h>

#define NOBODYS "rotary.inv_freq"
enum { WIDTH = 64, WORDS = 1 << 18 }; /* an embedding of 16M numbers */
static const size_t mib = 1 << 20;

static size_t status_bytes(const char *key)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoull(line + strlen(key), NULL, 10);
    fclose(f);
    return kib * 1024;
}

/* From here on VmHWM is that of what follows; false: this kernel cannot, or a sanitizer's own memory would be in it. */
static bool forget_peak(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#endif
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool ok = f && fputs("5", f) >= 0;
    return f && fclose(f) == 0 && ok;
}

/* Of a file that is mapped, what is in memory. */
static size_t mapped_bytes(const char *name)
{
    char line[512];
    size_t kib = 0, sum = 0;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '/')) ours = strstr(line, name) != NULL;
        if (ours && sscanf(line, "Rss: %zu", &kib) == 1) sum += kib * 1024;
        if (strncmp(line, "VmFlags", 7) == 0) ours = false;
    }
    fclose(f);
    return sum;
}

static void open_model(mt_config **c, mt_model **m)
{
    mt_err err = { 0 };
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": %d, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
             "\"intermediate_size\": 16, \"vocab_size\": %d, "
             "\"tie_word_embeddings\": true}",
             WIDTH, WORDS);
    assert_ok(mt_config_parse(c, text, strlen(text), "text", &err));
    assert_ok(mt_model_create(m, *c, NULL, &err));
}

static mt_rc read_zeros(void *user, mt_state_range r, void *dst, mt_err *err)
{
    (void)user, (void)err;
    memset(dst, 0, (size_t)r.n * (r.kind >= MT_STATE_ARRAYS ? 4 : 2));
    return MT_OK;
}

static mt_rc take(void *user, mt_state_range r, const void *src, mt_err *err)
{
    unsigned char *sum = user; /* look at every page */
    (void)err;
    for (size_t i = 0; i < (size_t)r.n * (r.kind >= MT_STATE_ARRAYS ? 4 : 2); i += 1024) *sum |= ((const unsigned char *)src)[i];
    return MT_OK;
}

/* 12 bytes a parameter are 201 MB here. */
static void a_units_state_is_let_go_while_it_is_read(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    unsigned char sum = 0;
    const mt_state_io io = { .user = &sum, .read = read_zeros, .write = take };
    if (!forget_peak()) skip();
    open_model(&c, &m);
    assert_ok(mt__ckpt_write_file(*state, m, 0, &io, &err));
    assert_true(forget_peak());
    size_t before = status_bytes("VmRSS:");
    assert_ok(mt__ckpt_load_file(*state, m, 0, &io, &err));
    size_t peak = status_bytes("VmHWM:");
    assert_int_equal(sum, 0);
    if (peak > before + 24 * mib) fail_msg("reading a unit took %zu MiB beside what it became", (peak - before) / mib);
    mt_model_free(m);
    mt_config_close(c);
}

static void write_weights(const char *dir, const mt_model *m)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    void *zeros = mt_calloc(WORDS, 2 * WIDTH);
    char *path = mt_path_join(dir, "model.safetensors");
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    /* So that what follows begins in the middle of a page. */
    assert_ok(mt_safetensors_writer_add(w, NOBODYS, MT_DTYPE_F32, 1, (const int64_t[]){ 10007 }, &err));
    for (int pass = 0; pass < 2; pass++) {
        for (int u = 0; u < m->n_units; u++)
            for (int k = 0; k < m->units[u].layout->n_weights; k++) {
                const mt_weight *t = &m->units[u].layout->weights[k];
                char name[MT_NAME_BYTES];
                mt_weight_name(&m->units[u], t, name);
                if (pass == 0)
                    assert_ok(mt_safetensors_writer_add(w, name, MT_DTYPE_BF16, t->n_dims, t->shape, &err));
                else
                    assert_ok(mt_safetensors_writer_append(w, name, zeros, (size_t)t->n * 2, &err));
            }
        if (pass == 0) assert_ok(mt_safetensors_writer_start(w, &err));
        if (pass == 0) assert_ok(mt_safetensors_writer_append(w, NOBODYS, zeros, 10007 * sizeof(float), &err));
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    mt_free(path);
    mt_free(zeros);
}

/* 2 bytes a parameter are 34 MB, and a plan's hi and lo twice that. */
static void a_tensor_is_let_go_while_it_is_loaded(void **state)
{
    mt_err err = { 0 };
    mt_config *c;
    mt_model *m;
    mt_plan *plan;
    mt_device *dev;
    mt_engine *e;
    mt_shards *shards;
    if (!forget_peak()) skip();
    open_model(&c, &m);
    write_weights(*state, m);
    const mt_job job = { .train = true, .clip = true, .step_tokens = 8, .step_docs = 1, .longest = 8 };
    const mt_arithmetic a = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16, .micro_tokens = 8, .mlp_rows = 8, .head_rows = 8 };
    assert_ok(mt_plan_choose(&plan, m, &job, &a, 0, &err));
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = 1 }, &err));
    assert_ok(mt_engine_create(&e, dev, plan, &(mt_engine_options){ .n_workers = 1 }, &err));
    assert_ok(mt_shards_open(&shards, *state, &err));
    assert_true(forget_peak());
    assert_ok(mt_engine_load(e, m, shards, &err));
    size_t peak = status_bytes("VmHWM:"), after = status_bytes("VmRSS:");
    if (peak > after + 22 * mib) fail_msg("loading took %zu MiB beside what it became", (peak - after) / mib);
    if (mapped_bytes("model.safetensors") > mib / 8)
        fail_msg("%zu KiB of the file stayed in memory", mapped_bytes("model.safetensors") / 1024);
    mt_shards_close(shards);
    mt_engine_free(e);
    mt_device_close(dev);
    mt_plan_free(plan);
    mt_model_free(m);
    mt_config_close(c);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_DIR(a_units_state_is_let_go_while_it_is_read), IN_DIR(a_tensor_is_let_go_while_it_is_loaded))
