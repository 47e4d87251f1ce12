/* conv.c - causal depthwise convolution with silu, plainly; and the same for rows that continue sequences.
 *
 * One piece of work is a block of channels: it walks all documents in order, so dw is one sum in one order. */
#include "base/mem.h"
#include "ops/ops_cpu.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 32 }; /* of a piece */

/* A GPU's partial sums of dw, one for each block of rows. */
size_t mt_conv_scratch(const mt_conv *a) { return a->dw ? (size_t)(mt_sum_blocks(a->N) * a->C * a->width) * sizeof(float) : 0; }

size_t mt_cache_conv_scratch(const mt_cache_conv *a)
{
    (void)a;
    return 0;
}

/* Where a document's rows are, and what comes before them. */
typedef struct document {
    int64_t start, end;
    int64_t past;      /* rows before `start` that exist; in `state` */
    const void *state; /* [width - 1, C], or NULL */
} document;

static document plain_document(const mt_conv *a, int64_t d)
{
    return (document){ .start = a->doc_start[d], .end = a->doc_start[d + 1] };
}

/* Input of channel c, `back` rows before row t. */
static float input(const mt_conv *a, const document *d, int64_t t, int64_t back, int64_t c)
{
    int64_t row = t - back;
    if (row >= d->start) return mt_get(a->x, a->t, row * a->ldx + c);
    int64_t before = d->start - row;
    return before <= d->past ? mt_get(d->state, a->t, (a->width - 1 - before) * a->C + c) : 0.0f;
}

static float convolved(const mt_conv *a, const document *d, int64_t t, int64_t c)
{
    float s = 0;
    for (int64_t m = 0; m < a->width; m++) s += mt_get(a->w, a->t, c * a->width + m) * input(a, d, t, a->width - 1 - m, c);
    return s;
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static void forward_document(const mt_conv *a, const document *d, int64_t from, int64_t to)
{
    for (int64_t t = d->start; t < d->end; t++)
        for (int64_t c = from; c < to; c++) {
            float s = convolved(a, d, t, c);
            mt_put(a->y, a->t, t * a->ldy + c, s * sigmoid(s));
        }
}

static int64_t n_pieces(const mt_conv *a) { return (a->C + CHANNELS - 1) / CHANNELS; }
static int64_t last_channel(const mt_conv *a, int64_t piece) { return mt_min_i64(a->C, (piece + 1) * CHANNELS); }

static void forward_piece(void *arg, int64_t piece)
{
    const mt_conv *a = arg;
    for (int64_t i = 0; i < a->n_docs; i++) {
        document d = plain_document(a, i);
        forward_document(a, &d, piece * CHANNELS, last_channel(a, piece));
    }
}

mt_rc mt__conv_fwd_run(mt_pool *pool, const mt_conv *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, n_pieces(a), forward_piece, (void *)a);
    return MT_OK;
}

/* Gradient before silu. */
static float slope_at(const mt_conv *a, const document *d, int64_t t, int64_t c)
{
    float s = convolved(a, d, t, c), p = sigmoid(s);
    return mt_get(a->dy, a->t, t * a->ldy + c) * p * (1.0f + s * (1.0f - p));
}

/* Adds rows [from, to) of a document to dw, and writes their dx. */
static void backward_rows(const mt_conv *a, const document *d, int64_t from, int64_t to, int64_t c, float *dw)
{
    for (int64_t t = from; t < to; t++) {
        float ds = slope_at(a, d, t, c), dx = 0;
        for (int64_t m = 0; m < a->width; m++) dw[m] += ds * input(a, d, t, a->width - 1 - m, c);
        for (int64_t ahead = 0; ahead < a->width && t + ahead < d->end; ahead++)
            dx += mt_get(a->w, a->t, c * a->width + a->width - 1 - ahead) * slope_at(a, d, t + ahead, c);
        mt_put(a->dx, a->t, t * a->ld_dx + c, dx);
    }
}

static void backward_piece(void *arg, int64_t piece)
{
    const mt_conv *a = arg;
    for (int64_t c = piece * CHANNELS; c < last_channel(a, piece); c++)
        for (int64_t i = 0; i < a->n_docs; i++) {
            document d = plain_document(a, i);
            for (int64_t t = d.start; t < d.end; t += MT_SUM_ROWS) {
                float dw[MT_CONV_MOST] = { 0 };
                backward_rows(a, &d, t, mt_min_i64(d.end, t + MT_SUM_ROWS), c, dw);
                if (a->dw) mt_axpy(a->dw + c * a->width, 1.0f, dw, a->width);
            }
        }
}

mt_rc mt__conv_bwd_run(mt_pool *pool, const mt_conv *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, n_pieces(a), backward_piece, (void *)a);
    return MT_OK;
}

/* -- rows that continue sequences ------------------------------------------------------------------ */

/* The state's row i becomes the input width - 1 - i rows before the next one.  Rows before the sequence stay as they are. */
static void keep_last(const mt_conv *a, const document *d, void *state, int64_t c)
{
    float last[MT_CONV_MOST];
    int64_t n = a->width - 1, have = mt_min_i64(n, d->past + d->end - d->start);
    for (int64_t back = 1; back <= have; back++) last[n - back] = input(a, d, d->end, back, c);
    for (int64_t back = 1; back <= have; back++) mt_put(state, a->t, (n - back) * a->C + c, last[n - back]);
}

static void cache_piece(void *arg, int64_t piece)
{
    const mt_cache_conv *a = arg;
    int64_t from = piece * CHANNELS, to = last_channel(&a->c, piece);
    for (int64_t i = 0; i < a->c.n_docs; i++) {
        document d = plain_document(&a->c, i);
        void *state = mt_at_mut(a->state, a->c.t, a->slot[i] * (a->c.width - 1) * a->c.C);
        if (d.start == d.end) continue;
        d.past = mt_min_i64(a->pos[d.start], a->c.width - 1);
        d.state = state;
        forward_document(&a->c, &d, from, to);
        for (int64_t c = from; c < to; c++) keep_last(&a->c, &d, state, c);
    }
}

mt_rc mt__cache_conv_run(mt_pool *pool, const mt_cache_conv *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, n_pieces(&a->c), cache_piece, (void *)a);
    return MT_OK;
}
