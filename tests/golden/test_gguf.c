/* GGUF files of architectures beyond llama and qwen, opened as a user would: the logits are those transformers computes with the
 * model the file was made of. */
#include "golden.h"
#include "rig.h"

#include "ckpt/model_files.h"
#include "plan/search.h"

static void open_gguf(rig *r, const char *name)
{
    mt_err err = { 0 };
    char path[512], notice[256];
    mt_plan *plan;
    *r = (rig){ 0 };
    snprintf(path, sizeof path, MT_TESTS_DIR "/golden/weights/gguf_family_%s/model.gguf", name);
    assert_ok(mt_model_files_config(&r->config, path, &err));
    assert_ok(mt_shards_open(&r->shards, path, &err));
    assert_ok(mt_weights_model(&r->model, &r->config, r->shards, NULL, notice, &err));
    snprintf(path, sizeof path, MT_TESTS_DIR "/golden/weights/gguf_family_%s/tokens.json", name);
    assert_ok(mt_batch_read_json(&r->batch, path, r->config->V, &err));
    mt_job job = rig_job(r, true);
    mt_arithmetic a = rig_arithmetic(r, MT_DTYPE_F32);
    assert_ok(mt_plan_choose(&plan, r->model, &job, &a, 0, &err));
    rig_start(r, plan, 1);
}

static void logits_are_those_of_the_original(void **state)
{
    (void)state;
    static const char *const names[] = { "gemma", "gemma2", "gemma3", "phi3", "granite", "smollm3", "olmo2" };
    bool ok = true;
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        rig r;
        mt_safetensors *expected;
        char path[512];
        open_gguf(&r, names[i]);
        assert_string_equal(r.config->family->name, names[i]);
        size_t V = (size_t)r.config->V;
        float *logits = mt_calloc((size_t)r.batch.n_tokens * V, sizeof *logits);
        assert_ok(mt_engine_logits(r.engine, &r.batch, logits, &err));
        snprintf(path, sizeof path, MT_TESTS_DIR "/golden/weights/gguf_family_%s/expected.safetensors", names[i]);
        assert_ok(mt_safetensors_open(&expected, path, &err));
        for (int64_t d = 0; d < r.batch.n_docs; d++) {
            char row[32];
            snprintf(row, sizeof row, "logits.%d", (int)d);
            int32_t from = r.batch.doc_start[d], to = r.batch.doc_start[d + 1];
            ok &= golden_near(expected, row, logits + (size_t)from * V, (size_t)(to - from) * V, GOLDEN_LOGITS);
        }
        mt_safetensors_close(expected);
        mt_free(logits);
        rig_close(&r);
    }
    assert_true(ok);
}

MT_TEST_MAIN(cmocka_unit_test(logits_are_those_of_the_original))
