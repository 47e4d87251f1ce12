/* exchange_units.c - sums, norms and weights of a step, between machines.
 *
 * Machine m of n computes bundles m, m + n, ... of a step, and stores a slice of each unit's state.  A unit passes through
 *
 *     fold      fold.c adds the lanes' sums of a bundle on this machine, into a slot
 *     exchange  the slot's sums go to the machines that own slices of them; their sums of our slice arrive
 *     reduce    bundles are added in order (D2); after the last one the slice is rounded and squared, chunk by chunk
 *     gather    every machine gets the sums of all chunks, so all run the same tree (A3, N8) and decide from the same numbers (N5)
 *     update    the slice is updated once the norm is known: that of all units, or without clipping that of this unit (U5)
 *     weights   the new slice goes to all machines, and theirs arrive; then lanes may read the unit's weights
 *
 * Lanes do not know about this: to them, a unit whose weights are on their way has an update on the host that is not done.
 *
 * All machines exchange units in the order of backward, and bundles in the same order, because a machine computes its bundles one
 * after the other.  So a machine that waits for a slot waits only for machines that are further back: there is no cycle (N6).
 * Weights are received at their home.  That happens after this machine's own update of the unit: then no lane reads the old
 * weights any more (R4), and no snapshot has the unit locked (H1). */
#include "base/fault.h"
#include "engine/exchange.h"
#include "ops/sqnorm.h"

#include <stdio.h>
#include <string.h>

/* -- a pass ---------------------------------------------------------------------------------------- */

static bool has_documents(const mt_state *s, int bundle)
{
    const mt_deal *d = s->folder.deal;
    return bundle < d->bundles && d->first[(bundle + 1) * d->shares] > d->first[bundle * d->shares];
}

static int unit_of(const exchange *x, int64_t item) { return x->order[(item - x->pass) % x->n_order]; }
static int turn_of(const exchange *x, int64_t item) { return (int)((item - x->pass) / x->n_order); }
static int64_t n_items(const exchange *x) { return x->pass + (int64_t)x->turns * x->n_order; }
static int64_t n_own(const exchange *x) { return x->pass + (int64_t)x->own_turns * x->n_order; }

static exchange_slot *slot_of(const mt_state *s, int64_t item)
{
    exchange *x = s->exchange;
    const int k = (int)((item - x->pass) % x->n_order);
    if (s->model->units[x->order[k]].layer < 0) return &x->slots[MT_LAND_ENDS];
    return &x->slots[((int64_t)turn_of(x, item) * x->n_layers + x->layer_rank[k]) % MT_LAND_TURNS];
}

/* This machine's slice of another's sum, in a slot. */
static char *received(const mt_state *s, const exchange_slot *slot, int unit, int from, bool tied)
{
    const exchange *x = s->exchange;
    const int others = x->machines - 1, k = (from - x->me + x->machines) % x->machines - 1;
    return slot->receive + (size_t)((k + (tied ? others : 0)) * mt_plan_own_slice(s->plan, unit).n) * mt_plan_sent_bytes(s->plan);
}

/* Elements from `first` on of this machine's sum. */
static char *own_sum(const mt_state *s, const exchange_slot *slot, int unit, int64_t first, bool tied)
{
    return slot->send + (size_t)(first + (tied ? mt__state_layout(s, unit)->n_train : 0)) * mt_plan_sent_bytes(s->plan);
}

static void sum_received(void *self, void *mark);

static void expect_sum(mt_state *s, exchange_slot *slot, int unit, int from, bool tied)
{
    const size_t bytes = (size_t)mt_plan_own_slice(s->plan, unit).n * mt_plan_sent_bytes(s->plan);
    slot->to_reduce++;
    mt__exchange_post(s, &(mt_parcel){ .peer = from,
                                       .tag = unit * TAGS_OF_UNIT + (tied ? TAG_SUM_TIED : TAG_SUM),
                                       .in_turn = true,
                                       .data = received(s, slot, unit, from, tied),
                                       .bytes = bytes,
                                       .what = s->exchange->units[unit].sum,
                                       .done = sum_received,
                                       .mark = slot });
}

/* Gives the next items their slots, in order, and expects the other machines' sums in them.  With the lock held. */
static void open_items(mt_state *s)
{
    exchange *x = s->exchange;
    while (x->opened < n_items(x) && slot_of(s, x->opened)->item < 0) {
        const int64_t item = x->opened++;
        const int unit = unit_of(x, item), turn = turn_of(x, item);
        exchange_slot *slot = slot_of(s, item);
        slot->item = item;
        slot->to_reduce = item < n_own(x);
        slot->to_free = 1;
        for (int k = 1; k < x->machines && mt_plan_own_slice(s->plan, unit).n; k++) {
            const int from = mt__exchange_peer(x, k);
            if (!has_documents(s, turn * x->machines + from)) continue;
            expect_sum(s, slot, unit, from, false);
            if (mt_unit_is_tied(s->model, unit)) expect_sum(s, slot, unit, from, true);
        }
    }
    pthread_cond_broadcast(&s->watch->changed);
}

void mt__exchange_begin(mt_state *s)
{
    exchange *x = s->exchange;
    x->pass = x->folded = x->opened; /* all items of the pass before are reduced; some may still leave */
    x->turns = x->own_turns = 0;
    while (has_documents(s, x->turns * x->machines)) x->turns++;
    while (has_documents(s, x->own_turns * x->machines + x->me)) x->own_turns++;
    open_items(s);
}

/* -- sums ------------------------------------------------------------------------------------------ */

static void free_slot(mt_state *s, exchange_slot *slot)
{
    if (--slot->to_free) return;
    slot->item = -1;
    open_items(s);
}

static void sum_received(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    ((exchange_slot *)mark)->to_reduce--;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

static void sum_sent(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    free_slot(s, mark);
    pthread_mutex_unlock(&s->watch->lock);
}

static void send_sum(mt_state *s, exchange_slot *slot, int unit, int to, bool tied)
{
    const mt_stretch slice = mt_plan_slice(s->plan, unit, to);
    if (!slice.n) return;
    slot->to_free++;
    mt__exchange_post(s, &(mt_parcel){ .peer = to,
                                       .sends = true,
                                       .tag = unit * TAGS_OF_UNIT + (tied ? TAG_SUM_TIED : TAG_SUM),
                                       .data = own_sum(s, slot, unit, slice.first, tied),
                                       .bytes = (size_t)slice.n * mt_plan_sent_bytes(s->plan),
                                       .what = s->exchange->units[unit].sum,
                                       .done = sum_sent,
                                       .mark = slot });
}

void *mt__exchange_slot(const mt_state *s, int *unit)
{
    const exchange *x = s->exchange;
    *unit = -1;
    if (x->folded >= n_own(x) || slot_of(s, x->folded)->item != x->folded) return NULL;
    *unit = unit_of(x, x->folded);
    return slot_of(s, x->folded)->send;
}

void mt__exchange_folded(mt_state *s)
{
    exchange *x = s->exchange;
    pthread_mutex_lock(&s->watch->lock);
    const int unit = unit_of(x, x->folded);
    exchange_slot *slot = slot_of(s, x->folded++);
    for (int k = 1; k < x->machines; k++) {
        send_sum(s, slot, unit, mt__exchange_peer(x, k), false);
        if (mt_unit_is_tied(s->model, unit)) send_sum(s, slot, unit, mt__exchange_peer(x, k), true);
    }
    slot->to_reduce--;
    pthread_cond_broadcast(&s->watch->changed);
    pthread_mutex_unlock(&s->watch->lock);
}

/* -- bundles to a gradient -------------------------------------------------------------------------- */

/* The addition of one item: the bundles' sums of this machine's slice of a unit. */
typedef struct reduction {
    const mt_state *s;
    const exchange_slot *slot;
    int unit, turn;
    mt_stretch slice;
    bool tied, last; /* after the last one the gradient is finished */
    void *g;
    double *chunks;
} reduction;

static void *bundle_sum(const reduction *r, int machine, bool tied)
{
    if (machine != r->s->exchange->me) return received(r->s, r->slot, r->unit, machine, tied);
    return own_sum(r->s, r->slot, r->unit, r->slice.first, tied);
}

/* Adds elements [from, to) of bundles that are rounded to bf16: the step's sum starts at zero.  Returns where it is. */
static float *reduce_rounded(const reduction *r, bool tied, int64_t from, int64_t to)
{
    const exchange *x = r->s->exchange;
    float *sum = x->units[r->unit].totals[tied];
    if (!r->turn) memset(sum + from, 0, (size_t)(to - from) * sizeof *sum);
    for (int m = 0; m < x->machines && has_documents(r->s, r->turn * x->machines + m); m++) {
        const uint16_t *part = bundle_sum(r, m, tied);
        for (int64_t i = from; i < to; i++) sum[i] += mt_bf16_to_f32(part[i]);
    }
    return sum;
}

/* Adds elements [from, to) of the slice's bundles: in `totals` if there are several turns, else to the first bundle.  Returns where
 * the step's sum is. */
static float *reduce_range(const reduction *r, bool tied, int64_t from, int64_t to)
{
    const exchange *x = r->s->exchange;
    float *total = x->units[r->unit].totals[tied], *sum = r->turn ? total : NULL;
    if (mt_arithmetic_rounds(&r->s->plan->arithmetic)) return reduce_rounded(r, tied, from, to);
    for (int m = 0; m < x->machines && has_documents(r->s, r->turn * x->machines + m); m++) {
        float *part = bundle_sum(r, m, tied);
        if (sum) {
            mt_fold_range(&(mt_fold){ .to = sum, .part = part }, from, to);
        } else if (total) {
            sum = total;
            memcpy(sum + from, part + from, (size_t)(to - from) * sizeof *sum);
        } else {
            sum = part;
        }
    }
    return sum;
}

static void reduce_piece(void *arg, int64_t piece)
{
    const reduction *r = arg;
    const mt_dtype t = r->s->plan->arithmetic.grad;
    const int64_t n = r->slice.n, from = piece * MT_FOLD_PIECE, to = mt_min_i64(from + MT_FOLD_PIECE, n);
    const float *sum = reduce_range(r, false, from, to), *tied = r->tied ? reduce_range(r, true, from, to) : NULL;
    if (!r->last) return;
    mt_round_range(&(mt_round_grad){ .t = t, .n = n, .acc = sum, .acc2 = tied, .g = r->g }, from, to);
    const size_t first = (size_t)(from / MT_SQNORM_CHUNK), end = mt_sqnorm_n_chunks((size_t)to);
    mt_sqnorm_chunks(&(mt_sqnorm_args){ r->g, t, (size_t)n }, first, end - first, r->chunks + first);
}

static void gather_chunks(mt_state *s, int unit);

static mt_rc reduce_next(mt_state *s, mt_err *err)
{
    exchange *x = s->exchange;
    const int64_t item = x->reduced; /* changed by this thread alone */
    exchange_slot *slot = slot_of(s, item);
    const int unit = unit_of(x, item), turn = turn_of(x, item);
    const mt_stretch slice = mt_plan_own_slice(s->plan, unit);
    reduction r = { .s = s,
                    .slot = slot,
                    .unit = unit,
                    .turn = turn,
                    .slice = slice,
                    .tied = mt_unit_is_tied(s->model, unit),
                    .last = turn + 1 == x->turns,
                    .g = s->folder.units[unit].gradient,
                    .chunks = x->units[unit].chunks + slice.first / MT_SQNORM_CHUNK };
    if (mt_fault(MT_FAULT_QUEUE)) return mt_fail(err, MT_EDEVICE, "adding sums of machines failed (injected fault)");
    mt_pool_for(s->updater.pool, (slice.n + MT_FOLD_PIECE - 1) / MT_FOLD_PIECE, reduce_piece, &r);
    pthread_mutex_lock(&s->watch->lock);
    x->reduced++;
    if (r.last) gather_chunks(s, unit);
    free_slot(s, slot);
    pthread_mutex_unlock(&s->watch->lock);
    return MT_OK;
}

/* -- norms ----------------------------------------------------------------------------------------- */

/* One of the parcels of a unit's chunks is done.  After the last one the unit's norm is known here. */
static void chunks_done(mt_state *s, int unit)
{
    exchange *x = s->exchange;
    if (--x->units[unit].chunks_left) return;
    s->folder.norms[unit] = mt_sqnorm_add(x->units[unit].chunks, mt_sqnorm_n_chunks((size_t)mt__state_layout(s, unit)->n_train));
    if (s->folder.early)
        x->applies[x->applies_pushed++ % s->model->n_units] = unit;
    else
        s->folder.finished++;
    pthread_cond_broadcast(&s->watch->changed);
}

static void chunks_moved(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    chunks_done(s, (int)((exchange_unit *)mark - s->exchange->units));
    pthread_mutex_unlock(&s->watch->lock);
}

static void move_chunks(mt_state *s, int unit, int peer, bool sends)
{
    exchange_unit *u = &s->exchange->units[unit];
    const mt_stretch slice = mt_plan_slice(s->plan, unit, sends ? s->exchange->me : peer);
    if (!slice.n) return;
    u->chunks_left++;
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .sends = sends,
                                       .tag = unit * TAGS_OF_UNIT + TAG_CHUNKS,
                                       .data = u->chunks + slice.first / MT_SQNORM_CHUNK,
                                       .bytes = mt_sqnorm_n_chunks((size_t)slice.n) * sizeof *u->chunks,
                                       .what = u->norm,
                                       .done = chunks_moved,
                                       .mark = u });
}

static void gather_chunks(mt_state *s, int unit)
{
    exchange *x = s->exchange;
    x->units[unit].chunks_left = 1;
    for (int k = 1; k < x->machines; k++) {
        move_chunks(s, unit, mt__exchange_peer(x, k), true);
        move_chunks(s, unit, mt__exchange_peer(x, k), false);
    }
    chunks_done(s, unit);
}

/* -- weights --------------------------------------------------------------------------------------- */

static void weights_done(mt_state *s, int unit)
{
    exchange *x = s->exchange;
    if (--x->units[unit].weights_left) return;
    s->units[unit].updated = x->units[unit].version;
    x->weights_done++;
    pthread_cond_broadcast(&s->watch->changed);
}

static void weights_moved(void *self, void *mark)
{
    mt_state *s = self;
    pthread_mutex_lock(&s->watch->lock);
    s->exchange->done++;
    weights_done(s, (int)((exchange_unit *)mark - s->exchange->units));
    pthread_mutex_unlock(&s->watch->lock);
}

static void move_weights(mt_state *s, int unit, int peer, bool sends, bool low)
{
    exchange_unit *u = &s->exchange->units[unit];
    const mt_home *h = &s->units[unit].home;
    const mt_stretch slice = mt_plan_slice(s->plan, unit, sends ? s->exchange->me : peer);
    if (!slice.n) return;
    u->weights_left++;
    mt__exchange_post(s, &(mt_parcel){ .peer = peer,
                                       .sends = sends,
                                       .tag = unit * TAGS_OF_UNIT + (low ? TAG_LO : TAG_HI),
                                       .in_turn = true,
                                       .data = low ? (void *)(h->lo + slice.first) : (void *)(h->hi + slice.first),
                                       .bytes = (size_t)slice.n * 2,
                                       .what = u->weights,
                                       .done = weights_moved,
                                       .mark = u });
}

void mt__exchange_weights(mt_state *s, int unit, int64_t version)
{
    exchange *x = s->exchange;
    pthread_mutex_lock(&s->watch->lock);
    x->weights_begun++;
    x->units[unit].version = version;
    x->units[unit].weights_left = 1;
    for (int k = 1; k < x->machines; k++)
        for (int low = 0; low <= mt_plan_low_is_whole(s->plan, unit); low++) {
            move_weights(s, unit, mt__exchange_peer(x, k), true, low);
            move_weights(s, unit, mt__exchange_peer(x, k), false, low);
        }
    weights_done(s, unit);
    pthread_mutex_unlock(&s->watch->lock);
}

bool mt__exchange_owes(const mt_state *s) { return s->exchange->weights_done < s->exchange->weights_begun; }

/* -- the updater's side ---------------------------------------------------------------------------- */

exchange_work mt__exchange_ready(const mt_state *s)
{
    const exchange *x = s->exchange;
    if (!x) return EXCHANGE_NOTHING;
    if (x->reduced < x->opened && !slot_of(s, x->reduced)->to_reduce) return EXCHANGE_REDUCE;
    if (x->applies_done < x->applies_pushed) return EXCHANGE_APPLY;
    return EXCHANGE_NOTHING;
}

mt_rc mt__exchange_run(mt_state *s, exchange_work what, mt_err *err)
{
    exchange *x = s->exchange;
    if (what == EXCHANGE_REDUCE) return reduce_next(s, err);
    pthread_mutex_lock(&s->watch->lock);
    const int unit = x->applies[x->applies_done++ % s->model->n_units];
    pthread_mutex_unlock(&s->watch->lock);
    return mt__folds_finished(s, unit, err);
}

/* -- life ------------------------------------------------------------------------------------------ */

static void add_to_order(mt_state *s, int unit)
{
    exchange *x = s->exchange;
    if (!mt__state_layout(s, unit)->n_train) return;
    x->layer_rank[x->n_order] = x->n_layers;
    x->n_layers += s->model->units[unit].layer >= 0;
    x->order[x->n_order++] = unit;
}

/* The order in which backward finishes units (schedule/sequence.c): the head, layers from the last, each after its experts, the
 * embedding. */
static void list_order(mt_state *s)
{
    const mt_model *m = s->model;
    if (m->head != m->embed) add_to_order(s, m->head);
    for (int l = (int)m->config->L - 1; l >= 0; l--) {
        for (int i = 1; i < m->layers[l].n; i++) add_to_order(s, m->layers[l].first + i);
        add_to_order(s, m->layers[l].first);
    }
    add_to_order(s, m->embed);
}

void mt__exchange_open_units(mt_state *s, const mt_memory *memory)
{
    list_order(s);
    char name[MT_NAME_BYTES];
    for (int u = 0; u < s->model->n_units; u++) {
        exchange_unit *at = &s->exchange->units[u];
        mt_unit_name(s->model, u, name);
        snprintf(at->sum, sizeof at->sum, "the gradient of the %s", name);
        snprintf(at->norm, sizeof at->norm, "the norm of the %s", name);
        snprintf(at->weights, sizeof at->weights, "the weights of the %s", name);
        for (int i = 0; i < 2; i++) at->totals[i] = mt_memory_find(memory, MT_BUF_SLICE_TOTAL, u, i);
        at->chunks = mt_memory_find(memory, MT_BUF_UNIT_CHUNKS, u, -1);
    }
    for (int i = 0; i < MT_LAND_SLOTS; i++)
        s->exchange->slots[i] = (exchange_slot){ .send = mt_memory_find(memory, MT_BUF_SEND, i, -1),
                                                 .receive = mt_memory_find(memory, MT_BUF_RECEIVE, i, -1),
                                                 .item = -1 };
}
