/* Rows read in pieces through a cache see what attention over the whole sequence sees: the same sums in the same order, so equal
 * bits on the CPU, in fp32 and bf16, with and without a window, whatever the cache held before. */
#include "test.h"

#include "base/rng.h"
#include "ops/ops_cpu.h"

#include <stdlib.h>

enum { MAX_ROWS = 64, SLOTS = 3, LONGEST = 24 };

typedef struct shape {
    int64_t H, K, Dh, window;
    float softcap, alibi;
    int64_t chunk;
    bool sinks;
} shape;

/* Random numbers of either dtype; the stream tells arrays apart. */
static void *numbers(mt_dtype t, int64_t n, uint64_t stream)
{
    void *p = mt_calloc((size_t)n, mt_dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) mt_put(p, t, i, mt_rng_normal(11, stream, (uint64_t)i));
    return p;
}

typedef struct world {
    mt_dtype t;
    shape s;
    int64_t ld, N; /* q, k, v side by side */
    int32_t starts[SLOTS + 1];
    void *qkv, *whole, *pieced, *cache;
    mt_pool *pool;
} world;

static const float sinks[] = { -1.0f, 0.5f, 2.0f, 0.0f, -3.0f, 1.0f };

static mt_attention whole_args(const world *w, float *lse)
{
    const shape *s = &w->s;
    return (mt_attention){ .t = w->t,
                           .N = w->N,
                           .H = s->H,
                           .K = s->K,
                           .Dh = s->Dh,
                           .ldq = w->ld,
                           .ldk = w->ld,
                           .ldv = w->ld,
                           .ldo = s->H * s->Dh,
                           .n_docs = SLOTS,
                           .longest = LONGEST,
                           .doc_start = w->starts,
                           .scale = 0.3f,
                           .window = s->window,
                           .softcap = s->softcap,
                           .alibi = s->alibi,
                           .chunk = s->chunk,
                           .sinks = s->sinks ? sinks : NULL,
                           .q = w->qkv,
                           .k = mt_at(w->qkv, w->t, s->H * s->Dh),
                           .v = mt_at(w->qkv, w->t, (s->H + s->K) * s->Dh),
                           .o = w->whole,
                           .lse = lse };
}

/* One pass: the next rows of every sequence that has some left, `step` of them at most. */
static bool pass(world *w, const int32_t *slots, int64_t *done, int64_t step)
{
    mt_err err = { 0 };
    const shape *s = &w->s;
    int32_t starts[SLOTS + 1] = { 0 }, pos[MAX_ROWS], cache_row[SLOTS], from[SLOTS];
    int n = 0;
    for (int d = 0; d < SLOTS; d++) {
        int64_t len = w->starts[d + 1] - w->starts[d], take = mt_min_i64(step + d, len - done[d]);
        if (take <= 0) continue;
        starts[n + 1] = starts[n] + (int32_t)take;
        for (int64_t i = 0; i < take; i++) pos[starts[n] + i] = (int32_t)(done[d] + i);
        cache_row[n] = slots[d] * LONGEST;
        from[n++] = w->starts[d] + (int32_t)done[d];
        done[d] += take;
    }
    if (!n) return false;
    size_t row = (size_t)w->ld * mt_dtype_bytes(w->t), out_row = (size_t)(s->H * s->Dh) * mt_dtype_bytes(w->t);
    char *qkv = mt_calloc(MAX_ROWS, row), *o = mt_calloc(MAX_ROWS, out_row);
    for (int d = 0; d < n; d++)
        memcpy(qkv + (size_t)starts[d] * row, (char *)w->qkv + (size_t)from[d] * row, (size_t)(starts[d + 1] - starts[d]) * row);
    int64_t cache_n = SLOTS * LONGEST * s->K * s->Dh;
    assert_ok(mt__cache_attention_run(w->pool,
                                      &(mt_cache_attention){ .t = w->t,
                                                             .N = starts[n],
                                                             .H = s->H,
                                                             .K = s->K,
                                                             .Dh = s->Dh,
                                                             .ldq = w->ld,
                                                             .ldk = w->ld,
                                                             .ldv = w->ld,
                                                             .ldo = s->H * s->Dh,
                                                             .n_docs = n,
                                                             .longest = LONGEST,
                                                             .deepest = LONGEST,
                                                             .doc_start = starts,
                                                             .pos = pos,
                                                             .cache_row = cache_row,
                                                             .scale = 0.3f,
                                                             .window = s->window,
                                                             .softcap = s->softcap,
                                                             .alibi = s->alibi,
                                                             .chunk = s->chunk,
                                                             .sinks = s->sinks ? sinks : NULL,
                                                             .q = qkv,
                                                             .k = mt_at(qkv, w->t, s->H * s->Dh),
                                                             .v = mt_at(qkv, w->t, (s->H + s->K) * s->Dh),
                                                             .o = o,
                                                             .cache_k = w->cache,
                                                             .cache_v = mt_at_mut(w->cache, w->t, cache_n) },
                                      &err));
    for (int d = 0; d < n; d++)
        memcpy((char *)w->pieced + (size_t)from[d] * out_row, o + (size_t)starts[d] * out_row,
               (size_t)(starts[d + 1] - starts[d]) * out_row);
    mt_free(qkv);
    mt_free(o);
    return true;
}

static void check(mt_dtype t, shape s, int64_t step)
{
    mt_err err = { 0 };
    world w = { .t = t, .s = s, .ld = (s.H + 2 * s.K) * s.Dh, .starts = { 0, 1, 14, 14 + LONGEST } };
    const int32_t slots[SLOTS] = { 2, 0, 1 };
    int64_t done[SLOTS] = { 0 };
    w.N = w.starts[SLOTS];
    assert_ok(mt_pool_create(&w.pool, 2, &err));
    w.qkv = numbers(t, w.N * w.ld, 1);
    w.whole = numbers(t, w.N * s.H * s.Dh, 2);
    w.pieced = numbers(t, w.N * s.H * s.Dh, 3);
    w.cache = numbers(t, 2 * SLOTS * LONGEST * s.K * s.Dh, 4); /* what was there before must not matter */
    float *lse = mt_calloc((size_t)(w.N * s.H), sizeof *lse);
    mt_attention whole = whole_args(&w, lse);
    assert_ok(mt__attention_fwd_run(w.pool, &whole, &err));
    while (pass(&w, slots, done, step)) {
    }
    assert_memory_equal(w.whole, w.pieced, (size_t)(w.N * s.H * s.Dh) * mt_dtype_bytes(t));
    mt_free(w.qkv), mt_free(w.whole), mt_free(w.pieced), mt_free(w.cache), mt_free(lse);
    mt_pool_free(w.pool);
}

static void pieces_through_a_cache_equal_the_whole(void **state)
{
    (void)state;
    const shape shapes[] = { { 4, 2, 8, 0, 0, 0, 0, false },   { 4, 2, 8, 5, 0, 0, 0, false },
                             { 3, 1, 7, 1, 0, 0, 0, false },   { 2, 2, 16, 100, 0, 0, 0, false },
                             { 6, 2, 33, 24, 0, 0, 0, false }, { 4, 2, 8, 0, 1.5f, 0, 0, false },
                             { 5, 5, 8, 0, 0, 1, 0, false },   { 6, 2, 16, 9, 2, 0.25f, 0, false },
                             { 4, 2, 8, 0, 0, 0, 7, false },   { 6, 2, 8, 5, 0, 0, 0, true },
                             { 4, 1, 16, 0, 0, 0, 1, true } };
    for (size_t i = 0; i < MT_COUNT(shapes); i++)
        for (int64_t step = 1; step <= 20; step += i == 0 ? 1 : 6) {
            check(MT_DTYPE_F32, shapes[i], step);
            check(MT_DTYPE_BF16, shapes[i], step);
        }
}

MT_TEST_MAIN(cmocka_unit_test(pieces_through_a_cache_equal_the_whole))
