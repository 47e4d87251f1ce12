#include "engine/peers.h"

#include "base/fault.h"
#include "base/mem.h"
#include "ops/ops.h"
#include "ops/sqnorm.h"
#include "schedule/slices.h"

/* One lane's slice of a unit. */
typedef struct peer_unit {
    float *totals[4];  /* sums so far: the step's, the bundle's; then the lookup's.  NULL: the first part to land is added to */
    mt_home home;      /* for units whose state or weights are in slices, like the next two */
    void *gradient;    /* finished */
    mt_event *updated; /* its newest update is done */
} peer_unit;

typedef struct peer_lane {
    mt_peer at;
    const mt_ops *ops;
    mt_stream *stream;
    mt_event *read[MT_LAND_SLOTS]; /* the slot's contents have been added */
    mt_event *done;                /* the newest finished slice is in host memory */
    float *land[MT_LAND_SLOTS], *land_tied;
    char *slice;    /* a finished slice on its way out */
    double *chunks; /* of it */
    int64_t *n_bad; /* number of weights that became non-finite in updates of slices */
    peer_unit *units;
} peer_lane;

struct mt_peers {
    const mt_plan *plan;
    int n;
    double *chunks_host; /* of the unit being folded */
    int64_t *bad_host;   /* [n] counts of the lanes at that time */
    peer_lane *lanes;    /* [n] */
};

/* Numbers from one lane's slice in a landing slot to the next lane's. */
static int64_t landing_stride(const mt_peers *p, int unit)
{
    return mt_plan_acc_stride(mt_plan_most_slice(p->plan, p->plan->model->units[unit].layout->n_train));
}

static float *landing(const mt_peers *p, int receiver, int unit, bool tied, int slot, int sender)
{
    const peer_lane *l = &p->lanes[receiver];
    return (tied ? l->land_tied : l->land[slot]) + sender * landing_stride(p, unit);
}

/* -- a lane's side --------------------------------------------------------------------------------- */

/* Each lane starts with the next one, so that they do not all send to the same lane. */
mt_rc mt_peers_send(mt_peers *p, int lane, mt_stream *s, int unit, bool tied, int slot, const float *sum, mt_err *err)
{
    for (int i = 1; i <= p->n; i++) {
        const int to = (lane + i) % p->n;
        const mt_stretch cut = mt_plan_lane_slice(p->plan, unit, to);
        if (!cut.n) continue;
        MT_TRY(mt_wait(s, p->lanes[to].read[slot], err)); /* D8 */
        MT_TRY(mt_copy_peer(s, landing(p, to, unit, tied, slot, lane), p->lanes[to].at.dev, sum + cut.first,
                            p->lanes[lane].at.dev, (size_t)cut.n * sizeof *sum, err));
    }
    return MT_OK;
}

/* -- the updater's side ---------------------------------------------------------------------------- */

/* Adds lane k's slice of all parts, in order (D2). *sum: the address of the step's sum. */
static mt_rc fold_slice(const mt_peers *p, const mt_peer_fold *f, int k, bool tied, float **sum, mt_err *err)
{
    const peer_lane *l = &p->lanes[k];
    const int64_t n = mt_plan_lane_slice(p->plan, f->unit, k).n;
    float *const *totals = l->units[f->unit].totals + (tied ? 2 : 0);
    float *sums[2] = { totals[0], totals[1] };
    for (int i = 0; i < f->n_parts; i++) {
        const mt_fold_order o = mt_fold_order_of(f->deal, f->share[i]);
        float *part = landing(p, k, f->unit, tied, f->slot, f->share[i] % p->n);
        if (o.into >= 0)
            MT_TRY(l->ops->fold(l->stream, &(mt_fold){ .n = n, .to = sums[o.into], .part = part }, err));
        else if (totals[0])
            MT_TRY(mt_copy(l->stream, sums[o.sum], part, (size_t)n * sizeof *part, MT_COPY_ON_DEVICE, err));
        else
            sums[o.sum] = part;
        if (o.ends_bundle) MT_TRY(l->ops->fold(l->stream, &(mt_fold){ .n = n, .to = sums[0], .part = sums[1] }, err));
    }
    *sum = sums[0];
    return MT_OK;
}

/* Copies the updates' count of non-finite weights to the host, then records `done`. */
static mt_rc report(mt_peers *p, int k, mt_err *err)
{
    peer_lane *l = &p->lanes[k];
    MT_TRY(mt_copy(l->stream, &p->bad_host[k], l->n_bad, sizeof *l->n_bad, MT_COPY_OUT, err));
    return mt_record(l->stream, l->done, err);
}

/* U8.  By now all updates of the previous step are counted; without clipping, updates of earlier units may be counted too. */
static mt_rc check_finite(const mt_peers *p, mt_err *err)
{
    for (int k = 0; k < p->n; k++)
        if (p->bad_host[k])
            return mt_fail(err, MT_ENUMERIC,
                           "%s: %lld weights became non-finite in an update on the device.  Resume from the last checkpoint "
                           "with a lower learning rate",
                           p->lanes[k].at.name, (long long)p->bad_host[k]);
    return MT_OK;
}

/* Rounds the slice, computes its sums of squares and, unless it stays, copies it to the host. */
static mt_rc finish_slice(mt_peers *p, const mt_peer_fold *f, int k, const float *sum, const float *tied, mt_err *err)
{
    peer_lane *l = &p->lanes[k];
    const mt_stretch cut = mt_plan_lane_slice(p->plan, f->unit, k);
    const mt_dtype t = p->plan->arithmetic.grad;
    const size_t chunks = mt_sqnorm_n_chunks((size_t)cut.n), first = (size_t)(cut.first / MT_SQNORM_CHUNK);
    void *g = f->gradient ? l->slice : l->units[f->unit].gradient;
    MT_TRY(l->ops->round_grad(l->stream, &(mt_round_grad){ .t = t, .n = cut.n, .acc = sum, .acc2 = tied, .g = g }, err));
    MT_TRY(mt_record(l->stream, l->read[f->slot], err));
    MT_TRY(l->ops->grad_norm(
        l->stream, &(mt_grad_norm){ .t = t, .n = cut.n, .g = g, .sum = l->chunks + chunks, .scratch = l->chunks }, err));
    if (f->gradient)
        MT_TRY(mt_copy(l->stream, (char *)f->gradient + (size_t)cut.first * mt_dtype_bytes(t), g,
                       (size_t)cut.n * mt_dtype_bytes(t), MT_COPY_OUT, err));
    MT_TRY(mt_copy(l->stream, p->chunks_host + first, l->chunks, chunks * sizeof *l->chunks, MT_COPY_OUT, err));
    return report(p, k, err);
}

static mt_rc fold_on(mt_peers *p, const mt_peer_fold *f, int k, mt_err *err)
{
    peer_lane *l = &p->lanes[k];
    float *sum, *tied = NULL;
    if (!mt_plan_lane_slice(p->plan, f->unit, k).n) return MT_OK;
    for (int i = 0; i < f->n_parts; i++) MT_TRY(mt_wait(l->stream, f->landed[i], err)); /* D8 */
    MT_TRY(fold_slice(p, f, k, false, &sum, err));
    if (f->tied) MT_TRY(fold_slice(p, f, k, true, &tied, err));
    return f->last ? finish_slice(p, f, k, sum, tied, err) : mt_record(l->stream, l->read[f->slot], err);
}

/* Also checks the senders: a failed sender must release its waiters. */
static mt_rc await_slices(const mt_peers *p, const mt_peer_fold *f, mt_err *err)
{
    for (int k = 0; k < p->n; k++)
        if (mt_plan_lane_slice(p->plan, f->unit, k).n && mt_sync(p->lanes[k].done, err))
            return mt_note(err, "%s", p->lanes[k].at.name);
    for (int i = 0; i < f->n_parts; i++)
        if (mt_sync(f->landed[i], err)) return mt_note(err, "%s", p->lanes[f->share[i] % p->n].at.name);
    return check_finite(p, err);
}

mt_rc mt_peers_fold(mt_peers *p, const mt_peer_fold *f, const double **chunks, mt_err *err)
{
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "folding a gradient failed (injected fault)");
    for (int k = 0; k < p->n; k++)
        if (fold_on(p, f, k, err)) return mt_note(err, "%s", p->lanes[k].at.name);
    *chunks = p->chunks_host;
    return f->last ? await_slices(p, f, err) : MT_OK;
}

/* -- state in slices ------------------------------------------------------------------------------- */

mt_home mt_peers_home(const mt_peers *p, int lane, int unit) { return p->lanes[lane].units[unit].home; }
mt_device *mt_peers_device(const mt_peers *p, int lane) { return p->lanes[lane].at.dev; }
mt_event *mt_peers_updated(const mt_peers *p, int lane, int unit) { return p->lanes[lane].units[unit].updated; }
void *mt_peers_gradient(const mt_peers *p, int lane, int unit) { return p->lanes[lane].units[unit].gradient; }

static mt_rc update_slice(peer_lane *l, int unit, const mt_optimizer *optimizer, const mt_update *whole, mt_stretch cut,
                          mt_err *err)
{
    const peer_unit *u = &l->units[unit];
    mt_update op = mt_update_part(whole, cut.first, cut.n);
    mt_home_address(&op, &u->home, u->gradient);
    op.n_bad = l->n_bad;
    MT_TRY(optimizer->on_device(l->ops, l->stream, &op, err));
    return mt_record(l->stream, u->updated, err);
}

mt_rc mt_peers_update(mt_peers *p, int unit, const mt_optimizer *optimizer, const mt_update *whole, mt_err *err)
{
    for (int k = 0; k < p->n; k++) {
        const mt_stretch cut = mt_plan_lane_slice(p->plan, unit, k);
        if (cut.n && update_slice(&p->lanes[k], unit, optimizer, whole, cut, err)) return mt_note(err, "%s", p->lanes[k].at.name);
    }
    return MT_OK;
}

static mt_rc refresh_slice(peer_lane *l, int unit, const mt_home *host, mt_stretch cut, mt_err *err)
{
    const peer_unit *u = &l->units[unit];
    const size_t bytes = (size_t)cut.n * sizeof *host->hi;
    MT_TRY(mt_copy(l->stream, u->home.hi, host->hi + cut.first, bytes, MT_COPY_IN, err));
    if (u->home.lo) MT_TRY(mt_copy(l->stream, u->home.lo, host->lo + cut.first, bytes, MT_COPY_IN, err));
    return mt_record(l->stream, u->updated, err);
}

mt_rc mt_peers_refresh(mt_peers *p, int unit, const mt_home *host, mt_err *err)
{
    for (int k = 0; k < p->n; k++) {
        const mt_stretch cut = mt_plan_lane_slice(p->plan, unit, k);
        if (cut.n && refresh_slice(&p->lanes[k], unit, host, cut, err)) return mt_note(err, "%s", p->lanes[k].at.name);
    }
    return MT_OK;
}

/* The part of numbers [first, end) that lane k has. */
static mt_rc gather_from(mt_peers *p, int lane, int k, mt_stream *s, int unit, mt_state_kind kind, int64_t first, int64_t end,
                         uint16_t *dst, mt_err *err)
{
    const mt_stretch cut = mt_plan_lane_slice(p->plan, unit, k);
    const peer_unit *u = &p->lanes[k].units[unit];
    const int64_t from = mt_max_i64(first, cut.first), to = mt_min_i64(end, cut.first + cut.n);
    if (from >= to) return MT_OK;
    MT_TRY(mt_wait(s, u->updated, err)); /* D8 */
    return mt_copy_peer(s, dst + (from - first), p->lanes[lane].at.dev,
                        (uint16_t *)mt_home_at(&u->home, kind) + (from - cut.first), p->lanes[k].at.dev,
                        (size_t)(to - from) * sizeof *dst, err);
}

/* Each lane starts with its own slice. */
mt_rc mt_peers_gather(mt_peers *p, int lane, mt_stream *s, int unit, mt_state_kind kind, int64_t first, int64_t n, uint16_t *dst,
                      mt_err *err)
{
    const int64_t trained = p->plan->model->units[unit].layout->n_train, rest = mt_max_i64(first, trained), end = first + n;
    const mt_home *own = &p->lanes[lane].units[unit].home;
    for (int i = 0; i < p->n; i++)
        MT_TRY(gather_from(p, lane, (lane + i) % p->n, s, unit, kind, first, mt_min_i64(end, trained), dst, err));
    if (rest >= end) return MT_OK;
    return mt_copy(s, dst + (rest - first),
                   (uint16_t *)mt_home_at(own, kind) + mt_plan_slice_rest(p->plan, unit) + (rest - trained),
                   (size_t)(end - rest) * sizeof *dst, MT_COPY_ON_DEVICE, err);
}

mt_rc mt_peers_settle(mt_peers *p, mt_err *err)
{
    for (int k = 0; k < p->n; k++)
        if (report(p, k, err)) return mt_note(err, "%s", p->lanes[k].at.name);
    for (int k = 0; k < p->n; k++)
        if (mt_sync(p->lanes[k].done, err)) return mt_note(err, "%s", p->lanes[k].at.name);
    return check_finite(p, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

static int64_t largest_unit(const mt_plan *p)
{
    int64_t n = 0;
    for (int u = 0; u < p->model->n_units; u++) n = mt_max_i64(n, p->model->units[u].layout->n_train);
    return n;
}

static void find_memory(const mt_peers *p, peer_lane *l)
{
    const int sums = 1 + (mt_arithmetic_bundles(&p->plan->arithmetic) > 1);
    for (int i = 0; i < MT_LAND_SLOTS; i++) l->land[i] = mt_memory_find(l->at.memory, MT_BUF_LAND, i, -1);
    l->land_tied = mt_memory_find(l->at.memory, MT_BUF_LAND_TIED, -1, -1);
    l->slice = mt_memory_find(l->at.memory, MT_BUF_SLICE, -1, -1);
    l->chunks = mt_memory_find(l->at.memory, MT_BUF_CHUNKS, -1, -1);
    l->n_bad = (int64_t *)(l->chunks + mt_sqnorm_n_chunks((size_t)mt_plan_most_slice(p->plan, largest_unit(p->plan))) + 1);
    for (int u = 0; u < p->plan->model->n_units; u++)
        for (int i = 0; i < sums; i++) {
            l->units[u].totals[i] = mt_memory_find(l->at.memory, MT_BUF_TOTAL, u, i);
            l->units[u].totals[2 + i] = mt_memory_find(l->at.memory, MT_BUF_TOTAL, u, sums + i);
        }
}

/* Clears the memory, as host memory is already. */
static mt_rc clear_state(const mt_peers *p, const peer_lane *l, int unit, const mt_home *h, mt_err *err)
{
    for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) {
        const size_t bytes = mt_plan_array_bytes(p->plan, kind, (size_t)mt_plan_slice_elems(p->plan, unit, kind));
        if (mt_home_at(h, kind)) MT_TRY(mt_fill(l->stream, mt_home_at(h, kind), 0, bytes, err));
    }
    return MT_OK;
}

static mt_rc open_state(const mt_peers *p, peer_lane *l, mt_err *err)
{
    for (int u = 0; u < p->plan->model->n_units; u++) {
        peer_unit *at = &l->units[u];
        if (!mt_plan_is_gathered(p->plan, u)) continue;
        at->home = (mt_home){ .hi = mt_memory_find(l->at.memory, MT_BUF_WEIGHT_SLICE, u, MT_STATE_HI),
                              .lo = mt_memory_find(l->at.memory, MT_BUF_WEIGHT_SLICE, u, MT_STATE_LO) };
        if (mt_plan_is_sliced(p->plan, u))
            at->home = (mt_home){ .hi = mt_memory_find(l->at.memory, MT_BUF_HI, u, -1),
                                  .lo = mt_memory_find(l->at.memory, MT_BUF_LO, u, -1) };
        for (int k = 0; mt_plan_is_sliced(p->plan, u) && k < MT_MOST_ARRAYS; k++)
            at->home.array[k] = mt_memory_find(l->at.memory, MT_BUF_ARRAY, u, k);
        at->gradient = mt_memory_find(l->at.memory, MT_BUF_GRAD_DEV, u, -1);
        MT_TRY(mt_event_create(l->at.dev, &at->updated, "update of a slice", err));
        MT_TRY(clear_state(p, l, u, &at->home, err));
    }
    MT_TRY(mt_fill(l->stream, l->n_bad, 0, sizeof *l->n_bad, err));
    MT_TRY(mt_record(l->stream, l->done, err));
    return mt_sync(l->done, err); /* the loader uses another stream */
}

static mt_rc open_peer(mt_peers *p, int k, const mt_peer *at, mt_err *err)
{
    peer_lane *l = &p->lanes[k];
    l->at = *at;
    l->ops = mt_ops_of(at->dev);
    l->units = mt_calloc((size_t)p->plan->model->n_units, sizeof *l->units);
    if (!l->units) return mt_no_memory(err, "the table of sums");
    find_memory(p, l);
    MT_TRY(at->dev->api->stream_create(at->dev, &l->stream, "fold", err));
    for (int i = 0; i < MT_LAND_SLOTS; i++) MT_TRY(mt_event_create(at->dev, &l->read[i], "gradient sums added", err));
    MT_TRY(mt_event_create(at->dev, &l->done, "a slice of a gradient sent", err));
    return open_state(p, l, err);
}

mt_rc mt_peers_create(mt_peers **out, const mt_plan *plan, const mt_peer *lanes, mt_err *err)
{
    *out = NULL;
    mt_peers *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "the lanes' sums");
    p->plan = plan;
    p->n = mt_plan_lanes(plan);
    p->chunks_host = mt_memory_find(lanes[0].memory, MT_BUF_CHUNKS_HOST, -1, -1);
    p->bad_host = (int64_t *)(p->chunks_host + mt_sqnorm_n_chunks((size_t)largest_unit(plan)));
    p->lanes = mt_calloc((size_t)p->n, sizeof *p->lanes);
    mt_rc rc = p->lanes ? MT_OK : mt_no_memory(err, "the lanes' sums");
    for (int k = 0; !rc && k < p->n; k++) {
        rc = open_peer(p, k, &lanes[k], err);
        for (int i = 0; !rc && i < k; i++) lanes[k].dev->api->reaches(lanes[k].dev, lanes[i].dev); /* enables peer access */
        if (rc) mt_note(err, "%s", lanes[k].name);
    }
    if (rc)
        mt_peers_free(p);
    else
        *out = p;
    return rc;
}

void mt_peers_stop(mt_peers *p)
{
    for (int k = 0; p && p->lanes && k < p->n; k++) {
        peer_lane *l = &p->lanes[k];
        if (l->stream) l->at.dev->api->stream_free(l->stream);
        l->stream = NULL;
    }
}

void mt_peers_free(mt_peers *p)
{
    if (!p) return;
    mt_peers_stop(p);
    for (int k = 0; p->lanes && k < p->n; k++) {
        peer_lane *l = &p->lanes[k];
        if (!l->at.dev) continue;
        for (int i = 0; i < MT_LAND_SLOTS; i++) l->at.dev->api->event_free(l->read[i]);
        l->at.dev->api->event_free(l->done);
        for (int u = 0; l->units && u < p->plan->model->n_units; u++) l->at.dev->api->event_free(l->units[u].updated);
        mt_free(l->units);
    }
    mt_free(p->lanes);
    mt_free(p);
}
