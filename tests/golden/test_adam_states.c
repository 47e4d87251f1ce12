/* AdamW with moments in each form: eight steps have the bits of a reference in Python (tests/golden/adamw). */
#include "golden.h"

#include "base/mem.h"
#include "base/split.h"
#include "optim/adamw.h"

enum { N_DECAY = 700, STEPS = 8 };

typedef struct reference {
    mt_adamw op;
    size_t n;
    mt_safetensors *file;
} reference;

static const mt_st_tensor *tensor(const reference *s, const char *form, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", form, what);
    const mt_st_tensor *t = mt_safetensors_find(s->file, name);
    assert_non_null(t);
    return t;
}

static void start(reference *s, mt_moments form)
{
    mt_err err = { 0 };
    assert_ok(mt_safetensors_open(&s->file, MT_TESTS_DIR "/golden/adamw/states.safetensors", &err));
    const mt_st_tensor *w0 = tensor(s, "", "w0");
    size_t n = s->n = w0->n;
    s->op = (mt_adamw){ .t = MT_DTYPE_F32,
                        .moments = form,
                        .n = (int64_t)n,
                        .n_decay = N_DECAY,
                        .hi = mt_calloc(n, 2),
                        .lo = mt_calloc(n, 2),
                        .m = mt_calloc(1, mt_moments_bytes(form, n)),
                        .v = mt_calloc(1, mt_moments_bytes(form, n)) };
    for (size_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, w0->data + 4 * i, 4);
        mt_split(w, &s->op.hi[i], &s->op.lo[i]);
    }
}

static void eight_steps(reference *s)
{
    const mt_st_tensor *g = tensor(s, "", "g"), *keys = tensor(s, "", "keys");
    float *grad = mt_calloc(s->n, sizeof *grad);
    for (int t = 0; t < STEPS; t++) {
        mt_update_step step = {
            .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 0.37, .t = t + 1
        };
        memcpy(grad, g->data + (size_t)t * s->n * 4, s->n * 4);
        memcpy(&s->op.key, keys->data + 8 * t, 8);
        s->op.g = grad;
        s->op.coef = mt_adamw_coef_of(&step);
        step.weight_decay = 0;
        s->op.coef_no_decay = mt_adamw_coef_of(&step);
        assert_int_equal(mt_adamw_piece(&s->op, 0, s->op.n), 0);
    }
    mt_free(grad);
}

static size_t bytes_that_differ(const reference *s, const char *what, const void *ours, size_t bytes)
{
    const mt_st_tensor *t = tensor(s, mt_moments_name(s->op.moments), what);
    assert_int_equal(t->n * mt_dtype_bytes(t->dtype), bytes);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((const uint8_t *)ours)[i] != ((const uint8_t *)t->data)[i];
    return n;
}

static void finish(reference *s)
{
    mt_free(s->op.hi), mt_free(s->op.lo), mt_free(s->op.m), mt_free(s->op.v);
    mt_safetensors_close(s->file);
}

static void check(mt_moments form)
{
    reference s;
    size_t bytes;
    start(&s, form);
    eight_steps(&s);
    bytes = mt_moments_bytes(form, s.n);
    assert_int_equal(bytes_that_differ(&s, ".hi", s.op.hi, 2 * s.n), 0);
    assert_int_equal(bytes_that_differ(&s, ".lo", s.op.lo, 2 * s.n), 0);
    assert_int_equal(bytes_that_differ(&s, ".m", s.op.m, bytes), 0);
    assert_int_equal(bytes_that_differ(&s, ".v", s.op.v, bytes), 0);
    finish(&s);
}

static void float32_moments_have_the_references_bits(void **state) { (void)state, check(MT_MOMENTS_F32); }
static void bf16_moments_have_the_references_bits(void **state) { (void)state, check(MT_MOMENTS_BF16); }
static void eight_bit_moments_have_the_references_bits(void **state) { (void)state, check(MT_MOMENTS_8BIT); }

/* The comparison can fail: other random bits are other moments. */
static void another_key_is_noticed(void **state)
{
    (void)state;
    for (mt_moments form = MT_MOMENTS_BF16; form < MT_MOMENTS_FORMS; form++) {
        reference s;
        start(&s, form);
        eight_steps(&s);
        float *zero = mt_calloc(s.n, sizeof *zero);
        s.op.g = zero;
        s.op.key ^= 1;
        assert_int_equal(mt_adamw_piece(&s.op, 0, s.op.n), 0);
        assert_true(bytes_that_differ(&s, ".m", s.op.m, mt_moments_bytes(form, s.n)) > 100);
        mt_free(zero);
        finish(&s);
    }
}

MT_TEST_MAIN(cmocka_unit_test(float32_moments_have_the_references_bits), cmocka_unit_test(bf16_moments_have_the_references_bits),
             cmocka_unit_test(eight_bit_moments_have_the_references_bits), cmocka_unit_test(another_key_is_noticed))
