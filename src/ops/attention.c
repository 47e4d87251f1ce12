/* attention.c - causal attention over packed documents, plainly.
 *
 * One piece of work is a document and a key/value head: its query heads read the same keys, and their
 * gradients meet there without two threads writing one place.  Scores, softmax and sums are fp32.
 * Backward rebuilds the probabilities from lse:  P = exp(S - lse),  delta = sum_j P dP = o . do,
 *   dV += P do,   dS = P (dP - delta) (1 - tanh^2 under a softcap),   dQ = scale dS K,   dK = scale dS' Q.
 * A sink is one more score of every row of its head: it takes part of the softmax and adds nothing to o. */
#include "ops/ops_cpu.h"

#include "base/mem.h"
#include "device/device_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct job {
    const mt_attention *a;
    atomic_bool no_memory;
} job;

typedef struct piece {
    int64_t start, len, kv; /* first row, rows, key/value head */
    float *k, *v;           /* [len, Dh], [len, Dv] */
} piece;

static int64_t value_width(const mt_attention *a) { return mt_value_width(a->Dh, a->Dv); }

/* Rows of one head, `width` wide. */
static void widen(const mt_attention *a, float *dst, const void *src, int64_t ld, int64_t start, int64_t len, int64_t head,
                  int64_t width)
{
    for (int64_t i = 0; i < len; i++)
        mt_to_f32(dst + i * width, mt_at(src, a->t, (start + i) * ld + head * width), a->t, (size_t)width);
}

/* The document and head of piece `index`; scratch holds its keys and values, their gradients if wanted, and some rows more. */
static bool open_piece(job *j, int64_t index, bool gradients, piece *p, float **extra)
{
    const mt_attention *a = j->a;
    int64_t doc = index / a->K;
    p->kv = index % a->K;
    p->start = a->doc_start[doc];
    p->len = a->doc_start[doc + 1] - p->start;
    const int64_t Dv = value_width(a), block = p->len * (a->Dh + Dv);
    float *s = mt_cpu_thread_scratch((size_t)((gradients ? 2 : 1) * block + 2 * a->Dh + Dv + 2 * p->len) * sizeof *s);
    if (!s) {
        atomic_store(&j->no_memory, true);
        return false;
    }
    p->k = s;
    p->v = s + p->len * a->Dh;
    *extra = s + block;
    widen(a, p->k, a->k, a->ldk, p->start, p->len, p->kv, a->Dh);
    widen(a, p->v, a->v, a->ldv, p->start, p->len, p->kv, Dv);
    return true;
}

float mt_alibi_slope(int64_t H, int64_t h)
{
    int64_t n = 1;
    while (2 * n <= H) n *= 2;
    return h < n ? exp2f(-8.0f * (float)(h + 1) / (float)n) : exp2f(-4.0f * (float)(2 * (h - n) + 1) / (float)n);
}

/* Score of keys `back` rows before the query; *slope: its derivative by scale q k'. */
static float score(const mt_attention *a, const float *q, const float *k, int64_t back, float per_row, float *slope)
{
    float s = a->scale * mt_dot(q, k, a->Dh);
    *slope = 1.0f;
    if (a->alibi != 0) s -= per_row * (float)back;
    if (a->softcap == 0) return s;
    float th = tanhf(s / a->softcap);
    *slope = 1.0f - th * th;
    return a->softcap * th;
}

static float alibi_of(const mt_attention *a, int64_t h) { return a->alibi != 0 ? a->alibi * mt_alibi_slope(a->H, h) : 0.0f; }

/* Row i of a document sees this row first. */
static int64_t first_key(const mt_attention *a, int64_t i)
{
    int64_t from = a->window && i >= a->window ? i - a->window + 1 : 0;
    return a->chunk ? mt_max_i64(from, i / a->chunk * a->chunk) : from;
}

static void forward_one(const mt_attention *a, const piece *p, int64_t i, int64_t h, float *q, float *o, float *s)
{
    const int64_t from = first_key(a, i), Dv = value_width(a);
    widen(a, q, a->q, a->ldq, p->start + i, 1, h, a->Dh);
    float top = a->sinks ? a->sinks[h] : -INFINITY, per_row = alibi_of(a, h), slope;
    for (int64_t j = from; j <= i; j++) {
        s[j] = score(a, q, p->k + j * a->Dh, i - j, per_row, &slope);
        if (s[j] > top) top = s[j];
    }
    double sum = a->sinks ? (double)expf(a->sinks[h] - top) : 0;
    for (int64_t j = from; j <= i; j++) sum += (double)(s[j] = expf(s[j] - top));
    memset(o, 0, (size_t)Dv * sizeof *o);
    for (int64_t j = from; j <= i; j++) mt_axpy(o, s[j], p->v + j * Dv, Dv);
    float inv = (float)(1.0 / sum);
    int64_t row = p->start + i;
    for (int64_t d = 0; d < Dv; d++) mt_put(a->o, a->t, row * a->ldo + h * Dv + d, o[d] * inv);
    a->lse[row * a->H + h] = top + (float)log(sum);
}

static void forward_piece(void *arg, int64_t index)
{
    job *j = arg;
    const mt_attention *a = j->a;
    piece p;
    float *extra;
    if (!open_piece(j, index, false, &p, &extra)) return;
    int64_t group = a->H / a->K;
    for (int64_t h = p.kv * group; h < (p.kv + 1) * group; h++)
        for (int64_t i = 0; i < p.len; i++) forward_one(a, &p, i, h, extra, extra + a->Dh, extra + a->Dh + value_width(a));
}

static mt_rc attention_finish(const job *j, mt_err *err)
{
    return j->no_memory ? mt_no_memory(err, "the keys and values of a document") : MT_OK;
}

mt_rc mt__attention_fwd_run(mt_pool *pool, const mt_attention *a, mt_err *err)
{
    job j = { .a = a };
    mt_pool_for(pool, a->n_docs * a->K, forward_piece, &j);
    return attention_finish(&j, err);
}

static void backward_one(const mt_attention *a, const piece *p, int64_t i, int64_t h, float *dk, float *dv, float *q, float *d_o,
                         float *dq)
{
    const int64_t Dv = value_width(a), row = p->start + i, at = row * a->ldo + h * Dv;
    widen(a, q, a->q, a->ldq, row, 1, h, a->Dh);
    mt_to_f32(d_o, mt_at(a->d_o, a->t, at), a->t, (size_t)Dv);
    float delta = 0, lse = a->lse[row * a->H + h], per_row = alibi_of(a, h), slope;
    for (int64_t d = 0; d < Dv; d++) delta += mt_get(a->o, a->t, at + d) * d_o[d];
    memset(dq, 0, (size_t)a->Dh * sizeof *dq);
    for (int64_t j = first_key(a, i); j <= i; j++) {
        const float *k = p->k + j * a->Dh, *v = p->v + j * Dv;
        float prob = expf(score(a, q, k, i - j, per_row, &slope) - lse);
        float ds = prob * (mt_dot(d_o, v, Dv) - delta) * slope * a->scale;
        mt_axpy(dv + j * Dv, prob, d_o, Dv);
        mt_axpy(dk + j * a->Dh, ds, q, a->Dh);
        mt_axpy(dq, ds, k, a->Dh);
    }
    mt_from_f32(mt_at_mut(a->dq, a->t, row * a->ld_d + h * a->Dh), a->t, dq, (size_t)a->Dh);
}

static void backward_piece(void *arg, int64_t index)
{
    job *j = arg;
    const mt_attention *a = j->a;
    piece p;
    float *dk;
    if (!open_piece(j, index, true, &p, &dk)) return;
    const int64_t Dv = value_width(a), group = a->H / a->K;
    float *dv = dk + p.len * a->Dh, *row = dv + p.len * Dv;
    memset(dk, 0, (size_t)(p.len * (a->Dh + Dv)) * sizeof *dk);
    for (int64_t h = p.kv * group; h < (p.kv + 1) * group; h++)
        for (int64_t i = 0; i < p.len; i++) backward_one(a, &p, i, h, dk, dv, row, row + a->Dh, row + a->Dh + Dv);
    for (int64_t i = 0; i < p.len; i++) {
        int64_t at = (p.start + i) * a->ld_d;
        mt_from_f32(mt_at_mut(a->dk, a->t, at + p.kv * a->Dh), a->t, dk + i * a->Dh, (size_t)a->Dh);
        mt_from_f32(mt_at_mut(a->dv, a->t, at + p.kv * Dv), a->t, dv + i * Dv, (size_t)Dv);
    }
}

/* All rows of a head in order, whichever documents they are of. */
static void backward_sink(void *arg, int64_t h)
{
    const mt_attention *a = arg;
    const int64_t Dv = value_width(a);
    double sum = 0;
    for (int64_t i = 0; i < a->N; i++) {
        float delta = 0, share = expf(a->sinks[h] - a->lse[i * a->H + h]);
        for (int64_t d = 0, at = i * a->ldo + h * Dv; d < Dv; d++, at++)
            delta += mt_get(a->o, a->t, at) * mt_get(a->d_o, a->t, at);
        sum += (double)(share * delta);
    }
    a->dsinks[h] -= (float)sum;
}

mt_rc mt__attention_bwd_run(mt_pool *pool, const mt_attention *a, mt_err *err)
{
    job j = { .a = a };
    mt_pool_for(pool, a->n_docs * a->K, backward_piece, &j);
    if (a->dsinks) mt_pool_for(pool, a->H, backward_sink, (void *)a);
    return attention_finish(&j, err);
}
