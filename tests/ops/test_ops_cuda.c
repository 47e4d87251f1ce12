/* Every op on the GPU against the CPU in fp32: bf16 within 1e-2 norm-wise, fp32 within 1e-4; what is promised to the bit, to the
 * bit.  Each case of each op in each dtype is a separate test. */
#include "test.h"

#include "op_cases.h"

#include <math.h>
#include <stdlib.h>

enum { SKIPPED = 77, MOST_TESTS = 1024 }; /* what ctest takes for "skipped"; cases times dtypes */

static mt_device *cpu, *gpu;

typedef struct point {
    const op_spec *spec;
    int c;
    mt_dtype t;
    char name[64];
} point;

static op_run *run(mt_device *dev, const point *p, op_how how)
{
    mt_err err = { 0 };
    how.seed = op_seed();
    how.rounded = true;
    op_run *r = op_run_create(p->spec, p->c, &how);
    assert_ok(op_execute(r, dev, true, &err));
    return r;
}

/* Bits, but for the payload of a NaN (adamw.h). */
static bool same(const op_buf *a, const op_buf *b)
{
    if (memcmp(a->result, b->result, op_bytes(a)) == 0) return true;
    if (a->t != MT_DTYPE_F32 && a->t != MT_DTYPE_BF16 && a->t != MT_DTYPE_F64) return false;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->width; j++) {
            double x = op_get(a, a->result, i, j), y = op_get(b, b->result, i, j);
            if (!(isnan(x) && isnan(y)) && (x != y || signbit(x) != signbit(y))) return false;
        }
    return true;
}

static void assert_same(const op_run *a, const op_run *b, const char *what)
{
    for (int k = 0; k < a->n_bufs; k++)
        if (op_is_result(&a->bufs[k]) && !same(&a->bufs[k], &b->bufs[k])) fail_msg("%s: %s differs", what, a->bufs[k].name);
}

static void assert_near(const op_run *got, const op_run *want, double tolerance, const char *what)
{
    for (int k = 0; k < want->n_bufs; k++) {
        const op_buf *b = &want->bufs[k];
        if (!op_is_result(b) || b->t != MT_DTYPE_F32) continue;
        double d = op_distance(&got->bufs[k], b);
        if (!(d <= tolerance)) fail_msg("%s: %s is %.3g away from the CPU, allowed %.3g", what, b->name, d, tolerance);
    }
}

static void assert_right(const point *p, const op_run *r, const op_run *truth, const char *what)
{
    const char *wrong = op_check_written(r);
    if (wrong) fail_msg("%s: %s", what, wrong);
    if (p->spec->exact)
        assert_same(r, truth, what);
    else
        assert_near(r, truth, p->t == MT_DTYPE_BF16 ? 1e-2 : 1e-4, what);
}

static void compare(const point *p, op_how how, const op_run *truth, const char *what)
{
    op_run *r = run(gpu, p, how);
    assert_right(p, r, truth, what);
    op_run_free(r);
}

/* `times` runs from the same start have the bits of the first.  The numbers are drawn once: on the host that takes longer than
 * the op. */
static void assert_repeats(const point *p, const op_run *first, int times)
{
    mt_err err = { 0 };
    op_run *again = run(gpu, p, (op_how){ .t = p->t });
    assert_ok(op_place(again, gpu, &err));
    for (int k = 0; k < times; k++) {
        assert_same(first, again, "run again");
        if (k + 1 < times) assert_ok(op_run_placed(again, true, &err));
    }
    op_unplace(again);
    op_run_free(again);
}

/* The case needs a form of the op that the GPU does not have (yet): no model that needs it gets there either. */
static bool gpu_lacks(const point *p)
{
    op_run *probe = op_run_create(p->spec, p->c, &(op_how){ .t = p->t });
    uint32_t missing = probe->traits & ~mt_ops_of(gpu)->traits;
    op_run_free(probe);
    return missing != 0;
}

static void gpu_agrees_with_cpu(void **state)
{
    const point *p = *state;
    if (gpu_lacks(p)) skip();
    op_run *truth = run(cpu, p, (op_how){ .t = p->spec->exact ? p->t : MT_DTYPE_F32 });
    op_run *first = run(gpu, p, (op_how){ .t = p->t });
    assert_right(p, first, truth, "apart");
    assert_repeats(p, first, 1);
    op_run_free(first);
    compare(p, (op_how){ .t = p->t, .in_place = true }, truth, "in place");
    compare(p, (op_how){ .t = p->t, .skew = 1 }, truth, "at odd addresses");
    compare(p, (op_how){ .t = p->t, .skew = 4 }, truth, "at half-aligned addresses");
    op_run_free(truth);
}

/* All cases of a spec in both dtypes, each repeated this many times. */
static void assert_all_right(const op_spec *spec, int n_repeats, const char *what)
{
    for (int i = 0; i < 2 * spec->n_cases; i++) {
        point p = { spec, i / 2, i % 2 ? MT_DTYPE_BF16 : MT_DTYPE_F32, "" };
        if (gpu_lacks(&p)) continue;
        op_run *truth = run(cpu, &p, (op_how){ .t = MT_DTYPE_F32 }), *first = run(gpu, &p, (op_how){ .t = p.t });
        assert_right(&p, first, truth, what);
        assert_repeats(&p, first, n_repeats);
        op_run_free(first);
        op_run_free(truth);
    }
}

static void norms_of_many_wide_rows_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_all_right(&op_tall_norm, 2, "many wide rows");
}

static void large_products_of_experts_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_all_right(&op_large_experts, 20, "large products of experts");
}

/* bf16 against the GPU's own fp32 kernels, which the small cases hold to the CPU; and again and again. */
static void assert_right_and_repeatable(const op_spec *spec, const char *what)
{
    for (int c = 0; c < spec->n_cases; c++) {
        point p = { spec, c, MT_DTYPE_BF16, "" };
        if (gpu_lacks(&p)) continue;
        op_run *truth = run(gpu, &p, (op_how){ .t = MT_DTYPE_F32 }), *first = run(gpu, &p, (op_how){ .t = MT_DTYPE_BF16 });
        assert_right(&p, first, truth, what);
        assert_repeats(&p, first, 20);
        op_run_free(first);
        op_run_free(truth);
    }
}

static void long_attention_is_right_and_repeatable(void **state)
{
    (void)state;
    assert_right_and_repeatable(&op_long_attention, "long attention");
}

static void large_products_are_right_and_repeatable(void **state)
{
    enum { H100 = 132 }; /* processors, also of an H200: the shapes are made for them */
    mt_device_info before, after;
    (void)state;
    gpu->api->info(gpu, &before);
    assert_right_and_repeatable(&op_large_linear, "large products");
    gpu->api->info(gpu, &after);
    if (after.n_processors == H100 && after.n_own == before.n_own)
        fail_msg("our own kernel made none of them; does linear_tiles.c know the tiles of this cuBLASLt?");
}

/* The last case of attention is plain: other kernels, so other bits than without, about the same numbers. */
static void plain_attention_is_another_path(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const op_spec *spec = op_specs[OP_ID_attention];
    op_run *r[2];
    for (int plain = 0; plain < 2; plain++) {
        r[plain] = op_run_create(spec, spec->n_cases - 1, &(op_how){ .t = MT_DTYPE_BF16, .seed = op_seed() });
        mt_attention *a = (mt_attention *)(void *)r[plain]->args;
        assert_int_equal(a->use.ways, 1u << MT_ATTENTION_PLAIN);
        if (!plain) a->use.ways = 1u << MT_ATTENTION_FLASH;
        assert_ok(op_execute(r[plain], gpu, true, &err));
    }
    bool differs = false;
    for (int k = 0; k < r[0]->n_bufs; k++) differs |= op_is_result(&r[0]->bufs[k]) && !same(&r[0]->bufs[k], &r[1]->bufs[k]);
    assert_true(differs);
    assert_near(r[0], r[1], 1e-2, "plain attention");
    op_run_free(r[0]);
    op_run_free(r[1]);
}

/* Products of many numbers of rows: forward, and backward with both gradients.  Kernels are chosen for few of them. */
static void kernels_are_chosen_for_rounded_rows(void **state)
{
    (void)state;
    enum { N = 256, K = 512, MOST = 4096, BYTES = MOST * K * 4 };
    mt_err err = { 0 };
    mt_stream *s;
    mt_device_info before, after;
    char *p[4];
    const mt_ops *ops = mt_ops_of(gpu);
    assert_ok(gpu->api->stream_create(gpu, &s, "test", &err));
    for (int i = 0; i < 4; i++) assert_ok(mt_device_alloc(gpu, (void **)&p[i], BYTES, "a matrix", &err));
    for (int i = 0; i < 4; i++) assert_ok(mt_fill(s, p[i], 0, BYTES, &err));
    gpu->api->info(gpu, &before);
    for (int64_t M = 1; M <= MOST; M += 13) {
        mt_linear a = { .t = MT_DTYPE_BF16,
                        .M = M,
                        .N = N,
                        .K = K,
                        .x = p[0],
                        .w = p[1],
                        .y = p[2],
                        .dy = p[2],
                        .dx = p[0],
                        .dw = (float *)(void *)p[3] };
        assert_ok(ops->linear_fwd(s, &a, &err));
        assert_ok(ops->linear_bwd(s, &a, &err));
    }
    gpu->api->info(gpu, &after);
    gpu->api->stream_free(s);
    for (int i = 0; i < 4; i++) gpu->api->free(gpu, p[i]);
    int64_t n = after.n_choices - before.n_choices;
    print_message("%d kernels chosen for %d numbers of rows\n", (int)n, MOST / 13 + 1);
    /* 1 to 16 rows, then eight sizes for each of eight doublings, of three products. */
    assert_true(n >= 3 && n <= 3 * (16 + 8 * 8));
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc < 2;
}

static bool wanted_case(const char *name, int c, int argc, char **argv)
{
    char one[64];
    snprintf(one, sizeof one, "%s:%d", name, c);
    return wanted(name, argc, argv) || wanted(one, argc, argv);
}

/* Names of tests that are not of the table. */
static const char *const others[] = { "long_attention", "large_linear", "tall_norm", "large_experts" };

/* True if an argument names something: one that does not would test nothing, and pass. */
static bool is_name(const char *arg)
{
    for (size_t i = 0; i < MT_COUNT(others); i++)
        if (strcmp(others[i], arg) == 0) return true;
    char *const one = (char *)(uintptr_t)arg;
    for (int id = 0; id < OP_COUNT; id++)
        for (int c = 0; c < op_specs[id]->n_cases; c++)
            if (wanted_case(op_specs[id]->name, c, 2, (char *[]){ NULL, one })) return true;
    return false;
}

/* Arguments, if any, name the ops to test, or single cases of them: qk_prepare, norm:4. */
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!is_name(argv[i])) {
            fprintf(stderr, "%s is not an op, nor a case of one\n", argv[i]);
            return 1;
        }
    static point points[MOST_TESTS];
    static struct CMUnitTest tests[MOST_TESTS + 8]; /* those that are not of the table, too */
    size_t n = 0;
    mt_err err = { 0 };
    if (mt_device_open(&gpu, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    if (mt_device_open(&cpu, "cpu", NULL, &err)) return 1;
    for (int id = 0; id < OP_COUNT; id++)
        for (int c = 0; c < op_specs[id]->n_cases; c++)
            for (int k = 0; k < 2 && wanted_case(op_specs[id]->name, c, argc, argv); k++, n++) {
                if (n == MOST_TESTS) {
                    fprintf(stderr, "more than %d cases: raise MOST_TESTS\n", MOST_TESTS);
                    return 1;
                }
                points[n] = (point){ op_specs[id], c, k ? MT_DTYPE_BF16 : MT_DTYPE_F32, "" };
                snprintf(points[n].name, sizeof points[n].name, "%s %d %s", op_specs[id]->name, c, k ? "bf16" : "f32");
                tests[n] = (struct CMUnitTest){ points[n].name, gpu_agrees_with_cpu, NULL, NULL, &points[n] };
            }
    if (wanted("long_attention", argc, argv))
        tests[n++] = (struct CMUnitTest){ "long attention", long_attention_is_right_and_repeatable, NULL, NULL, NULL };
    if (wanted("large_linear", argc, argv))
        tests[n++] = (struct CMUnitTest){ "large products", large_products_are_right_and_repeatable, NULL, NULL, NULL };
    if (wanted("tall_norm", argc, argv))
        tests[n++] = (struct CMUnitTest){ "many wide rows", norms_of_many_wide_rows_agree_with_the_cpu, NULL, NULL, NULL };
    if (wanted("large_experts", argc, argv))
        tests[n++] = (struct CMUnitTest){ "large experts", large_products_of_experts_agree_with_the_cpu, NULL, NULL, NULL };
    if (wanted("attention", argc, argv))
        tests[n++] = (struct CMUnitTest){ "plain attention is another path", plain_attention_is_another_path, NULL, NULL, NULL };
    if (wanted("linear", argc, argv))
        tests[n++] =
            (struct CMUnitTest){ "kernels are chosen for rounded rows", kernels_are_chosen_for_rounded_rows, NULL, NULL, NULL };
    int n_failed = _cmocka_run_group_tests("ops on the GPU", tests, n, NULL, NULL);
    mt_device_close(gpu);
    mt_device_close(cpu);
    return n_failed ? 1 : 0;
}
