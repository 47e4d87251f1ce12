/* update.c - what happens to a gradient before it is applied: folded, rounded, measured.  And hi + lo made whole. */
#include "base/mem.h"
#include "base/split.h"
#include "ops/ops_cpu.h"
#include "ops/sqnorm.h"

#include <math.h>
#include <string.h>

enum { PIECE = 16 * MT_SQNORM_CHUNK }; /* elements a thread takes at a time */

static int64_t pieces(int64_t n) { return (n + PIECE - 1) / PIECE; }
static int64_t piece_end(int64_t piece, int64_t n) { return (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n; }

size_t mt_fold_scratch(const mt_fold *a)
{
    (void)a;
    return 0;
}

void mt_fold_range(const mt_fold *a, int64_t from, int64_t to)
{
    float *restrict sum = a->to, *restrict part = a->part;
    if (a->bf16)
        for (int64_t i = from; i < to; i++) sum[i] += mt_bf16_to_f32(mt_f32_to_bf16(part[i]));
    else
        for (int64_t i = from; i < to; i++) sum[i] += part[i];
    if (a->clear) memset(part + from, 0, (size_t)(to - from) * sizeof *part);
}

static void fold_piece(void *arg, int64_t piece)
{
    const mt_fold *a = arg;
    mt_fold_range(a, piece * PIECE, piece_end(piece, a->n));
}

mt_rc mt__fold_run(mt_pool *pool, const mt_fold *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, pieces(a->n), fold_piece, (void *)a);
    return MT_OK;
}

size_t mt_round_grad_scratch(const mt_round_grad *a)
{
    (void)a;
    return 0;
}

void mt_round_range(const mt_round_grad *a, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) mt_put(a->g, a->t, i, a->acc2 ? a->acc[i] + a->acc2[i] : a->acc[i]);
}

static void round_piece(void *arg, int64_t piece)
{
    const mt_round_grad *a = arg;
    mt_round_range(a, piece * PIECE, piece_end(piece, a->n));
}

mt_rc mt__round_grad_run(mt_pool *pool, const mt_round_grad *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, pieces(a->n), round_piece, (void *)a);
    return MT_OK;
}

size_t mt_grad_norm_scratch(const mt_grad_norm *a) { return mt_sqnorm_n_chunks((size_t)a->n) * sizeof(double); }

static void norm_piece(void *arg, int64_t piece)
{
    const mt_grad_norm *a = arg;
    size_t per = PIECE / MT_SQNORM_CHUNK, first = (size_t)piece * per, all = mt_sqnorm_n_chunks((size_t)a->n);
    mt_sqnorm_chunks(&(mt_sqnorm_args){ a->g, a->t, (size_t)a->n }, first, first + per < all ? per : all - first,
                     a->scratch + first);
}

mt_rc mt__grad_norm_run(mt_pool *pool, const mt_grad_norm *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, pieces(a->n), norm_piece, (void *)a);
    *a->sum = mt_sqnorm_add(a->scratch, mt_sqnorm_n_chunks((size_t)a->n));
    return MT_OK;
}

size_t mt_join_halves_scratch(const mt_join_halves *a)
{
    (void)a;
    return 0;
}

static void join_piece(void *arg, int64_t piece)
{
    const mt_join_halves *a = arg;
    int64_t from = piece * PIECE;
    size_t n = (size_t)(piece_end(piece, a->n) - from);
    if (a->lo)
        mt_join_array(a->w + from, a->hi + from, a->lo + from, n);
    else
        mt_to_f32(a->w + from, a->hi + from, MT_DTYPE_BF16, n);
}

mt_rc mt__join_halves_run(mt_pool *pool, const mt_join_halves *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, pieces(a->n), join_piece, (void *)a);
    return MT_OK;
}
