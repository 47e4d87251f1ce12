/* The ops of gated delta nets, on the CPU and, built again for it, on a GPU: documents packed into one call give the bits of one
 * call for each; rows that continue sequences give what the whole sequence gives; and the rule is the recurrence in double
 * precision, and its gradients are that one's differences, from decays that erase the state at once to decays that keep it. */
#include "test.h"

#include "base/rng.h"
#include "device/device.h"
#include "ops/delta_rule.h"

#include <math.h>
#include <stdlib.h>

#ifndef MT_TEST_ON
#define MT_TEST_ON "cpu"
#endif

enum { SKIPPED = 77, N_DOCS = 7, N = 1 + 63 + 64 + 65 + 200 + 2 + 7, SLOTS = 3 };

static const int32_t starts[N_DOCS + 1] = { 0, 1, 64, 128, 193, 393, 395, N };

static mt_device *dev;
static mt_stream *stream;
static mt_event *done;

typedef struct shape {
    int64_t H, K, Dk, Dv;
    double log_decay; /* mean of A_log */
} shape;

/* One, two and three value heads for a key head.  A GPU has fast kernels for all widths here but 5 and 7, 12 and 10. */
static const shape shapes[] = { { 2, 1, 24, 16, -3 }, { 4, 2, 128, 128, -3 }, { 3, 3, 5, 7, -2 },
                                { 2, 2, 64, 64, 1 },  { 6, 2, 40, 24, -3 },   { 3, 1, 12, 10, -1 } };
static const mt_dtype both[] = { MT_DTYPE_F32, MT_DTYPE_BF16 };

/* -- device memory --------------------------------------------------------------------------------- */

enum { MOST_ARRAYS = 64 };
static void *arrays[MOST_ARRAYS];
static int n_arrays;

static void *device_array(size_t bytes)
{
    mt_err err = { 0 };
    assert_true(n_arrays < MOST_ARRAYS);
    assert_ok(mt_device_alloc(dev, &arrays[n_arrays], bytes + 16, "an array", &err));
    assert_ok(mt_fill(stream, arrays[n_arrays], 0, bytes, &err));
    return arrays[n_arrays++];
}

static void wait_idle(void)
{
    mt_err err = { 0 };
    assert_ok(mt_record(stream, done, &err));
    assert_ok(mt_sync(done, &err));
}

static void *given(const void *host, size_t bytes)
{
    mt_err err = { 0 };
    void *p = device_array(bytes);
    assert_ok(mt_copy(stream, p, host, bytes, MT_COPY_IN, &err));
    wait_idle();
    return p;
}

static void *fetched(const void *p, size_t bytes)
{
    mt_err err = { 0 };
    void *host = mt_calloc(1, bytes + 1);
    assert_ok(mt_copy(stream, host, p, bytes, MT_COPY_OUT, &err));
    wait_idle();
    return host;
}

static void free_arrays(void)
{
    while (n_arrays) dev->api->free(dev, arrays[--n_arrays]);
}

/* Normal numbers around a mean; the stream tells arrays apart. */
static void *numbers(mt_dtype t, int64_t n, uint64_t of, double mean)
{
    char *host = mt_calloc((size_t)n, mt_dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)mean + mt_rng_normal(12, of, (uint64_t)i);
        mt_from_f32(host + (size_t)i * mt_dtype_bytes(t), t, &x, 1);
    }
    void *p = given(host, (size_t)n * mt_dtype_bytes(t));
    mt_free(host);
    return p;
}

static void *past(const void *p, mt_dtype t, int64_t n) { return (char *)(uintptr_t)p + n * (int64_t)mt_dtype_bytes(t); }

static void assert_same(const void *a, const void *b, mt_dtype t, int64_t n, const char *what)
{
    size_t bytes = (size_t)n * mt_dtype_bytes(t);
    void *x = fetched(a, bytes), *y = fetched(b, bytes);
    if (memcmp(x, y, bytes)) fail_msg("%s differs, %s", what, mt_dtype_name(t));
    mt_free(x), mt_free(y);
}

/* -- the rule -------------------------------------------------------------------------------------- */

static mt_delta_rule inputs_of(const shape *s, mt_dtype t)
{
    return (mt_delta_rule){ .t = t,
                            .N = N,
                            .H = s->H,
                            .K = s->K,
                            .Dk = s->Dk,
                            .Dv = s->Dv,
                            .ldq = s->K * s->Dk,
                            .ldk = s->K * s->Dk,
                            .ldv = s->H * s->Dv,
                            .ldo = s->H * s->Dv,
                            .ld_ab = s->H,
                            .ld_d = s->H * s->Dv + s->K * s->Dk,
                            .ld_dab = s->H,
                            .n_docs = N_DOCS,
                            .doc_start = given(starts, sizeof starts),
                            .q = numbers(t, N * s->K * s->Dk, 1, 0),
                            .k = numbers(t, N * s->K * s->Dk, 2, 0),
                            .v = numbers(t, N * s->H * s->Dv, 3, 0),
                            .a = numbers(t, N * s->H, 4, 0),
                            .b = numbers(t, N * s->H, 5, 0),
                            .A_log = numbers(MT_DTYPE_F32, s->H, 6, s->log_decay),
                            .dt_bias = numbers(MT_DTYPE_F32, s->H, 7, 0),
                            .d_o = numbers(t, N * s->H * s->Dv, 8, 0) };
}

/* Its own results. */
static mt_delta_rule with_results(mt_delta_rule a)
{
    size_t e = mt_dtype_bytes(a.t);
    a.o = device_array((size_t)(N * a.ldo) * e);
    a.dq = device_array((size_t)(N * a.ld_d) * e);
    a.dk = device_array((size_t)(N * a.ld_d) * e);
    a.dv = device_array((size_t)(N * a.ld_d) * e);
    a.da = device_array((size_t)(N * a.ld_dab) * e);
    a.db = device_array((size_t)(N * a.ld_dab) * e);
    a.dA_log = device_array((size_t)a.H * 4);
    a.ddt_bias = device_array((size_t)a.H * 4);
    a.scratch = device_array(mt_delta_rule_scratch(&a));
    return a;
}

/* Rows [from, from + n) as one document. */
static mt_delta_rule document(mt_delta_rule a, int64_t from, int32_t n)
{
    int32_t alone[2] = { 0, n };
    a.N = n;
    a.n_docs = 1;
    a.doc_start = given(alone, sizeof alone);
    a.q = past(a.q, a.t, from * a.ldq), a.k = past(a.k, a.t, from * a.ldk), a.v = past(a.v, a.t, from * a.ldv);
    a.a = past(a.a, a.t, from * a.ld_ab), a.b = past(a.b, a.t, from * a.ld_ab);
    a.o = past(a.o, a.t, from * a.ldo), a.d_o = past(a.d_o, a.t, from * a.ldo);
    a.dq = past(a.dq, a.t, from * a.ld_d), a.dk = past(a.dk, a.t, from * a.ld_d), a.dv = past(a.dv, a.t, from * a.ld_d);
    a.da = past(a.da, a.t, from * a.ld_dab), a.db = past(a.db, a.t, from * a.ld_dab);
    return a;
}

static void both_ways(const mt_delta_rule *a)
{
    mt_err err = { 0 };
    assert_ok(mt_ops_of(dev)->delta_rule_fwd(stream, a, &err));
    assert_ok(mt_ops_of(dev)->delta_rule_bwd(stream, a, &err));
}

static void packed_documents_have_the_bits_of_separate_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * MT_COUNT(shapes); i++) {
        mt_dtype t = both[i % 2];
        mt_delta_rule in = inputs_of(&shapes[i / 2], t), packed = with_results(in), apart = with_results(in);
        both_ways(&packed);
        for (int d = 0; d < N_DOCS; d++) {
            mt_delta_rule one = document(apart, starts[d], starts[d + 1] - starts[d]);
            both_ways(&one);
        }
        assert_same(packed.o, apart.o, t, N * in.ldo, "o");
        assert_same(packed.dq, apart.dq, t, N * in.ld_d, "dq");
        assert_same(packed.dk, apart.dk, t, N * in.ld_d, "dk");
        assert_same(packed.dv, apart.dv, t, N * in.ld_d, "dv");
        assert_same(packed.da, apart.da, t, N * in.ld_dab, "da");
        assert_same(packed.db, apart.db, t, N * in.ld_dab, "db");
        free_arrays();
    }
}

/* A GPU takes as many heads at a time as the scratch allows. */
static void less_scratch_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * MT_COUNT(shapes); i++) {
        mt_dtype t = both[i % 2];
        mt_delta_rule in = inputs_of(&shapes[i / 2], t), all = with_results(in), few = with_results(in);
        few.scratch_bytes = 1; /* as few heads as it can */
        both_ways(&all);
        both_ways(&few);
        assert_same(all.o, few.o, t, N * in.ldo, "o");
        assert_same(all.dq, few.dq, t, N * in.ld_d, "dq");
        assert_same(all.dk, few.dk, t, N * in.ld_d, "dk");
        assert_same(all.dv, few.dv, t, N * in.ld_d, "dv");
        assert_same(all.da, few.da, t, N * in.ld_dab, "da");
        assert_same(all.db, few.db, t, N * in.ld_dab, "db");
        free_arrays();
    }
}

/* A run has scratch for its largest micro-batch, and smaller ones use it too: those that could take more heads at a time may not
 * take more scratch. */
static void a_small_call_fits_in_the_scratch_of_a_large_one(void **state)
{
    static const struct {
        int64_t H, K, Dk, Dv;
    } nets[] = { { 32, 16, 128, 128 }, { 48, 16, 128, 128 }, { 64, 16, 128, 128 }, { 16, 16, 128, 128 }, { 12, 4, 96, 200 } };
    (void)state;
    for (size_t i = 0; i < 2 * MT_COUNT(nets); i++)
        for (int64_t large = 1024; large <= 32768; large += 512) {
            const mt_delta_rule most = { .t = both[i % 2],
                                         .H = nets[i / 2].H,
                                         .K = nets[i / 2].K,
                                         .Dk = nets[i / 2].Dk,
                                         .Dv = nets[i / 2].Dv,
                                         .N = large,
                                         .n_docs = 64 };
            for (int64_t rows = 1; rows <= large; rows += 511) {
                mt_delta_rule a = most;
                a.N = rows;
                a.n_docs = 1 + rows % 64;
                a.scratch_bytes = mt_delta_rule_scratch(&most);
                for (int fast = 0; fast <= mt__delta_is_fast(&a); fast++)
                    if (mt__delta_layout(&a, fast).bytes > a.scratch_bytes)
                        fail_msg("%d heads, %d rows: %zu bytes in the %zu of %d rows", (int)a.H, (int)rows,
                                 mt__delta_layout(&a, fast).bytes, a.scratch_bytes, (int)large);
            }
        }
}

/* sqrt(sum (x - y)^2 / sum y^2) */
static double distance(const void *x, mt_dtype t, const double *y, int64_t n)
{
    char *host = fetched(x, (size_t)n * mt_dtype_bytes(t));
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        float f;
        mt_to_f32(&f, host + (size_t)i * mt_dtype_bytes(t), t, 1);
        off += ((double)f - y[i]) * ((double)f - y[i]);
        size += y[i] * y[i];
    }
    mt_free(host);
    return sqrt(off / size);
}

static double *widened(const void *p, mt_dtype t, int64_t n)
{
    char *host = fetched(p, (size_t)n * mt_dtype_bytes(t));
    double *wide = mt_calloc((size_t)n, sizeof *wide);
    for (int64_t i = 0; i < n; i++) {
        float f;
        mt_to_f32(&f, host + (size_t)i * mt_dtype_bytes(t), t, 1);
        wide[i] = f;
    }
    mt_free(host);
    return wide;
}

static void norm_rows(double *x, int64_t rows, int64_t width, double scale)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < width; j++) sum += x[i * width + j] * x[i * width + j];
        for (int64_t j = 0; j < width; j++) x[i * width + j] *= scale / sqrt(sum + 1e-6);
    }
}

typedef struct wide {
    double *q, *k, *v, *a, *b, *A_log, *dt_bias, *o;
} wide;

static void recur(const mt_delta_rule *a, const wide *w, int64_t h, int64_t from, int64_t to)
{
    int64_t Dk = a->Dk, Dv = a->Dv, key = h / (a->H / a->K);
    double *S = mt_calloc((size_t)(Dk * Dv), sizeof *S);
    for (int64_t t = from; t < to; t++) {
        const double *q = w->q + (t * a->K + key) * Dk, *k = w->k + (t * a->K + key) * Dk, *v = w->v + (t * a->H + h) * Dv;
        double decay = exp(-exp(w->A_log[h]) * log1p(exp(w->a[t * a->H + h] + w->dt_bias[h])));
        double beta = 1 / (1 + exp(-w->b[t * a->H + h]));
        for (int64_t j = 0; j < Dv; j++) {
            double seen = 0, o = 0;
            for (int64_t i = 0; i < Dk; i++) seen += (S[i * Dv + j] *= decay) * k[i];
            for (int64_t i = 0; i < Dk; i++) o += (S[i * Dv + j] += k[i] * beta * (v[j] - seen)) * q[i];
            w->o[(t * a->H + h) * Dv + j] = o;
        }
    }
    mt_free(S);
}

static wide inputs_widened(const mt_delta_rule *a)
{
    return (wide){ widened(a->q, a->t, N * a->ldq),         widened(a->k, a->t, N * a->ldk),
                   widened(a->v, a->t, N * a->ldv),         widened(a->a, a->t, N * a->H),
                   widened(a->b, a->t, N * a->H),           widened(a->A_log, MT_DTYPE_F32, a->H),
                   widened(a->dt_bias, MT_DTYPE_F32, a->H), mt_calloc((size_t)(N * a->ldo), sizeof(double)) };
}

static wide recurrence(const mt_delta_rule *a, wide w)
{
    norm_rows(w.q, N * a->K, a->Dk, 1 / sqrt((double)a->Dk));
    norm_rows(w.k, N * a->K, a->Dk, 1);
    for (int64_t d = 0; d < N_DOCS; d++)
        for (int64_t h = 0; h < a->H; h++) recur(a, &w, h, starts[d], starts[d + 1]);
    return w;
}

static void free_wide(wide *w)
{
    mt_free(w->q), mt_free(w->k), mt_free(w->v), mt_free(w->a), mt_free(w->b), mt_free(w->A_log), mt_free(w->dt_bias),
        mt_free(w->o);
}

/* softplus of a normal number is about 0.8: decays of about -60, -7, -1, -0.04, -3e-4 and -1e-6 a row. */
static const double log_decays[] = { 4.3, 2, 0, -3, -8, -13.5 };

static void the_rule_is_the_recurrence_at_every_decay(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * MT_COUNT(log_decays); i++)
        for (size_t k = 0; k < MT_COUNT(shapes); k++) {
            mt_err err = { 0 };
            shape s = shapes[k];
            if (!test_tries(i * MT_COUNT(shapes) + k, 2 * MT_COUNT(log_decays) * MT_COUNT(shapes))) continue;
            s.log_decay = log_decays[i / 2];
            mt_delta_rule a = with_results(inputs_of(&s, both[i % 2]));
            assert_ok(mt_ops_of(dev)->delta_rule_fwd(stream, &a, &err));
            wide w = recurrence(&a, inputs_widened(&a));
            double d = distance(a.o, a.t, w.o, N * a.ldo), most = a.t == MT_DTYPE_F32 ? 2e-6 : 1e-2;
            if (!(d <= most))
                fail_msg("A_log about %g, %s: o is %g away from the recurrence", s.log_decay, mt_dtype_name(a.t), d);
            free_wide(&w);
            free_arrays();
        }
}

/* One of the rule's inputs, and where backward puts its gradient. */
typedef struct input {
    const char *name;
    double *(*of)(const wide *w);
    const void *gradient;
    mt_dtype t;
    int64_t rows, width, ld;
} input;
static double *q_of(const wide *w) { return w->q; }
static double *k_of(const wide *w) { return w->k; }
static double *v_of(const wide *w) { return w->v; }
static double *a_of(const wide *w) { return w->a; }
static double *b_of(const wide *w) { return w->b; }
static double *A_log_of(const wide *w) { return w->A_log; }
static double *dt_bias_of(const wide *w) { return w->dt_bias; }

static double step_along(const input *x, int64_t i) { return (double)mt_rng_normal(31, (uint64_t)x->name[0], (uint64_t)i); }

/* <o, d_o> after a step of h along x's direction, in double precision. */
static double product_after(const mt_delta_rule *a, const input *x, double h)
{
    wide w = inputs_widened(a);
    double *d_o = widened(a->d_o, a->t, N * a->ldo), sum = 0;
    for (int64_t i = 0; i < x->rows * x->width; i++) x->of(&w)[i] += h * step_along(x, i);
    w = recurrence(a, w);
    for (int64_t i = 0; i < N * a->ldo; i++) sum += w.o[i] * d_o[i];
    mt_free(d_o);
    free_wide(&w);
    return sum;
}

/* The gradient times the direction, against a central difference in double precision; as a share of the gradient's size, or of
 * what one row of 1 would have, where next to nothing comes through. */
static void check_gradient(const mt_delta_rule *a, const input *x, double log_decay)
{
    double *g = widened(x->gradient, x->t, x->rows * x->ld), along = 0, size = 1;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t i = 0; i < x->width; i++) {
            along += g[r * x->ld + i] * step_along(x, r * x->width + i);
            size += g[r * x->ld + i] * g[r * x->ld + i];
        }
    mt_free(g);
    const double h = 1e-5, expected = (product_after(a, x, h) - product_after(a, x, -h)) / (2 * h);
    const double off = fabs(along - expected) / sqrt(size), most = a->t == MT_DTYPE_F32 ? 1e-4 : 5e-2;
    if (!(off <= most))
        fail_msg("A_log about %g, %s: d%s is %g off (%g, expected %g)", log_decay, mt_dtype_name(a->t), x->name, off, along,
                 expected);
}

static void its_gradients_are_central_differences_at_every_decay(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * MT_COUNT(log_decays); i++)
        for (size_t k = 0; k < MT_COUNT(shapes); k += 2) { /* of the fast kernels, and of the plain ones */
            shape s = shapes[k];
            s.log_decay = log_decays[i / 2];
            const mt_delta_rule a = with_results(inputs_of(&s, both[i % 2]));
            both_ways(&a);
            const input inputs[] = {
                { "q", q_of, a.dq, a.t, N, a.K * a.Dk, a.ld_d },
                { "k", k_of, a.dk, a.t, N, a.K * a.Dk, a.ld_d },
                { "v", v_of, a.dv, a.t, N, a.H * a.Dv, a.ld_d },
                { "a", a_of, a.da, a.t, N, a.H, a.ld_dab },
                { "b", b_of, a.db, a.t, N, a.H, a.ld_dab },
                { "A_log", A_log_of, a.dA_log, MT_DTYPE_F32, 1, a.H, a.H },
                { "dt_bias", dt_bias_of, a.ddt_bias, MT_DTYPE_F32, 1, a.H, a.H },
            };
            for (size_t x = 0; x < MT_COUNT(inputs); x++) check_gradient(&a, &inputs[x], s.log_decay);
            free_arrays();
        }
}

/* -- rows that continue sequences ------------------------------------------------------------------ */

/* One pass over three of the documents, `step` rows of each at most; rows done before come first. */
typedef struct pass {
    int64_t n;
    int32_t starts[SLOTS + 1], slot[SLOTS], from[SLOTS], pos[N];
} pass;

static const int32_t continued[SLOTS] = { 1, 4, 6 }; /* 63, 200 and 7 rows */

static pass next_pass(int32_t *at, int32_t step)
{
    pass p = { 0 };
    for (int i = 0; i < SLOTS; i++) {
        int32_t d = continued[i], left = starts[d + 1] - starts[d] - at[i], take = left < step + i ? left : step + i;
        if (take <= 0) continue;
        for (int32_t r = 0; r < take; r++) p.pos[p.starts[p.n] + r] = at[i] + r;
        p.starts[p.n + 1] = p.starts[p.n] + take;
        p.slot[p.n] = SLOTS - 1 - i;
        p.from[p.n++] = starts[d] + at[i];
        at[i] += take;
    }
    return p;
}

/* The pass's rows of an array of N rows, side by side; or back to where they were. */
static void *gathered(const pass *p, const void *x, mt_dtype t, int64_t ld)
{
    mt_err err = { 0 };
    char *y = device_array((size_t)(p->starts[p->n] * ld) * mt_dtype_bytes(t));
    for (int64_t i = 0; i < p->n; i++)
        assert_ok(mt_copy(stream, past(y, t, p->starts[i] * ld), past(x, t, p->from[i] * ld),
                          (size_t)((p->starts[i + 1] - p->starts[i]) * ld) * mt_dtype_bytes(t), MT_COPY_ON_DEVICE, &err));
    return y;
}

static void scatter(const pass *p, void *x, const void *y, mt_dtype t, int64_t ld)
{
    mt_err err = { 0 };
    for (int64_t i = 0; i < p->n; i++)
        assert_ok(mt_copy(stream, past(x, t, p->from[i] * ld), past(y, t, p->starts[i] * ld),
                          (size_t)((p->starts[i + 1] - p->starts[i]) * ld) * mt_dtype_bytes(t), MT_COPY_ON_DEVICE, &err));
}

/* A copy of an array of N rows in which the rows of the documents that are continued are NaN. */
static void *without_continued(const void *x, mt_dtype t, int64_t ld)
{
    mt_err err = { 0 };
    size_t row = (size_t)ld * mt_dtype_bytes(t);
    void *y = device_array(N * row);
    assert_ok(mt_copy(stream, y, x, N * row, MT_COPY_ON_DEVICE, &err));
    for (int i = 0; i < SLOTS; i++) {
        int32_t from = starts[continued[i]], to = starts[continued[i] + 1];
        assert_ok(mt_fill(stream, past(y, t, from * ld), 0xff, (size_t)(to - from) * row, &err));
    }
    return y;
}

static void rule_in_passes(const mt_delta_rule *whole, void *o, int32_t step)
{
    int32_t at[SLOTS] = { 0 };
    mt_err err = { 0 };
    float *kept =
        numbers(MT_DTYPE_F32, SLOTS * whole->H * whole->Dk * whole->Dv, 20, 0); /* what was there before does not matter */
    int had = n_arrays;
    for (pass p = next_pass(at, step); p.n; p = next_pass(at, step)) {
        mt_cache_delta c = { *whole, given(p.pos, sizeof p.pos), given(p.slot, sizeof p.slot), kept };
        c.d.N = p.starts[p.n];
        c.d.n_docs = p.n;
        c.d.doc_start = given(p.starts, sizeof p.starts);
        c.d.q = gathered(&p, whole->q, whole->t, whole->ldq), c.d.k = gathered(&p, whole->k, whole->t, whole->ldk);
        c.d.v = gathered(&p, whole->v, whole->t, whole->ldv);
        c.d.a = gathered(&p, whole->a, whole->t, whole->ld_ab), c.d.b = gathered(&p, whole->b, whole->t, whole->ld_ab);
        c.d.o = device_array((size_t)(c.d.N * whole->ldo) * mt_dtype_bytes(whole->t));
        assert_ok(mt_ops_of(dev)->cache_delta(stream, &c, &err));
        scatter(&p, o, c.d.o, whole->t, whole->ldo);
        wait_idle();
        while (n_arrays > had) dev->api->free(dev, arrays[--n_arrays]);
    }
}

/* On the CPU the arithmetic is the same.  A GPU computes whole documents in chunks and single rows by the recurrence. */
static void rule_in_steps_equals_the_whole(void **state)
{
    (void)state;
    const int32_t steps[] = { 1, 5, 70 };
    for (size_t i = 0; i < 2 * MT_COUNT(shapes); i++) {
        mt_err err = { 0 };
        mt_dtype t = both[i % 2];
        mt_delta_rule whole = with_results(inputs_of(&shapes[i / 2], t));
        assert_ok(mt_ops_of(dev)->delta_rule_fwd(stream, &whole, &err));
        double *want = widened(whole.o, t, N * whole.ldo), most = t == MT_DTYPE_F32 ? 2e-6 : 1e-2;
        for (size_t k = 0; k < MT_COUNT(steps); k++) {
            int had = n_arrays;
            void *pieced = without_continued(whole.o, t, whole.ldo);
            rule_in_passes(&whole, pieced, steps[k]);
            double d = distance(pieced, t, want, N * whole.ldo);
            if (!(d <= (strcmp(MT_TEST_ON, "cpu") == 0 ? 0.0 : most))) fail_msg("steps of %d rows: o is %g away", steps[k], d);
            while (n_arrays > had) dev->api->free(dev, arrays[--n_arrays]);
        }
        mt_free(want);
        free_arrays();
    }
}

/* -- the convolution ------------------------------------------------------------------------------- */

static mt_conv conv_of(mt_dtype t, int64_t C, int64_t width)
{
    mt_conv a = { .t = t,
                  .N = N,
                  .C = C,
                  .width = width,
                  .ldx = C,
                  .ldy = C,
                  .ld_dx = C,
                  .n_docs = N_DOCS,
                  .doc_start = given(starts, sizeof starts),
                  .x = numbers(t, N * C, 1, 0),
                  .w = numbers(t, C * width, 2, 0),
                  .dy = numbers(t, N * C, 3, 0) };
    a.y = device_array((size_t)(N * C) * mt_dtype_bytes(t));
    a.dx = device_array((size_t)(N * C) * mt_dtype_bytes(t));
    a.dw = device_array((size_t)(C * width) * 4);
    a.scratch = device_array(mt_conv_scratch(&a));
    return a;
}

static void packed_convolutions_have_the_bits_of_separate_ones(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        mt_err err = { 0 };
        mt_dtype t = both[i % 2];
        int64_t C = i / 2 % 2 ? 37 : 64, width = i / 4 ? 3 : 4;
        mt_conv packed = conv_of(t, C, width), apart = conv_of(t, C, width);
        assert_ok(mt_ops_of(dev)->conv_fwd(stream, &packed, &err));
        assert_ok(mt_ops_of(dev)->conv_bwd(stream, &packed, &err));
        for (int d = 0; d < N_DOCS; d++) {
            mt_conv one = apart;
            int32_t alone[2] = { 0, starts[d + 1] - starts[d] };
            one.N = alone[1], one.n_docs = 1, one.doc_start = given(alone, sizeof alone);
            one.x = past(one.x, t, starts[d] * C), one.y = past(one.y, t, starts[d] * C);
            one.dy = past(one.dy, t, starts[d] * C), one.dx = past(one.dx, t, starts[d] * C);
            assert_ok(mt_ops_of(dev)->conv_fwd(stream, &one, &err));
            assert_ok(mt_ops_of(dev)->conv_bwd(stream, &one, &err));
        }
        assert_same(packed.y, apart.y, t, N * C, "y");
        assert_same(packed.dx, apart.dx, t, N * C, "dx");
        free_arrays();
    }
}

static void conv_in_passes(const mt_conv *whole, void *y, int32_t step)
{
    int32_t at[SLOTS] = { 0 };
    mt_err err = { 0 };
    void *kept = numbers(whole->t, SLOTS * (whole->width - 1) * whole->C, 20, 0);
    int had = n_arrays;
    for (pass p = next_pass(at, step); p.n; p = next_pass(at, step)) {
        mt_cache_conv c = { *whole, given(p.pos, sizeof p.pos), given(p.slot, sizeof p.slot), kept };
        c.c.N = p.starts[p.n];
        c.c.n_docs = p.n;
        c.c.doc_start = given(p.starts, sizeof p.starts);
        c.c.x = gathered(&p, whole->x, whole->t, whole->ldx);
        c.c.y = device_array((size_t)(c.c.N * whole->ldy) * mt_dtype_bytes(whole->t));
        assert_ok(mt_ops_of(dev)->cache_conv(stream, &c, &err));
        scatter(&p, y, c.c.y, whole->t, whole->ldy);
        wait_idle();
        while (n_arrays > had) dev->api->free(dev, arrays[--n_arrays]);
    }
}

static void convolution_in_steps_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        mt_err err = { 0 };
        mt_conv whole = conv_of(both[i % 2], 40, i / 6 ? 3 : 4);
        assert_ok(mt_ops_of(dev)->conv_fwd(stream, &whole, &err));
        void *pieced = without_continued(whole.y, whole.t, 40);
        conv_in_passes(&whole, pieced, i % 6 < 2 ? 1 : i % 6 < 4 ? 2 : 30);
        assert_same(whole.y, pieced, whole.t, N * 40, "y");
        free_arrays();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(packed_documents_have_the_bits_of_separate_ones),
                                        cmocka_unit_test(less_scratch_changes_no_bit),
                                        cmocka_unit_test(a_small_call_fits_in_the_scratch_of_a_large_one),
                                        cmocka_unit_test(the_rule_is_the_recurrence_at_every_decay),
                                        cmocka_unit_test(its_gradients_are_central_differences_at_every_decay),
                                        cmocka_unit_test(rule_in_steps_equals_the_whole),
                                        cmocka_unit_test(packed_convolutions_have_the_bits_of_separate_ones),
                                        cmocka_unit_test(convolution_in_steps_has_the_bits_of_the_whole) };
    mt_err err = { 0 };
    if (mt_device_open(&dev, MT_TEST_ON, NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    if (dev->api->stream_create(dev, &stream, "test", &err) || dev->api->event_create(dev, &done, &err)) return 1;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev->api->event_free(done);
    dev->api->stream_free(stream);
    mt_device_close(dev);
    return n_failed ? 1 : 0;
}
