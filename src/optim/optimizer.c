/* optimizer.c - the table of optimizers, and what their updates on the host have in common. */
#include "optim/optimizer.h"

#include "base/mem.h"
#include "optim/adamw.h"
#include "optim/lion.h"

#include <assert.h>
#include <math.h>

static const mt_optimizer *const rows[MT_OPTIMIZERS] = {
    [MT_OPTIMIZER_ADAMW] = &mt_optimizer_adamw, [MT_OPTIMIZER_LION] = &mt_optimizer_lion
};

const mt_optimizer *mt_optimizer_of(mt_optimizer_kind kind) { return rows[kind]; }

bool mt_optimizer_from_name(const char *name, mt_optimizer_kind *out)
{
    for (mt_optimizer_kind kind = 0; kind < MT_OPTIMIZERS; kind++)
        if (strcmp(rows[kind]->name, name) == 0) return *out = kind, true;
    return false;
}

mt_update mt_update_part(const mt_update *whole, int64_t first, int64_t n)
{
    mt_update part = *whole;
    assert(first % MT_MOMENT_BLOCK == 0);
    part.n = n;
    part.n_decay = mt_clamp_i64(whole->n_decay - first, 0, n);
    part.key = mt_moment_key_at(whole->key, first);
    return part;
}

/* -- on the host ----------------------------------------------------------------------------------- */

const mt_update_impl *mt_update_best(const mt_update_impl *impls)
{
    while (!impls->supported()) impls++;
    return impls;
}

static mt_update_args args_of(const mt_update *u, int64_t from, int64_t to, float *m, float *v, const mt_update_coef *coef)
{
    const char *g = (const char *)u->g + (size_t)from * mt_dtype_bytes(u->t);
    return (mt_update_args){ u->hi + from, u->lo + from, m, v, g, u->t, (size_t)(to - from), *coef };
}

static size_t update_range(const mt_update_impl *impl, const mt_update *u, int64_t from, int64_t to, float *m, float *v,
                           const mt_update_coef *coef)
{
    const mt_update_args args = args_of(u, from, to, m, v, coef);
    return from < to ? impl->update(&args) : 0;
}

/* m, v: of number `from`, in fp32.  The range may straddle the end of the decayed region. */
static size_t update_f32(const mt_update_impl *impl, const mt_update *u, int64_t from, int64_t to, float *m, float *v)
{
    const int64_t split = mt_clamp_i64(u->n_decay, from, to);
    return update_range(impl, u, from, split, m, v, &u->coef) +
           update_range(impl, u, split, to, m + (split - from), v ? v + (split - from) : NULL, &u->coef_no_decay);
}

static size_t update_block(const mt_update_impl *impl, const mt_update *u, int64_t from, int64_t to)
{
    float m32[MT_MOMENT_BLOCK], v32[MT_MOMENT_BLOCK], *v = u->v ? v32 : NULL;
    mt_moments_chunk c = { .form = u->moments,
                           .m = u->m,
                           .v = u->v,
                           .n_all = (size_t)u->n,
                           .at = (size_t)from,
                           .n = (size_t)(to - from),
                           .key = u->key,
                           .m32 = m32,
                           .v32 = v };
    const bool decays = to <= u->n_decay, alike = decays || from >= u->n_decay;
    if (alike && to - from == MT_MOMENT_BLOCK) {
        const mt_update_args args = args_of(u, from, to, m32, v, decays ? &u->coef : &u->coef_no_decay);
        return impl->update_block(&args, &c);
    }
    mt_moments_load(&c);
    const size_t bad = update_f32(impl, u, from, to, m32, v);
    mt_moments_store(&c);
    return bad;
}

size_t mt_update_numbers(const mt_update_impl *impl, const mt_update *u, int64_t from, int64_t to)
{
    if (u->moments == MT_MOMENTS_F32)
        return update_f32(impl, u, from, to, (float *)u->m + from, u->v ? (float *)u->v + from : NULL);
    size_t bad = 0;
    for (int64_t at = from; at < to; at += MT_MOMENT_BLOCK)
        bad += update_block(impl, u, at, mt_min_i64(at + MT_MOMENT_BLOCK, to));
    return bad;
}

/* -- the CPU device -------------------------------------------------------------------------------- */

enum { PIECE = 1 << 16 }; /* numbers a thread takes at a time: whole blocks of moments */

typedef struct pool_update {
    const mt_optimizer *optimizer;
    const mt_update *u;
} pool_update;

static void update_piece(void *arg, int64_t piece)
{
    const pool_update *w = arg;
    const size_t bad = w->optimizer->on_host(w->u, piece * PIECE, mt_min_i64((piece + 1) * PIECE, w->u->n));
    if (bad) __atomic_add_fetch(w->u->n_bad, (int64_t)bad, __ATOMIC_RELAXED);
}

void mt_update_over_pool(mt_pool *pool, const mt_optimizer *optimizer, const mt_update *u)
{
    pool_update w = { optimizer, u };
    if (u->guard && !isfinite(*u->guard)) return;
    mt_pool_for(pool, (u->n + PIECE - 1) / PIECE, update_piece, &w);
}
