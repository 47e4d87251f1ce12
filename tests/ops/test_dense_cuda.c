/* Products by our own kernel (dense_hopper.cu) against the library's, which products of these sizes get in linear.cu: shapes at random,
 * in rows that have gaps.  Products so large that linear.cu chooses our own are in test_ops_cuda.c. */
#include "test.h"

#include "base/dtype.h"
#include "base/rng.h"
#include "ops/matmul.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>

enum { SKIPPED = 77, DRAWS = 60, MOST_ROWS = 11000, MOST_COLS = 1152, MOST = MOST_ROWS * MOST_COLS, BEYOND = 1 << 16 };

typedef enum product { FORWARD, DX, DW } product;
static const char *const names[] = { "forward", "dx", "dw" };

/* On the device: operands, a bias, what is added, what results hold before, and results of both. */
typedef enum buffer { X, W, BIAS, ADD, BEFORE, LIBRARYS, OURS, BUFFERS } buffer;

static mt_device *gpu;
static mt_stream *stream;
static mt_event *done;
static void *there[BUFFERS], *workspace;
static float *before, *librarys, *ours, *again;

static int64_t roll(int64_t from, int64_t to)
{
    static uint64_t i;
    return from + (int64_t)mt_rng_below(1, 1, i++, (uint64_t)(to - from + 1));
}

static void copy(void *to, const void *from, size_t bytes, mt_copy_dir dir)
{
    mt_err err = { 0 };
    assert_ok(mt_copy(stream, to, from, bytes, dir, &err));
    assert_ok(mt_record(stream, done, &err));
    assert_ok(mt_sync(done, &err));
}

/* Random numbers of deviation 1/2, bf16 or float; also as floats in `out`, or NULL. */
static void fill(buffer b, mt_dtype t, float *out)
{
    float *x = malloc(MOST * sizeof *x);
    uint16_t *halves = malloc(MOST * sizeof *halves);
    assert_non_null(x);
    assert_non_null(halves);
    for (int64_t i = 0; i < MOST; i++) {
        const uint64_t z = mt_rng_u64(2, b, (uint64_t)i);
        halves[i] =
            mt_f32_to_bf16(((float)(z & 0xffff) + (float)(z >> 16 & 0xffff) + (float)(z >> 32 & 0xffff) - 98302.5f) / 65536);
        x[i] = mt_bf16_to_f32(halves[i]);
    }
    copy(there[b], t == MT_DTYPE_F32 ? (void *)x : halves, MOST * mt_dtype_bytes(t), MT_COPY_IN);
    if (out) memcpy(out, x, MOST * sizeof *x);
    free(halves);
    free(x);
}

static void fetch(buffer b, mt_dtype t, float *out, int64_t n)
{
    copy(out, there[b], (size_t)n * mt_dtype_bytes(t), MT_COPY_OUT);
    if (t == MT_DTYPE_F32) return;
    const uint16_t *halves = (const uint16_t *)(void *)out;
    for (int64_t i = n - 1; i >= 0; i--) out[i] = mt_bf16_to_f32(halves[i]); /* from the end: in place */
}

/* A third of them has more tiles than the card has processors, so that blocks make several. */
static mt_linear draw(product kind)
{
    mt_linear a = { .t = MT_DTYPE_BF16, .M = roll(1, 700), .N = 8 * roll(1, 140), .K = 8 * roll(1, 140) };
    const bool large = roll(0, 2) == 0;
    if (large && kind == DW) a.N = 8 * roll(350, 550), a.K = 8 * roll(250, 350), a.M = roll(1, 300);
    if (large && kind != DW) a.M = roll(8000, MOST_ROWS), a.N = 8 * roll(100, 140), a.K = 8 * roll(100, 140);
    const bool adds = roll(0, 1);
    if (kind != FORWARD && roll(0, 1)) a.N -= roll(0, 7); /* only forward needs whole groups of eight: it writes them */
    a.ldx = a.K + 8 * roll(0, 3);
    a.ldy = (a.N + 7) / 8 * 8 + 8 * roll(0, 3);
    a.ldadd = a.N + 8 * roll(0, 3);
    if (kind == FORWARD && adds) a.add = there[ADD];
    if (kind == FORWARD && roll(0, 1)) a.b = there[BIAS];
    a.dx_add = adds;
    a.dw_set = !adds;
    return a;
}

static void by_library(product kind, mt_linear a)
{
    mt_err err = { 0 };
    const mt_ops *ops = mt_ops_of(gpu);
    a.x = there[X];
    a.w = there[W];
    a.dy = there[kind == DX ? X : W];
    if (kind == FORWARD) a.y = there[LIBRARYS];
    if (kind == DX) a.dx = there[LIBRARYS];
    if (kind == DW) a.dw = there[LIBRARYS];
    if (kind == FORWARD)
        assert_ok(ops->linear_fwd(stream, &a, &err));
    else
        assert_ok(ops->linear_bwd(stream, &a, &err));
}

/* As linear.cu describes it. */
static mt_matmul described(product kind, const mt_linear *a)
{
    mt_matmul p = {
        .t = MT_DTYPE_BF16, .td = MT_DTYPE_BF16, .alpha = 1, .c = there[OURS], .d = there[OURS], .a = there[W], .b = there[X]
    };
    switch (kind) {
    case FORWARD:
        p.m = a->N, p.n = a->M, p.k = a->K, p.lda = a->K, p.ldb = a->ldx, p.ldc = p.ldd = a->ldy;
        p.trans_a = true;
        p.bias = a->b;
        p.beta = a->add ? 1 : 0;
        if (a->add) p.c = a->add, p.ldc = a->ldadd;
        break;
    case DX:
        p.m = a->K, p.n = a->M, p.k = a->N, p.lda = a->K, p.ldb = a->ldy, p.ldc = p.ldd = a->ldx;
        p.beta = a->dx_add ? 1 : 0;
        break;
    case DW:
        p.m = a->K, p.n = a->N, p.k = a->M, p.lda = a->ldx, p.ldb = a->ldy, p.ldc = p.ldd = a->K;
        p.a = there[X], p.b = there[W], p.td = MT_DTYPE_F32;
        p.rows_in_k = p.trans_b = true;
        p.beta = a->dw_set ? 0 : 1;
        break;
    }
    return p;
}

/* Inside the matrix at most a rounding apart, or two where the library rounds before it adds; outside as before. */
static void compare(const mt_matmul *p, int64_t n, const char *what)
{
    const double most_added = 1.5, relative = p->td == MT_DTYPE_F32 ? 1e-5 : 1.0 / 128;
    for (int64_t i = 0; i < n; i++) {
        const bool inside = i / p->ldd < p->n && i % p->ldd < p->m;
        const double want = inside ? librarys[i] : before[i];
        if (inside ? fabs(ours[i] - want) <= relative * (fabs(want) + most_added) + 1e-4 : ours[i] == before[i]) continue;
        fail_msg("%s: %lld x %lld of sums of %lld, rows of %lld: %s row %lld, column %lld is %g, not %g", what, (long long)p->n,
                 (long long)p->m, (long long)p->k, (long long)p->ldd, inside ? "inside," : "outside,", (long long)(i / p->ldd),
                 (long long)(i % p->ldd), ours[i], want);
    }
    if (memcmp(ours, again, (size_t)n * sizeof *ours) != 0) fail_msg("%s: other bits when run again", what);
}

static void by_our_own(const mt_matmul *p, float *out, int64_t n)
{
    mt_err err = { 0 };
    copy(there[OURS], there[BEFORE], MOST * mt_dtype_bytes(p->td), MT_COPY_ON_DEVICE);
    assert_ok(mt__dense_by_hopper(stream, p, workspace, &err));
    fetch(OURS, p->td, out, n);
}

static void check(product kind, int i)
{
    const mt_linear a = draw(kind);
    const mt_matmul p = described(kind, &a);
    const int64_t n = mt_min_i64(MOST, p.n * p.ldd + BEYOND);
    char what[64];
    snprintf(what, sizeof what, "%s, draw %d%s%s", names[kind], i, p.beta != 0 ? ", adding" : "", p.bias ? ", with a bias" : "");
    assert_true(p.n * p.ldd <= MOST && a.M * mt_max_i64(a.ldx, mt_max_i64(a.ldy, a.ldadd)) <= MOST);
    assert_true(mt__dense_fits(stream, &p));
    copy(there[LIBRARYS], there[BEFORE], MOST * mt_dtype_bytes(p.td), MT_COPY_ON_DEVICE);
    by_library(kind, a);
    fetch(LIBRARYS, p.td, librarys, n);
    by_our_own(&p, ours, n);
    by_our_own(&p, again, n);
    compare(&p, n, what);
}

static void agrees_with_the_library(void **state)
{
    const product kind = *(const product *)*state;
    for (buffer b = X; b <= ADD; b++) fill(b, MT_DTYPE_BF16, NULL);
    fill(BEFORE, kind == DW ? MT_DTYPE_F32 : MT_DTYPE_BF16, before);
    for (int i = 0; i < DRAWS; i++) check(kind, i);
}

enum { IN_A_ROW = 12, CHAIN_ROWS = 9001, CHAIN_COLS = 1120 };

/* y = x w' in its place i of a chain: OURS and BEFORE take turns as x and y. */
static void queue_link(mt_stream *s, void *memory, int i)
{
    mt_err err = { 0 };
    const mt_linear a = {
        .t = MT_DTYPE_BF16, .M = CHAIN_ROWS, .N = CHAIN_COLS, .K = CHAIN_COLS, .ldx = CHAIN_COLS, .ldy = CHAIN_COLS
    };
    mt_matmul p = described(FORWARD, &a);
    p.b = there[i % 2 ? OURS : BEFORE];
    p.c = p.d = there[i % 2 ? BEFORE : OURS];
    assert_ok(mt__dense_by_hopper(s, &p, memory, &err));
}

/* A dw into LIBRARYS, again and again: what runs beside a chain. */
static void queue_beside(mt_stream *s, void *memory)
{
    mt_err err = { 0 };
    const mt_linear a = { .t = MT_DTYPE_BF16, .M = 300, .N = 4400, .K = 2800, .ldx = 2800, .ldy = 4400, .dw_set = true };
    mt_matmul p = described(DW, &a);
    p.c = p.d = there[LIBRARYS];
    assert_ok(mt__dense_by_hopper(s, &p, memory, &err));
}

/* Each product reads what the one before it wrote.  With a wait after each, without, and while another stream takes processors. */
static void products_in_a_row_wait_for_each_other(void **state)
{
    enum { WAITING, IN_ONE_GO, BESIDE_OTHERS, WAYS };
    const int64_t n = (int64_t)CHAIN_ROWS * CHAIN_COLS;
    mt_err err = { 0 };
    mt_stream *other;
    void *more;
    (void)state;
    assert_ok(gpu->api->stream_create(gpu, &other, "beside", &err));
    assert_ok(mt_device_alloc(gpu, &more, MT_DEVICE_WORKSPACE_BYTES, "a workspace", &err));
    for (buffer b = X; b <= ADD; b++) fill(b, MT_DTYPE_BF16, NULL);
    for (int way = WAITING; way < WAYS; way++) {
        fill(BEFORE, MT_DTYPE_BF16, before);
        for (int i = 0; i < IN_A_ROW; i++) {
            if (way == BESIDE_OTHERS) queue_beside(other, more);
            queue_link(stream, workspace, i);
            if (way == WAITING) fetch(OURS, MT_DTYPE_BF16, ours, 1);
        }
        fetch(BEFORE, MT_DTYPE_BF16, way == WAITING ? again : ours, n); /* the last of an even number wrote there */
        if (way != WAITING && memcmp(ours, again, (size_t)n * sizeof *ours) != 0)
            fail_msg("%s: other bits", way == IN_ONE_GO ? "in one go" : "beside others");
    }
    gpu->api->stream_free(other);
    gpu->api->free(gpu, more);
}

/* Our kernel supports none of these. */
static void what_does_not_fit_is_left_to_the_library(void **state)
{
    (void)state;
    const mt_linear a = { .t = MT_DTYPE_BF16, .M = 64, .N = 64, .K = 64, .ldx = 64, .ldy = 64, .ldadd = 64 };
    const mt_matmul fits = described(FORWARD, &a), dw = described(DW, &a);
    mt_matmul p[15];
    assert_true(mt__dense_fits(stream, &fits));
    assert_true(mt__dense_fits(stream, &dw));
    for (size_t i = 0; i < MT_COUNT(p); i++) p[i] = i < 13 ? fits : dw;
    p[0].t = MT_DTYPE_F32;
    p[1].td = MT_DTYPE_F32;
    p[2].alpha = 0.5f;
    p[3].m = 60;
    p[4].lda = 68;
    p[5].b = (const char *)fits.b + 8;
    p[6].d = (char *)fits.d + 2;
    p[7].c = (const char *)fits.c + 8;
    p[8].ldb = 68;
    p[9].ldc = 68;
    p[10].ldd = 68;
    p[11].beta = 0.5f;
    p[12].n = (int64_t)INT32_MAX;
    p[13].bias = there[BIAS];
    p[14].c = there[LIBRARYS];
    for (size_t i = 0; i < MT_COUNT(p); i++)
        if (mt__dense_fits(stream, &p[i])) fail_msg("product %d is taken", (int)i);
}

static void open_all(void)
{
    mt_err err = { 0 };
    assert_ok(gpu->api->stream_create(gpu, &stream, "test", &err));
    assert_ok(mt_event_create(gpu, &done, "test", &err));
    assert_ok(mt_device_alloc(gpu, &workspace, MT_DEVICE_WORKSPACE_BYTES, "a workspace", &err));
    for (int b = 0; b < BUFFERS; b++) assert_ok(mt_device_alloc(gpu, &there[b], MOST * sizeof(float), "a matrix", &err));
    before = malloc(MOST * sizeof *before);
    librarys = malloc(MOST * sizeof *librarys);
    ours = malloc(MOST * sizeof *ours);
    again = malloc(MOST * sizeof *again);
    assert_true(before && librarys && ours && again);
}

static void close_all(void)
{
    free(before);
    free(librarys);
    free(ours);
    free(again);
    for (int b = 0; b < BUFFERS; b++) gpu->api->free(gpu, there[b]);
    gpu->api->free(gpu, workspace);
    gpu->api->event_free(done);
    gpu->api->stream_free(stream);
    mt_device_close(gpu);
}

int main(void)
{
    static product kinds[] = { FORWARD, DX, DW };
    const struct CMUnitTest tests[] = {
        { "forward agrees with the library", agrees_with_the_library, NULL, NULL, &kinds[0] },
        { "dx agrees with the library", agrees_with_the_library, NULL, NULL, &kinds[1] },
        { "dw agrees with the library", agrees_with_the_library, NULL, NULL, &kinds[2] },
        cmocka_unit_test(products_in_a_row_wait_for_each_other),
        cmocka_unit_test(what_does_not_fit_is_left_to_the_library),
    };
    const mt_matmul any = { .m = 8,
                            .n = 8,
                            .k = 8,
                            .trans_a = true,
                            .t = MT_DTYPE_BF16,
                            .td = MT_DTYPE_BF16,
                            .lda = 8,
                            .ldb = 8,
                            .ldc = 8,
                            .ldd = 8,
                            .alpha = 1 };
    mt_err err = { 0 };
    if (mt_device_open(&gpu, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    open_all();
    if (!mt__dense_fits(stream, &any)) {
        printf("skipped: no Hopper\n");
        return SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_all();
    return n_failed ? 1 : 0;
}
