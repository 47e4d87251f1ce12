/* fold.c - adds up the gradients of several lanes: their fp32 sums land in host memory share by share, and are added, rounded and
 * squared there.
 *
 * A round is one share of each lane.  The updater's thread takes the parts of a round and a unit when the last of them is queued,
 * waits until they have landed, and adds them in the order of shares (D2), piece by piece on all cores.  After the last round the
 * gradient is finished: rounded, squared and summed (A3).  It is then applied, or waits for the global norm.
 *
 * Every lane queues its parts by rounds, and within a round in the order of backward, which is the same for all.  So the first
 * parts that wait belong together, and a lane that waits for a landing slot waits only for lanes that are further back: there is
 * no cycle. */
#include "base/fault.h"
#include "engine/state_internal.h"
#include "ops/sqnorm.h"
#include "schedule/slices.h"

#include <string.h>

_Static_assert(MT_FOLD_PIECE % MT_SQNORM_CHUNK == 0, "no chunk of the norm is cut");

/* -- the lanes' side ------------------------------------------------------------------------------- */

static int count_trained(const mt_state *s)
{
    int n = 0;
    for (int u = 0; u < s->model->n_units; u++) n += mt__state_layout(s, u)->n_train > 0;
    return n;
}

mt_rc mt_state_set_peers(mt_state *s, mt_peers *peers, mt_err *err)
{
    s->folder.peers = peers;
    return mt__homes_add_lanes(s, err);
}

void mt_state_begin_parts(mt_state *s, const mt_deal *deal, bool early)
{
    folder *f = &s->folder;
    pthread_mutex_lock(&s->watch->lock);
    f->deal = deal;
    f->early = early;
    f->expected += count_trained(s);
    for (int u = 0; u < s->model->n_units; u++) f->units[u].round = 0;
    if (s->exchange) mt__exchange_begin(s);
    pthread_mutex_unlock(&s->watch->lock);
}

mt_rc mt_state_await_parts(mt_state *s, int lane, int64_t n, mt_err *err)
{
    return mt_watch_reach(s->watch, &s->folder.lanes[lane].folded, n, err);
}

mt_rc mt_state_push_part(mt_state *s, int lane, const mt_share_sum *part, mt_err *err)
{
    fold_lane *l = &s->folder.lanes[lane];
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "the updater refused a gradient (injected fault)");
    pthread_mutex_lock(&s->watch->lock);
    l->parts[l->pushed % MT_LAND_SLOTS] = *part;
    l->pushed++;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
    return MT_OK;
}

mt_rc mt_state_await_folds(mt_state *s, mt_err *err)
{
    return mt_watch_reach(s->watch, &s->folder.finished, s->folder.expected, err);
}

const double *mt_state_norms(const mt_state *s) { return s->folder.norms; }

/* -- the updater's side ---------------------------------------------------------------------------- */

/* The share of a lane in a round; -1: none, or one without documents. */
static int share_of(const mt_state *s, int round, int lane)
{
    const int share = mt_plan_share(s->plan, round, lane);
    return share >= 0 && mt_deal_docs(s->folder.deal, share) ? share : -1;
}

/* True if the round completes a sum: the step's, or with several machines a bundle's. */
static bool completes(const mt_state *s, int round)
{
    if (share_of(s, round + 1, 0) < 0) return true;
    return s->exchange && (round + 1) % mt_plan_bundle_rounds(s->plan) == 0;
}

static const mt_share_sum *first_part(const folder *f, int lane)
{
    const fold_lane *l = &f->lanes[lane];
    return l->folded < l->pushed ? &l->parts[l->folded % MT_LAND_SLOTS] : NULL;
}

/* Only the last shares of a step can be without documents, so the first lane takes part in every round. */
bool mt__folds_ready(const mt_state *s)
{
    const folder *f = &s->folder;
    const mt_share_sum *first = f->n_lanes ? first_part(f, 0) : NULL;
    if (!first) return false;
    const int round = f->units[first->unit].round;
    for (int l = 1; l < f->n_lanes; l++)
        if (share_of(s, round, l) >= 0 && !first_part(f, l)) return false;
    return !s->exchange || !completes(s, round) || mt__exchange_slot(s, &(int){ 0 });
}

/* The parts of one unit and round, by shares. */
typedef struct fold_job {
    const folder *f;
    const fold_unit *unit;
    int64_t n; /* elements */
    int n_parts;
    int *lane, *share;  /* [n_parts] */
    mt_share_sum *part; /* [n_parts] */
    mt_dtype t;
    void *g;     /* the finished gradient; NULL: more rounds follow, or other machines' sums are missing */
    bool leaves; /* several machines: a bundle's sum is made, */
    void *send;  /* which leaves from here once it is complete; NULL: more rounds follow */
} fold_job;

static float *part_sum(const mt_share_sum *p, bool tied) { return tied ? p->tied : p->sum; }

/* Adds a rounded bundle to the step's sum, which starts at zero: in `total`, or in place of the first bundle. */
static float *add_rounded(float *total, float *sum, float *bundle, bool first, int64_t from, int64_t to)
{
    if (!first) {
        mt_fold_range(&(mt_fold){ .to = sum, .part = bundle, .bf16 = true }, from, to);
        return sum;
    }
    float *step = total ? total : bundle;
    for (int64_t i = from; i < to; i++) step[i] = 0.0f + mt_bf16_to_f32(mt_f32_to_bf16(bundle[i]));
    return step;
}

/* Adds elements [from, to) of the parts, in order.  Returns the address of the step's sum. */
static float *fold_range(const fold_job *j, bool tied, int64_t from, int64_t to)
{
    float *const *totals = j->unit->totals + (tied ? 2 : 0);
    float *sum[2] = { totals[0], totals[1] };
    for (int i = 0; i < j->n_parts; i++) {
        const mt_fold_order o = mt_fold_order_of(j->f->deal, j->share[i]);
        float *part = part_sum(&j->part[i], tied);
        if (o.into >= 0)
            mt_fold_range(&(mt_fold){ .to = sum[o.into], .part = part }, from, to);
        else if (totals[0])
            memcpy(sum[o.sum] + from, part + from, (size_t)(to - from) * sizeof *part);
        else
            sum[o.sum] = part;
        if (o.ends_bundle && j->f->deal->rounds)
            sum[0] = add_rounded(totals[0], sum[0], sum[1], o.first_bundle, from, to);
        else if (o.ends_bundle)
            mt_fold_range(&(mt_fold){ .to = sum[0], .part = sum[1] }, from, to);
    }
    return sum[0];
}

/* The same for a bundle, with several machines. */
static void fold_bundle(const fold_job *j, bool tied, int64_t from, int64_t to)
{
    const mt_dtype t = j->f->deal->rounds ? MT_DTYPE_BF16 : MT_DTYPE_F32;
    float *total = j->unit->totals[tied ? 2 : 0], *sum = total;
    for (int i = 0; i < j->n_parts; i++) {
        float *part = part_sum(&j->part[i], tied);
        const bool first = j->share[i] % j->f->deal->shares == 0;
        if (first && total)
            memcpy(sum + from, part + from, (size_t)(to - from) * sizeof *sum);
        else if (first)
            sum = part; /* the first part to land is added to */
        else
            mt_fold_range(&(mt_fold){ .to = sum, .part = part }, from, to);
    }
    if (!j->send) return;
    char *send = (char *)j->send + (tied ? (size_t)j->n * mt_dtype_bytes(t) : 0);
    mt_round_range(&(mt_round_grad){ .t = t, .n = j->n, .acc = sum, .g = send }, from, to);
}

static void fold_piece(void *arg, int64_t piece)
{
    const fold_job *j = arg;
    const int64_t from = piece * MT_FOLD_PIECE, to = mt_min_i64(from + MT_FOLD_PIECE, j->n);
    if (j->leaves) {
        fold_bundle(j, false, from, to);
        if (j->part[0].tied) fold_bundle(j, true, from, to);
        return;
    }
    const float *sum = fold_range(j, false, from, to), *tied = j->part[0].tied ? fold_range(j, true, from, to) : NULL;
    if (!j->g) return;
    mt_round_range(&(mt_round_grad){ .t = j->t, .n = j->n, .acc = sum, .acc2 = tied, .g = j->g }, from, to);
    const size_t first = (size_t)(from / MT_SQNORM_CHUNK), end = mt_sqnorm_n_chunks((size_t)to);
    mt_sqnorm_chunks(&(mt_sqnorm_args){ j->g, j->t, (size_t)j->n }, first, end - first, j->f->chunk_norms + first);
}

/* Takes the next parts, which stay in their slots until they are released. */
static void take_parts(mt_state *s, fold_job *j, int *unit)
{
    folder *f = &s->folder;
    pthread_mutex_lock(&s->watch->lock);
    *unit = first_part(f, 0)->unit;
    const int round = f->units[*unit].round;
    for (int l = 0; l < f->n_lanes; l++) {
        const int share = share_of(s, round, l);
        if (share < 0) continue;
        j->lane[j->n_parts] = l;
        j->share[j->n_parts] = share;
        j->part[j->n_parts++] = *first_part(f, l);
    }
    pthread_mutex_unlock(&s->watch->lock);
}

static void release_parts(mt_state *s, const fold_job *j)
{
    folder *f = &s->folder;
    pthread_mutex_lock(&s->watch->lock);
    for (int i = 0; i < j->n_parts; i++) f->lanes[j->lane[i]].folded++;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

static mt_rc check_part(const fold_job *j, int i, int unit, mt_err *err)
{
    const bool same_slot = !j->f->peers || j->part[i].slot == j->part[0].slot; /* on the host each lane has its own slot */
    if (j->part[i].unit == unit && same_slot) return MT_OK;
    return mt_fail(err, MT_EINTERNAL, "lanes sum units %d and %d at once: a bug, please report it", unit, j->part[i].unit);
}

static mt_rc await_parts(const fold_job *j, int unit, mt_err *err)
{
    for (int i = 0; i < j->n_parts; i++) {
        MT_TRY(check_part(j, i, unit, err));
        if (mt_sync(j->part[i].landed, err)) return mt_note(err, "%s", j->part[i].device);
    }
    return mt_fault(MT_FAULT_QUEUE) ? mt_fail(err, MT_EDEVICE, "folding a gradient failed (injected fault)") : MT_OK;
}

/* The same on the devices, each its slice: waiters on the slots' events may then reuse them. */
static mt_rc fold_by_peers(mt_state *s, const fold_job *j, int unit, bool last, mt_err *err)
{
    folder *f = &s->folder;
    const double *chunks;
    for (int i = 0; i < j->n_parts; i++) {
        MT_TRY(check_part(j, i, unit, err));
        f->job_landed[i] = j->part[i].landed;
    }
    const mt_peer_fold fold = { .unit = unit,
                                .slot = j->part[0].slot,
                                .tied = mt_unit_is_tied(s->model, unit),
                                .n_parts = j->n_parts,
                                .share = j->share,
                                .landed = f->job_landed,
                                .deal = f->deal,
                                .last = last,
                                .gradient = mt_plan_is_sliced(s->plan, unit) ? NULL : j->g };
    MT_TRY(mt_peers_fold(f->peers, &fold, &chunks, err));
    if (last) f->norms[unit] = mt_sqnorm_add(chunks, mt_sqnorm_n_chunks((size_t)j->n));
    return MT_OK;
}

static mt_rc fold_on_host(mt_state *s, fold_job *j, int unit, mt_err *err)
{
    folder *f = &s->folder;
    MT_TRY(await_parts(j, unit, err));
    mt_pool_for(s->updater.pool, (j->n + MT_FOLD_PIECE - 1) / MT_FOLD_PIECE, fold_piece, j);
    if (j->g) f->norms[unit] = mt_sqnorm_add(f->chunk_norms, mt_sqnorm_n_chunks((size_t)j->n));
    return MT_OK;
}

/* The sum leaves from the slot in which all machines expect it. */
static mt_rc find_send(mt_state *s, fold_job *j, int unit, mt_err *err)
{
    int expected;
    pthread_mutex_lock(&s->watch->lock);
    j->send = mt__exchange_slot(s, &expected);
    pthread_mutex_unlock(&s->watch->lock);
    if (j->send && expected == unit) return MT_OK;
    return mt_fail(err, MT_EINTERNAL, "machines exchange unit %d and this one has summed unit %d: a bug, please report it",
                   expected, unit);
}

mt_rc mt__folds_finished(mt_state *s, int unit, mt_err *err)
{
    folder *f = &s->folder;
    if (f->early) MT_TRY(mt__updater_apply(s, unit, err));
    mt_watch_raise(s->watch, &f->finished, f->finished + 1);
    return MT_OK;
}

static mt_rc fold_parts(mt_state *s, fold_job *j, mt_err *err)
{
    folder *f = &s->folder;
    int unit;
    take_parts(s, j, &unit);
    fold_unit *u = &f->units[unit];
    const bool last = completes(s, u->round);
    j->unit = u;
    j->n = mt__state_layout(s, unit)->n_train;
    if (last && j->leaves) MT_TRY(find_send(s, j, unit, err));
    const bool finished = last && !j->leaves; /* otherwise other machines' sums are still missing */
    if (finished) j->g = u->gradient ? u->gradient : f->slab;
    MT_TRY(f->peers ? fold_by_peers(s, j, unit, finished, err) : fold_on_host(s, j, unit, err));
    if (!finished) u->round++; /* before the parts are released: the next ones belong to the next round */
    release_parts(s, j);
    if (j->send) mt__exchange_folded(s);
    return finished ? mt__folds_finished(s, unit, err) : MT_OK;
}

mt_rc mt__folds_run(mt_state *s, mt_err *err)
{
    folder *f = &s->folder;
    fold_job j = { .f = f,
                   .t = s->plan->arithmetic.grad,
                   .lane = f->job_lanes,
                   .share = f->job_shares,
                   .part = f->job_parts,
                   .leaves = s->exchange != NULL };
    return fold_parts(s, &j, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

static mt_rc allocate(folder *f, size_t n_units, size_t largest, mt_err *err)
{
    const size_t lanes = (size_t)f->n_lanes;
    f->lanes = mt_calloc(lanes, sizeof *f->lanes);
    f->job_lanes = mt_calloc(lanes, sizeof *f->job_lanes);
    f->job_shares = mt_calloc(lanes, sizeof *f->job_shares);
    f->job_parts = mt_calloc(lanes, sizeof *f->job_parts);
    f->job_landed = mt_calloc(lanes, sizeof *f->job_landed);
    f->units = mt_calloc(n_units, sizeof *f->units);
    f->norms = mt_calloc(n_units, sizeof *f->norms);
    f->chunk_norms = mt_calloc(mt_sqnorm_n_chunks(largest) + 1, sizeof *f->chunk_norms);
    if (f->lanes && f->job_lanes && f->job_shares && f->job_parts && f->job_landed && f->units && f->norms && f->chunk_norms)
        return MT_OK;
    return mt_no_memory(err, "the tables of several lanes");
}

mt_rc mt__folds_create(mt_state *s, const mt_memory *memory, mt_err *err)
{
    folder *f = &s->folder;
    const mt_plan *p = s->plan;
    int64_t largest = 0;
    if (!mt_plan_by_shares(p)) return MT_OK;
    for (int u = 0; u < s->model->n_units; u++) largest = mt_max_i64(largest, mt__state_layout(s, u)->n_train);
    f->n_lanes = mt_plan_lanes(p);
    MT_TRY(allocate(f, (size_t)s->model->n_units, (size_t)largest, err));
    f->slab = mt_memory_find(memory, MT_BUF_SLAB, 0, -1);
    for (int u = 0; u < s->model->n_units; u++) {
        const int sums = mt_plan_total_count(p);
        f->units[u].gradient = mt_memory_find(memory, MT_BUF_PARKED, u, -1);
        for (int i = 0; i < sums; i++) {
            f->units[u].totals[i] = mt_memory_find(memory, MT_BUF_TOTAL, u, i);
            f->units[u].totals[2 + i] = mt_memory_find(memory, MT_BUF_TOTAL, u, sums + i);
        }
    }
    return MT_OK;
}

void mt__folds_free(mt_state *s)
{
    folder *f = &s->folder;
    mt_free(f->lanes);
    mt_free(f->job_lanes);
    mt_free(f->job_shares);
    mt_free(f->job_parts);
    mt_free(f->job_landed);
    mt_free(f->units);
    mt_free(f->norms);
    mt_free(f->chunk_norms);
}
