/* layout.c - the place of each weight in its unit's block.
 *
 *     | decayed | exact || trained | exact || frozen | exact || frozen, no low halves || frozen, packed |
 *     0                 n_decay            n_train           n_low                    n_hi             n_elems
 *
 * Each stretch between two bars is a run: weights in the order of their list, each product's weights without a gap between them.
 * The exact runs, one after the other, are the unit's exact numbers. */
#include "model/model_internal.h"

/* A region's exact run follows its other numbers. */
enum { DECAYS, DECAYS_EXACT, TRAINS, TRAINS_EXACT, FROZEN, FROZEN_EXACT, FROZEN_NO_LOW, FROZEN_PACKED, RUNS };

static int run_of(const mt_weight *w)
{
    if (w->packing.form != MT_FORM_NUMBERS) return FROZEN_PACKED;
    if (w->no_low) return FROZEN_NO_LOW;
    if (w->frozen) return FROZEN + w->exact;
    return (w->decay ? DECAYS : TRAINS) + w->exact;
}

/* Tensors of one product stay contiguous: all of them are packed or none, and low halves are omitted for all or for none. */
static void agree_on_form(mt_layout *l, const mt_layer_kind *k)
{
    for (int first = 0, end; first < l->n_weights; first = end) {
        end = first + 1;
        while (end < l->n_weights && mt__roles_side_by_side(k, l->weights[end - 1].role, l->weights[end].role)) end++;
        bool no_low = true, packed = true;
        for (int i = first; i < end; i++) {
            no_low &= l->weights[i].no_low || !l->weights[i].frozen;
            packed &= l->weights[i].packing.form != MT_FORM_NUMBERS;
        }
        for (int i = first; i < end; i++) {
            l->weights[i].no_low &= no_low && !packed;
            if (!packed) l->weights[i].packing = (mt_packing){ .form = MT_FORM_NUMBERS };
        }
    }
}

/* Places the weights of a run from element `at` on; returns its end. */
static int64_t place_run(mt_layout *l, const mt_layer_kind *k, int run, int64_t at)
{
    const mt_weight *before = NULL;
    for (int i = 0; i < l->n_weights; i++) {
        mt_weight *w = &l->weights[i];
        if (run_of(w) != run) continue;
        if (!before || !mt__roles_side_by_side(k, before->role, w->role)) at = (int64_t)mt_round_up((size_t)at, MT_BLOCK_ALIGN);
        w->offset = at;
        w->packed_at = l->packed_bytes;
        l->packed_bytes += mt_packing_bytes(&w->packing);
        if (l->at[w->role] < 0) l->at[w->role] = at;
        l->trains[w->role] = !w->frozen;
        at += w->n;
        before = w;
    }
    return (int64_t)mt_round_up((size_t)at, MT_BLOCK_ALIGN);
}

static void place_exact(mt_layout *l, const int64_t ends[RUNS])
{
    for (int i = 0; i < MT_EXACT_RUNS; i++) {
        int run = DECAYS_EXACT + 2 * i;
        l->exact[i] = (mt_exact_run){ ends[run - 1], ends[run] - ends[run - 1], l->n_exact };
        l->n_exact += l->exact[i].n;
    }
    for (int i = 0; i < l->n_weights; i++) {
        const mt_weight *w = &l->weights[i];
        const mt_exact_run *run = w->exact ? &l->exact[run_of(w) / 2] : NULL;
        if (run && l->exact_at[w->role] < 0) l->exact_at[w->role] = run->at + l->at[w->role] - run->first;
    }
}

static double trained_part(const mt_layout *l)
{
    int64_t all = 0, trained = 0;
    for (int i = 0; i < l->n_weights; i++) {
        const mt_weight *w = &l->weights[i];
        if (w->n_dims < 2 || w->fixed) continue;
        all += w->n;
        trained += w->frozen ? 0 : w->n;
    }
    return all ? (double)trained / (double)all : 1;
}

void mt__layout_place(mt_layout *l, const mt_layer_kind *k)
{
    int64_t ends[RUNS];
    for (int role = 0; role < MT_ROLES; role++) l->at[role] = l->exact_at[role] = -1;
    agree_on_form(l, k);
    for (int run = 0; run < RUNS; run++) ends[run] = place_run(l, k, run, run ? ends[run - 1] : 0);
    l->n_decay = ends[DECAYS_EXACT];
    l->n_train = ends[TRAINS_EXACT];
    l->n_low = ends[FROZEN_EXACT];
    l->n_hi = ends[FROZEN_NO_LOW];
    l->n_elems = ends[FROZEN_PACKED];
    place_exact(l, ends);
    l->trained_part = trained_part(l);
}

static bool packed_alike(const mt_packing *a, const mt_packing *b)
{
    return a->form == b->form && a->block == b->block && a->block_rows == b->block_rows && a->ordered == b->ordered;
}

bool mt__layout_equal(const mt_layout *a, const mt_layout *b)
{
    if (a->n_weights != b->n_weights || a->n_elems != b->n_elems) return false;
    for (int i = 0; i < a->n_weights; i++) {
        const mt_weight *x = &a->weights[i], *y = &b->weights[i];
        if (x->role != y->role || x->offset != y->offset || x->n != y->n || x->frozen != y->frozen) return false;
        if (x->exact != y->exact || x->no_low != y->no_low || !packed_alike(&x->packing, &y->packing)) return false;
    }
    return true;
}
