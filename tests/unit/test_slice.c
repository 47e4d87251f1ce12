/* Fused, regrouped and transposed tensors: what is loaded and put back is the same bytes, for every family's table. */
#include "golden.h"
#include "test.h"

#include "base/rng.h"
#include "ckpt/weights.h"

#include <stdio.h>

/* Tensors of a case that are not part of the model. */
static size_t n_foreign(const char *name)
{
    if (strncmp(name, "gemma3_vl", 9) == 0) return 1;
    if (strcmp(name, "apertus") == 0) return 4;
    bool vision = (strncmp(name, "qwen3_5", 7) == 0 || strncmp(name, "llama4", 6) == 0) && strstr(name, "_vl");
    return strcmp(name, "glm4_moe") == 0 || strcmp(name, "deepseek_v3") == 0 || vision ? 2 : 0;
}

/* Weights of one slab out of its tensor, in pieces that end anywhere, and back into another. */
static void round_trip(const mt_unit *u, int leader, const mt_st_tensor *t, unsigned char *back)
{
    const mt_layout *l = u->layout;
    size_t size = mt_dtype_bytes(t->dtype);
    for (int k = leader; k < l->n_weights; k = mt_slab_next(l, k)) {
        const mt_weight *w = &l->weights[k];
        size_t slab = (size_t)mt_weight_slab(u, w) * size;
        for (int64_t first = 0, n; first < w->n; first += n) {
            unsigned char piece[7 * 8];
            n = mt_min_i64(1 + first % 7, w->n - first);
            mt_weight_gather(w, t->data + slab, size, first, n, piece);
            mt_weight_scatter(w, back + slab, size, first, n, piece);
        }
    }
}

static void what_is_taken_apart_goes_together_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(golden_cases); i++) {
        mt_err err = { 0 };
        mt_config *c;
        mt_shards *s;
        mt_model *m;
        char dir[512], notice[256], name[MT_NAME_BYTES];
        size_t n_unused, n_tensors = 0;
        snprintf(dir, sizeof dir, "%s%s", GOLDEN_DIR, golden_cases[i]);
        assert_ok(mt_config_open(&c, dir, &err));
        assert_ok(mt_shards_open(&s, dir, &err));
        assert_ok(mt_weights_model(&m, &c, s, NULL, notice, &err));
        assert_ok(mt_weights_check(m, s, &n_unused, &err));
        for (int u = 0; u < m->n_units; u++)
            for (int k = 0; k < m->units[u].layout->n_weights; k++) {
                const mt_weight *w = &m->units[u].layout->weights[k];
                if (w->slice.first) continue;
                mt_weight_name(&m->units[u], w, name);
                const size_t slab_at = (size_t)mt_weight_slab(&m->units[u], w), slab_n = (size_t)mt_slice_slab(&w->slice);
                const mt_st_tensor *t = mt_shards_find(s, name);
                unsigned char *back = mt_malloc(t->bytes);
                memset(back, 0xA5, t->bytes);
                const size_t size = mt_dtype_bytes(t->dtype);
                round_trip(&m->units[u], k, t, back);
                if (memcmp(back + slab_at * size, t->data + slab_at * size, slab_n * size) != 0)
                    fail_msg("%s: \"%s\" came back different", golden_cases[i], name);
                mt_free(back);
                n_tensors += mt_weight_leads(&m->units[u], w);
            }
        assert_int_equal(n_tensors + n_unused, mt_shards_count(s));
        /* The vision tower's, and those of a layer that predicts a token further. */
        assert_int_equal(n_unused, n_foreign(golden_cases[i]));
        mt_model_free(m);
        mt_shards_close(s);
        mt_config_close(c);
    }
}

MT_TEST_MAIN(cmocka_unit_test(what_is_taken_apart_goes_together_again))
