/* delta_rule.c - the gated delta rule, row by row: the definition.
 *
 * One piece of work is a document and a key head: its value heads read the same queries and keys, and their gradients meet there
 * without two threads writing one place.  Backward needs the state of every row.  Forward's loop stores the state before each
 * chunk; then chunks run in reverse, each making the states of its rows again. */
#include "ops/delta_rule.h"

#include "base/mem.h"
#include "device/device_cpu.h"
#include "ops/ops_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { ROWS = MT_DELTA_ROWS };

/* -- scratch --------------------------------------------------------------------------------------- */

/* On the CPU: da and dg g of every row and head, fp32, summed over rows at the end. */
static size_t cpu_bytes(const mt_delta_rule *a) { return (size_t)(2 * a->N * a->H) * sizeof(float); }

enum { WIDEST = 128, FEWEST_HEADS = 16 }; /* of the fast kernels; with fewer heads a long document leaves a GPU idle */

bool mt__delta_is_fast(const mt_delta_rule *a)
{
    return a->t == MT_DTYPE_BF16 && a->Dk % 8 == 0 && a->Dv % 8 == 0 && a->Dk <= WIDEST && a->Dv <= WIDEST;
}

static size_t delta_rule_take(mt_delta_layout *l, int64_t n, size_t each)
{
    size_t at = l->bytes;
    l->bytes = mt_round_up(at + (size_t)n * each, 256);
    return at;
}

static void place_arrays(const mt_delta_rule *a, mt_delta_layout *l)
{
    size_t e = l->fast ? 2 : 4;
    int64_t rows = l->heads * a->N, states = l->heads * l->n_slots * l->wide_k * l->wide_v, plain = l->fast ? 0 : rows;
    l->bytes = 0;
    l->first_chunk = delta_rule_take(l, a->n_docs + 1, 4);
    l->first_slot = delta_rule_take(l, a->n_docs + 1, 4);
    l->chunks = delta_rule_take(l, mt__delta_chunks(a), sizeof(mt_delta_chunk));
    l->gamma = delta_rule_take(l, a->H * a->N, 4);
    l->beta = delta_rule_take(l, a->H * a->N, 4);
    l->sums = delta_rule_take(l, mt__delta_chunks(a) * 2 * a->H, 4);
    l->q = delta_rule_take(l, l->keys * a->N * l->wide_k, e);
    l->k = delta_rule_take(l, l->keys * a->N * l->wide_k, e);
    l->w = delta_rule_take(l, rows * l->wide_k, e);
    l->v = delta_rule_take(l, rows * l->wide_v, e);
    l->t = delta_rule_take(l, rows * ROWS, e);
    l->p = delta_rule_take(l, rows * ROWS, e);
    l->a = delta_rule_take(l, rows * ROWS, e);
    l->s = delta_rule_take(l, states, e);
    l->ds = delta_rule_take(l, states, e);
    l->dv = delta_rule_take(l, rows * l->wide_v, e);
    l->dr = delta_rule_take(l, plain * l->wide_v, 4);
    l->dq = delta_rule_take(l, plain * l->wide_k, 4);
    l->dk = delta_rule_take(l, plain * l->wide_k, 4);
    l->y = delta_rule_take(l, plain * l->wide_k, 4);
    l->m = delta_rule_take(l, plain * ROWS, 4);
    l->f = delta_rule_take(l, plain * ROWS, 4);
}

/* Bytes more heads in a group must not pass.  Plain kernels that step in for fast ones make do with what those have.  With fewer
 * rows than the scratch is for, larger groups may need more than there is: the group must fit what is there. */
static size_t most_bytes(const mt_delta_rule *a, bool fast)
{
    size_t most = fast ? (size_t)1 << 30 : (size_t)256 << 20;
    if (!fast && mt__delta_is_fast(a)) most = mt__delta_layout(a, true).bytes;
    return a->scratch_bytes && a->scratch_bytes < most ? a->scratch_bytes : most;
}

mt_delta_layout mt__delta_layout(const mt_delta_rule *a, bool fast)
{
    const size_t most = most_bytes(a, fast);
    int64_t group = a->H / a->K, fewest = fast ? mt_min_i64(a->K, (FEWEST_HEADS + group - 1) / group) : 1;
    mt_delta_layout l = { .fast = fast, .wide_k = a->Dk, .wide_v = a->Dv, .n_slots = a->N / ROWS };
    if (fast) l.wide_k = l.wide_v = a->Dk <= 64 && a->Dv <= 64 ? 64 : 128;
    for (int64_t n_groups = 1; n_groups <= a->K; n_groups++) {
        l.keys = (a->K + n_groups - 1) / n_groups;
        if (l.keys < fewest) l.keys = fewest;
        l.heads = l.keys * group;
        place_arrays(a, &l);
        if (l.bytes <= most || l.keys == fewest) break;
    }
    return l;
}

size_t mt_delta_rule_scratch(const mt_delta_rule *a)
{
    size_t bytes = cpu_bytes(a), plain = mt__delta_layout(a, false).bytes,
           fast = mt__delta_is_fast(a) ? mt__delta_layout(a, true).bytes : 0;
    if (plain > bytes) bytes = plain;
    return fast > bytes ? fast : bytes;
}

size_t mt_cache_delta_scratch(const mt_cache_delta *a)
{
    (void)a;
    return 0;
}

/* -- one row --------------------------------------------------------------------------------------- */

typedef struct job {
    const mt_delta_rule *a;
    const mt_cache_delta *cache; /* or NULL */
    atomic_bool no_memory;
} job;

/* A row's inputs to one value head, and the values of them that backward needs again. */
typedef struct row {
    float *q, *k, *v; /* normed, normed, plain */
    float rq, rk;     /* what q and k were divided by, inverted; q's without 1 / sqrt(Dk) */
    float beta, g;
    float slope; /* of g by a */
} row;

/* x / |x|, and 1 / |x|. */
static float normed(const mt_delta_rule *a, float *dst, const void *src, int64_t at)
{
    mt_to_f32(dst, mt_at(src, a->t, at), a->t, (size_t)a->Dk);
    double sum = 0;
    for (int64_t i = 0; i < a->Dk; i++) sum += (double)dst[i] * dst[i];
    float r = (float)(1.0 / sqrt(sum + 1e-6));
    for (int64_t i = 0; i < a->Dk; i++) dst[i] *= r;
    return r;
}

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

static void read_row(const mt_delta_rule *a, row *r, int64_t t, int64_t key, int64_t h)
{
    float scale = 1.0f / sqrtf((float)a->Dk), x = mt_get(a->a, a->t, t * a->ld_ab + h) + a->dt_bias[h], e = expf(a->A_log[h]);
    r->rq = normed(a, r->q, a->q, t * a->ldq + key * a->Dk);
    r->rk = normed(a, r->k, a->k, t * a->ldk + key * a->Dk);
    for (int64_t i = 0; i < a->Dk; i++) r->q[i] *= scale;
    mt_to_f32(r->v, mt_at(a->v, a->t, t * a->ldv + h * a->Dv), a->t, (size_t)a->Dv);
    r->beta = 1.0f / (1.0f + expf(-mt_get(a->b, a->t, t * a->ld_ab + h)));
    r->g = -e * softplus(x);
    r->slope = -e * (x > 20.0f ? 1.0f : 1.0f / (1.0f + expf(-x)));
}

/* S = e^g from, then the row's own share: delta = beta (v - S' k), S += k delta'.  `from` may be S. */
static void advance(const mt_delta_rule *a, const row *r, float *S, const float *from, float *delta)
{
    float decay = expf(r->g);
    for (int64_t i = 0; i < a->Dk * a->Dv; i++) S[i] = decay * from[i];
    memset(delta, 0, (size_t)a->Dv * sizeof *delta);
    for (int64_t i = 0; i < a->Dk; i++) mt_axpy(delta, r->k[i], S + i * a->Dv, a->Dv);
    for (int64_t j = 0; j < a->Dv; j++) delta[j] = r->beta * (r->v[j] - delta[j]);
    for (int64_t i = 0; i < a->Dk; i++) mt_axpy(S + i * a->Dv, r->k[i], delta, a->Dv);
}

/* -- forward --------------------------------------------------------------------------------------- */

static int64_t state_floats(const mt_delta_rule *a) { return a->Dk * a->Dv; }
static int64_t row_floats(const mt_delta_rule *a) { return 2 * a->Dk + a->Dv; }

static row row_at(const mt_delta_rule *a, float *p) { return (row){ .q = p, .k = p + a->Dk, .v = p + 2 * a->Dk }; }

static float *piece_memory(job *j, int64_t floats)
{
    float *p = mt_cpu_thread_scratch((size_t)floats * sizeof *p);
    if (!p) atomic_store(&j->no_memory, true);
    return p;
}

/* Rows of a document through one value head.  S holds the state before and after. */
static void forward_head(const mt_delta_rule *a, int64_t from, int64_t to, int64_t key, int64_t h, float *S, float *work)
{
    row r = row_at(a, work);
    float *o = work + row_floats(a), *delta = o + a->Dv;
    for (int64_t t = from; t < to; t++) {
        read_row(a, &r, t, key, h);
        advance(a, &r, S, S, delta);
        memset(o, 0, (size_t)a->Dv * sizeof *o);
        for (int64_t i = 0; i < a->Dk; i++) mt_axpy(o, r.q[i], S + i * a->Dv, a->Dv);
        mt_from_f32(mt_at_mut(a->o, a->t, t * a->ldo + h * a->Dv), a->t, o, (size_t)a->Dv);
    }
}

static void forward_piece(void *arg, int64_t index)
{
    job *j = arg;
    const mt_delta_rule *a = j->a;
    int64_t d = index / a->K, key = index % a->K, group = a->H / a->K, from = a->doc_start[d], to = a->doc_start[d + 1];
    float *work = piece_memory(j, state_floats(a) + row_floats(a) + 2 * a->Dv), *S = work + row_floats(a) + 2 * a->Dv;
    if (!work || from == to) return;
    size_t bytes = (size_t)state_floats(a) * sizeof *S;
    for (int64_t h = key * group; h < (key + 1) * group; h++) {
        float *kept = j->cache ? j->cache->state + (j->cache->slot[d] * a->H + h) * state_floats(a) : NULL;
        if (kept && j->cache->pos[from] > 0)
            memcpy(S, kept, bytes);
        else
            memset(S, 0, bytes);
        forward_head(a, from, to, key, h, S, work);
        if (kept) memcpy(kept, S, bytes);
    }
}

static mt_rc run_pieces(mt_pool *pool, job *j, mt_pool_fn piece, mt_err *err)
{
    mt_pool_for(pool, j->a->n_docs * j->a->K, piece, j);
    return j->no_memory ? mt_no_memory(err, "the states of a document") : MT_OK;
}

mt_rc mt__delta_rule_fwd_run(mt_pool *pool, const mt_delta_rule *a, mt_err *err)
{
    job j = { .a = a };
    return run_pieces(pool, &j, forward_piece, err);
}

mt_rc mt__cache_delta_run(mt_pool *pool, const mt_cache_delta *a, mt_err *err)
{
    job j = { .a = &a->d, .cache = a };
    return run_pieces(pool, &j, forward_piece, err);
}

/* -- backward -------------------------------------------------------------------------------------- */

/* Memory of a piece. */
typedef struct back {
    const mt_delta_rule *a;
    int64_t start, end, key;
    float *before;  /* [group][chunks][Dk][Dv] states before each chunk */
    float *dS;      /* [group][Dk][Dv] */
    float *S;       /* [ROWS + 1][Dk][Dv] states of a chunk's rows, the one before it first */
    float *delta;   /* [ROWS][Dv] */
    float *dq, *dk; /* [ROWS][Dk] */
    float *work;    /* a row, and three vectors of Dv */
} back;

static int64_t n_chunks_of(const back *b) { return (b->end - b->start + ROWS - 1) / ROWS; }

static bool open_back(job *j, int64_t index, back *b)
{
    const mt_delta_rule *a = j->a;
    int64_t d = index / a->K, group = a->H / a->K, n = state_floats(a);
    *b = (back){ .a = a, .start = a->doc_start[d], .end = a->doc_start[d + 1], .key = index % a->K };
    b->before =
        piece_memory(j, (group * (n_chunks_of(b) + 1) + ROWS + 1) * n + ROWS * (a->Dv + 2 * a->Dk) + row_floats(a) + 3 * a->Dv);
    if (!b->before) return false;
    b->dS = b->before + group * n_chunks_of(b) * n;
    b->S = b->dS + group * n;
    b->delta = b->S + (ROWS + 1) * n;
    b->dq = b->delta + ROWS * a->Dv;
    b->dk = b->dq + ROWS * a->Dk;
    b->work = b->dk + ROWS * a->Dk;
    return true;
}

static void store_states(const back *b, int64_t h, float *before)
{
    const mt_delta_rule *a = b->a;
    int64_t n = state_floats(a);
    row r = row_at(a, b->work);
    memset(b->S, 0, (size_t)n * sizeof *b->S);
    for (int64_t t = b->start; t < b->end; t++) {
        if ((t - b->start) % ROWS == 0) memcpy(before + (t - b->start) / ROWS * n, b->S, (size_t)n * sizeof *before);
        read_row(a, &r, t, b->key, h);
        advance(a, &r, b->S, b->S, b->delta);
    }
}

/* Row t, the i-th of its chunk: dS is the gradient of the state after it, then of the one before it. */
static void backward_row(const back *b, int64_t t, int64_t i, int64_t h, float *dS)
{
    const mt_delta_rule *a = b->a;
    row r = row_at(a, b->work);
    float *d_o = b->work + row_floats(a), *ddelta = d_o + a->Dv, *u = ddelta + a->Dv;
    const float *delta = b->delta + i * a->Dv, *old = b->S + i * state_floats(a), *S = old + state_floats(a);
    float *dq = b->dq + i * a->Dk, *dk = b->dk + i * a->Dk, dbeta = 0, dg = 0;
    read_row(a, &r, t, b->key, h);
    mt_to_f32(d_o, mt_at(a->d_o, a->t, t * a->ldo + h * a->Dv), a->t, (size_t)a->Dv);
    memset(ddelta, 0, (size_t)(2 * a->Dv) * sizeof *ddelta);
    float decay = expf(r.g);
    for (int64_t c = 0; c < a->Dk; c++) {
        mt_axpy(dS + c * a->Dv, r.q[c], d_o, a->Dv);
        dq[c] += mt_dot(S + c * a->Dv, d_o, a->Dv);
        dk[c] += mt_dot(dS + c * a->Dv, delta, a->Dv);
        mt_axpy(ddelta, r.k[c], dS + c * a->Dv, a->Dv);
        mt_axpy(u, decay * r.k[c], old + c * a->Dv, a->Dv);
    }
    for (int64_t v = 0; v < a->Dv; v++) {
        dbeta += ddelta[v] * (r.v[v] - u[v]);
        ddelta[v] *= r.beta;
    }
    mt_from_f32(mt_at_mut(a->dv, a->t, t * a->ld_d + h * a->Dv), a->t, ddelta, (size_t)a->Dv);
    for (int64_t c = 0; c < a->Dk; c++) {
        dk[c] -= decay * mt_dot(old + c * a->Dv, ddelta, a->Dv);
        mt_axpy(dS + c * a->Dv, -r.k[c], ddelta, a->Dv);
        dg += decay * mt_dot(dS + c * a->Dv, old + c * a->Dv, a->Dv);
        for (int64_t v = 0; v < a->Dv; v++) dS[c * a->Dv + v] *= decay;
    }
    float *sums = (float *)a->scratch + t * a->H + h;
    sums[0] = dg * r.g;
    sums[a->N * a->H] = dg * r.slope;
    mt_put(a->da, a->t, t * a->ld_dab + h, dg * r.slope);
    mt_put(a->db, a->t, t * a->ld_dab + h, dbeta * r.beta * (1.0f - r.beta));
}

static void backward_chunk(const back *b, int64_t from, int64_t to, int64_t h, const float *before, float *dS)
{
    const mt_delta_rule *a = b->a;
    int64_t n = state_floats(a);
    row r = row_at(a, b->work);
    memcpy(b->S, before, (size_t)n * sizeof *before);
    for (int64_t t = from; t < to; t++) {
        read_row(a, &r, t, b->key, h);
        advance(a, &r, b->S + (t - from + 1) * n, b->S + (t - from) * n, b->delta + (t - from) * a->Dv);
    }
    for (int64_t t = to; t-- > from;) backward_row(b, t, t - from, h, dS);
}

/* Gradient of x from that of y = scale x / |x|. */
static void denorm(const mt_delta_rule *a, void *dx, int64_t to, const float *dy, const float *y, float r, float scale)
{
    float along = mt_dot(y, dy, a->Dk) / scale; /* y has the factor once */
    for (int64_t i = 0; i < a->Dk; i++) mt_put(dx, a->t, to + i, r * (scale * dy[i] - y[i] * along));
}

static void write_dq_dk(const back *b, int64_t from, int64_t to)
{
    const mt_delta_rule *a = b->a;
    row r = row_at(a, b->work);
    for (int64_t t = from; t < to; t++) {
        int64_t at = t * a->ld_d + b->key * a->Dk, i = (t - from) * a->Dk;
        read_row(a, &r, t, b->key, b->key * (a->H / a->K));
        denorm(a, a->dq, at, b->dq + i, r.q, r.rq, 1.0f / sqrtf((float)a->Dk));
        denorm(a, a->dk, at, b->dk + i, r.k, r.rk, 1.0f);
    }
}

static void backward_piece(void *arg, int64_t index)
{
    back b;
    if (!open_back(arg, index, &b) || b.start == b.end) return;
    int64_t group = b.a->H / b.a->K, n = state_floats(b.a), n_chunks = n_chunks_of(&b);
    for (int64_t i = 0; i < group; i++) store_states(&b, b.key * group + i, b.before + i * n_chunks * n);
    memset(b.dS, 0, (size_t)(group * n) * sizeof *b.dS);
    for (int64_t c = n_chunks; c-- > 0;) {
        int64_t from = b.start + c * ROWS, to = mt_min_i64(b.end, from + ROWS);
        memset(b.dq, 0, (size_t)(2 * ROWS * b.a->Dk) * sizeof *b.dq);
        for (int64_t i = 0; i < group; i++)
            backward_chunk(&b, from, to, b.key * group + i, b.before + (i * n_chunks + c) * n, b.dS + i * n);
        write_dq_dk(&b, from, to);
    }
}

/* sum[h] += the column h of x [N, H], by blocks of rows. */
static void add_rows(const mt_delta_rule *a, float *sum, const float *x)
{
    for (int64_t h = 0; h < a->H; h++)
        for (int64_t t = 0; t < a->N; t += MT_SUM_ROWS) {
            float part = 0;
            for (int64_t i = t; i < mt_min_i64(a->N, t + MT_SUM_ROWS); i++) part += x[i * a->H + h];
            sum[h] += part;
        }
}

mt_rc mt__delta_rule_bwd_run(mt_pool *pool, const mt_delta_rule *a, mt_err *err)
{
    job j = { .a = a };
    MT_TRY(run_pieces(pool, &j, backward_piece, err));
    if (a->dA_log) add_rows(a, a->dA_log, (const float *)a->scratch);
    if (a->ddt_bias) add_rows(a, a->ddt_bias, (const float *)a->scratch + a->N * a->H);
    return MT_OK;
}
