/* Any text is a configuration that a model can be laid out for, or an error that says something. */
#include "extremes.h"
#include "harness.h"

#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_config *c = NULL;
    if (mt_config_parse(&c, (const char *)data, size, "config.json", &err)) return err.msg[0] && !c ? 0 : (abort(), 0);
    mt_model *m = NULL;
    if (c->L <= 8 && !mt_model_create(&m, c, NULL, &err)) mt_model_free(m);
    mt_config_close(c);
    return 0;
}

/* The config.json of a golden model with one to three keys, of any family, put to extremes. */
void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    static extremes e;
    mt_err err = { 0 };
    if (!e.n_docs && extremes_open(&e, MT_TESTS_DIR "/golden/models", &err)) abort();
    const mt_value *doc = FUZZ_PICK_OF(r, e.docs, e.n_docs), *changed = NULL;
    for (size_t left = 1 + fuzz_below(r, 3); left > 0; left--) {
        const mt_value *maps[EXTREMES_MAPS];
        const mt_value *map = FUZZ_PICK_OF(r, maps, extremes_maps(doc, maps, 0));
        mt_str_clear(out);
        extremes_write(out, doc, map, FUZZ_PICK_OF(r, e.keys, e.n_keys), FUZZ_PICK(r, extreme_values));
        mt_json_free(changed);
        if (mt_json_parse(&changed, out->s, out->n, "config.json", &err)) abort();
        doc = changed;
    }
    mt_json_free(changed);
}
