/* cache_attention.c - rows that continue cached sequences, plainly.
 *
 * One piece of work is a sequence and a key/value head: it puts the new keys and values into the cache, then lets the query heads
 * of that group read them together with the older ones.  Scores, softmax and sums are fp32, over the cached values: in
 * bf16 those are what attention.c would have read, since k and v are rounded before either sees them. */
#include "ops/ops_cpu.h"

#include "base/mem.h"
#include "device/device_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

size_t mt_cache_attention_scratch(const mt_cache_attention *a)
{
    (void)a;
    return 0;
}

typedef struct job {
    const mt_cache_attention *a;
    atomic_bool no_memory;
} job;

typedef struct piece {
    int64_t kv;           /* key/value head */
    int64_t start, end;   /* new rows */
    int64_t base;         /* cache row of position 0 */
    int64_t oldest;       /* first position any new row sees; k and v begin there */
    float *k, *v;         /* [positions, Dh], [positions, Dv] */
    int64_t ldv;          /* of v: Dv, or Dh where values are the beginnings of keys */
    float *q, *o, *score; /* [Dh], [Dv], [positions] */
} piece;

static int64_t value_width(const mt_cache_attention *a) { return mt_value_width(a->Dh, a->Dv); }

static int64_t first_seen(const mt_cache_attention *a, int64_t pos)
{
    int64_t from = a->window && pos >= a->window ? pos - a->window + 1 : 0;
    return a->chunk ? mt_max_i64(from, pos / a->chunk * a->chunk) : from;
}

/* New keys and values of a head into the cache. */
static void cache_attention_append(const mt_cache_attention *a, const piece *p)
{
    const int64_t Dv = value_width(a);
    const size_t e = mt_dtype_bytes(a->t);
    for (int64_t i = p->start; i < p->end; i++) {
        int64_t to = (p->base + a->pos[i]) * a->K + p->kv;
        memcpy(mt_at_mut(a->cache_k, a->t, to * a->Dh), mt_at(a->k, a->t, i * a->ldk + p->kv * a->Dh), (size_t)a->Dh * e);
        if (!a->cache_v) continue;
        memcpy(mt_at_mut(a->cache_v, a->t, to * Dv), mt_at(a->v, a->t, i * a->ldv + p->kv * Dv), (size_t)Dv * e);
    }
}

static void widen(const mt_cache_attention *a, const piece *p, float *dst, const void *cache, int64_t width, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        mt_to_f32(dst + j * width, mt_at(cache, a->t, ((p->base + p->oldest + j) * a->K + p->kv) * width), a->t, (size_t)width);
}

static bool open_piece(job *j, int64_t index, piece *p)
{
    const mt_cache_attention *a = j->a;
    int64_t doc = index / a->K;
    p->kv = index % a->K;
    p->start = a->doc_start[doc];
    p->end = a->doc_start[doc + 1];
    p->base = a->cache_row[doc];
    p->oldest = first_seen(a, a->pos[p->start]);
    int64_t n = a->pos[p->end - 1] + 1 - p->oldest;
    const int64_t Dv = value_width(a);
    p->k = mt_cpu_thread_scratch((size_t)((n + 1) * (a->Dh + Dv) + n) * sizeof(float));
    if (!p->k) {
        atomic_store(&j->no_memory, true);
        return false;
    }
    p->v = a->cache_v ? p->k + n * a->Dh : p->k;
    p->ldv = a->cache_v ? Dv : a->Dh;
    p->q = p->k + n * (a->Dh + Dv);
    p->o = p->q + a->Dh;
    p->score = p->o + Dv;
    cache_attention_append(a, p);
    widen(a, p, p->k, a->cache_k, a->Dh, n);
    if (a->cache_v) widen(a, p, p->v, a->cache_v, Dv, n);
    return true;
}

/* New row i, query head h. */
static void attend(const mt_cache_attention *a, const piece *p, int64_t i, int64_t h)
{
    const int64_t Dv = value_width(a);
    int64_t from = first_seen(a, a->pos[i]) - p->oldest, to = a->pos[i] - p->oldest;
    float top = a->sinks ? a->sinks[h] : -INFINITY, per_row = a->alibi != 0 ? a->alibi * mt_alibi_slope(a->H, h) : 0.0f;
    double sum = 0;
    mt_to_f32(p->q, mt_at(a->q, a->t, i * a->ldq + h * a->Dh), a->t, (size_t)a->Dh);
    for (int64_t j = from; j <= to; j++) {
        p->score[j] = a->scale * mt_dot(p->q, p->k + j * a->Dh, a->Dh);
        if (a->alibi != 0) p->score[j] -= per_row * (float)(to - j);
        if (a->softcap != 0) p->score[j] = a->softcap * tanhf(p->score[j] / a->softcap);
        if (p->score[j] > top) top = p->score[j];
    }
    if (a->sinks) sum = (double)expf(a->sinks[h] - top);
    for (int64_t j = from; j <= to; j++) sum += (double)(p->score[j] = expf(p->score[j] - top));
    memset(p->o, 0, (size_t)Dv * sizeof *p->o);
    for (int64_t j = from; j <= to; j++) mt_axpy(p->o, p->score[j], p->v + j * p->ldv, Dv);
    float inv = (float)(1.0 / sum);
    for (int64_t d = 0; d < Dv; d++) mt_put(a->o, a->t, i * a->ldo + h * Dv + d, p->o[d] * inv);
}

static void one_piece(void *arg, int64_t index)
{
    job *j = arg;
    const mt_cache_attention *a = j->a;
    piece p;
    if (!open_piece(j, index, &p)) return;
    int64_t group = a->H / a->K;
    for (int64_t h = p.kv * group; h < (p.kv + 1) * group; h++)
        for (int64_t i = p.start; i < p.end; i++) attend(a, &p, i, h);
}

mt_rc mt__cache_attention_run(mt_pool *pool, const mt_cache_attention *a, mt_err *err)
{
    job j = { .a = a };
    mt_pool_for(pool, a->n_docs * a->K, one_piece, &j);
    return j.no_memory ? mt_no_memory(err, "the cached keys and values of a sequence") : MT_OK;
}
