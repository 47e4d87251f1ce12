/* latent_qk.c - queries and keys of latent attention: the rope part of every query head rotates, key heads are put together of
 * their own part and the rotated one they share.  Backward takes them apart again. */
#include "ops/ops_cpu.h"

#include <string.h>

enum { MAX_ROPE = 512 }; /* of the rotated width: config.h has at most 256 pairs */

size_t mt_latent_qk_scratch(const mt_latent_qk *a)
{
    (void)a;
    return 0;
}

/* In place; direction -1 is the inverse rotation. */
static void rotate(const mt_latent_qk *a, float *x, int64_t pos, float direction)
{
    const int64_t at = pos * (a->dr / 2);
    mt_rotate(x, a->style, a->dr, a->cos + at, a->sin + at, direction);
}

/* The rope parts of a row's heads, to others that are `apart` elements from each other. */
static void rotate_heads(const mt_latent_qk *a, const void *from, void *to, int64_t apart, int64_t pos, float direction)
{
    float x[MAX_ROPE];
    for (int64_t h = 0; h < a->H; h++) {
        mt_to_f32(x, mt_at(from, a->t, h * (a->dn + a->dr)), a->t, (size_t)a->dr);
        rotate(a, x, pos, direction);
        mt_from_f32(mt_at_mut(to, a->t, h * apart), a->t, x, (size_t)a->dr);
    }
}

static void rotate_in_place(const mt_latent_qk *a, void *row, int64_t pos, float direction)
{
    void *first = mt_at_mut(row, a->t, a->dn);
    rotate_heads(a, first, first, a->dn + a->dr, pos, direction);
}

static void rotate_queries(const mt_latent_qk *a, int64_t i)
{
    void *row = mt_at_mut(a->q, a->t, i * a->ldq);
    if (a->q_to)
        rotate_heads(a, mt_at(row, a->t, a->dn), mt_at_mut(a->q_to, a->t, i * a->ld_q_to), a->q_apart, a->pos[i], 1.0f);
    else
        rotate_in_place(a, row, a->pos[i], 1.0f);
}

static void forward_row(void *arg, int64_t i)
{
    const mt_latent_qk *a = arg;
    const size_t e = mt_dtype_bytes(a->t);
    float x[MAX_ROPE];
    if (a->q) rotate_queries(a, i);
    if (!a->k) return;
    mt_to_f32(x, mt_at(a->rope, a->t, i * a->ld_rope), a->t, (size_t)a->dr);
    rotate(a, x, a->pos[i], 1.0f);
    for (int64_t h = 0; h < a->H; h++) {
        int64_t to = i * a->ldk + h * (a->dn + a->dr);
        memcpy(mt_at_mut(a->k, a->t, to), mt_at(a->nope, a->t, i * a->ld_nope + h * a->dn), (size_t)a->dn * e);
        mt_from_f32(mt_at_mut(a->k, a->t, to + a->dn), a->t, x, (size_t)a->dr);
    }
}

static void backward_row(void *arg, int64_t i)
{
    const mt_latent_qk *a = arg;
    const size_t e = mt_dtype_bytes(a->t);
    const int64_t row = i * a->ld_d;
    float sum[MAX_ROPE] = { 0 }, x[MAX_ROPE];
    rotate_in_place(a, mt_at_mut(a->dq, a->t, row), a->pos[i], -1.0f);
    for (int64_t h = 0; h < a->H; h++) {
        int64_t from = row + h * (a->dn + a->dr);
        memcpy(mt_at_mut(a->d_nope, a->t, row + h * a->dn), mt_at(a->dk, a->t, from), (size_t)a->dn * e);
        mt_to_f32(x, mt_at(a->dk, a->t, from + a->dn), a->t, (size_t)a->dr);
        mt_axpy(sum, 1.0f, x, a->dr);
    }
    rotate(a, sum, a->pos[i], -1.0f);
    mt_from_f32(mt_at_mut(a->d_rope, a->t, row), a->t, sum, (size_t)a->dr);
}

static mt_rc latent_qk_check(const mt_latent_qk *a, mt_err *err)
{
    if (a->dr <= MAX_ROPE) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "%d rotated dimensions of a head, at most %d", (int)a->dr, MAX_ROPE);
}

mt_rc mt__latent_qk_fwd_run(mt_pool *pool, const mt_latent_qk *a, mt_err *err)
{
    MT_TRY(latent_qk_check(a, err));
    mt_pool_for(pool, a->N, forward_row, (void *)a);
    return MT_OK;
}

mt_rc mt__latent_qk_bwd_run(mt_pool *pool, const mt_latent_qk *a, mt_err *err)
{
    MT_TRY(latent_qk_check(a, err));
    mt_pool_for(pool, a->N, backward_row, (void *)a);
    return MT_OK;
}
