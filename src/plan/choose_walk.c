/* choose_walk.c - from a start to a better placement: turns one knob or two at a time while that helps, in ever smaller steps. */
#include "plan/choose_internal.h"

#include <math.h>

enum { DEAREST = 6 }; /* steps of one knob that a step of another may cost */
#define FAR_OFF 1.25  /* starts this much slower than the best are not worth a walk */

static mt_rc try_turn(search *s, start *at, const candidate *c, bool *moved, mt_err *err)
{
    merit m;
    MT_TRY(mt__choose_judge(s, c, at->m, &m, err));
    if (!merit_better(m, at->m)) return MT_OK;
    const bool tiny = m.fits && at->m.fits && m.cost > 0.9999 * at->m.cost;
    if (!tiny) *moved = true; /* a tiny gain is taken but not worth another round */
    at->c = *c;
    at->m = m;
    return MT_OK;
}

/* Step sizes of a knob: `part` of its range, at least one. */
static int stride(const search *s, int k, int part)
{
    return (int)mt_max_i64((s->range.highest[k] - s->range.lowest[k]) / part, 1);
}

static mt_rc turn_one(search *s, start *at, int part, bool *moved, mt_err *err)
{
    for (int k = 0; k < KNOBS; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            candidate c = at->c;
            if (mt__choose_turn(s, &c, k, sign * stride(s, k, part))) MT_TRY(try_turn(s, at, &c, moved, err));
        }
    return MT_OK;
}

/* Trades one step of knob `to` for as many steps of knob `from` as its memory needs: a unit's state is worth several layers' kept
 * inputs. */
static mt_rc trade(search *s, start *at, int from, int step, int to, int part, bool *moved, mt_err *err)
{
    candidate c = at->c;
    merit m;
    if (!mt__choose_turn(s, &c, from, step) || !mt__choose_turn(s, &c, to, stride(s, to, part))) return MT_OK;
    for (int i = 1; i < (s->rough ? 2 : DEAREST); i++) {
        MT_TRY(mt__choose_judge(s, &c, at->m, &m, err));
        if (m.fits || !at->m.fits || !mt__choose_turn(s, &c, from, step)) break;
    }
    return try_turn(s, at, &c, moved, err);
}

/* Memory taken from one use and given to another. */
static mt_rc turn_two(search *s, start *at, int part, bool *moved, mt_err *err)
{
    static const int memory[] = { MICROS,   KEEP_ALL,  KEEP_MIXER, HOMES, STAGED,    OWN,
                                  RESIDENT, OFFLOADED, INTERVAL,   RING,  GRAD_SLOTS };
    for (size_t i = 0; i < MT_COUNT(memory); i++)
        for (size_t j = 0; j < MT_COUNT(memory); j++)
            for (int sign = -1; sign <= 1 && i != j && !search_is_spent(s); sign += 2) {
                const bool more_frees = memory[i] == OFFLOADED || memory[i] == STAGED || memory[i] == INTERVAL;
                if (sign < 0 || more_frees)
                    MT_TRY(trade(s, at, memory[i], sign * stride(s, memory[i], part), memory[j], part, moved, err));
            }
    return MT_OK;
}

/* Turns knobs by a part of their ranges while that helps. */
static mt_rc walk_from(search *s, start *at, int part, mt_err *err)
{
    bool moved = true;
    for (int round = 0; moved && round < 12 && !search_is_spent(s); round++) {
        moved = false;
        MT_TRY(turn_one(s, at, part, &moved, err));
        if (!moved) MT_TRY(turn_two(s, at, part, &moved, err));
    }
    return MT_OK;
}

const start *mt__choose_best(const search *s)
{
    const start *best = &s->starts[0];
    for (int i = 1; i < STARTS; i++)
        if (merit_better(s->starts[i].m, best->m)) best = &s->starts[i];
    return best;
}

/* True if a start is not worth another walk: it is as good as an earlier one and so probably the same but for knobs that do not
 * matter; it still does not fit while others do; or it is slower than the best by more than finer steps are likely to gain. */
static bool left_behind(const search *s, int i, double far)
{
    const merit *at = &s->starts[i].m, *best = &mt__choose_best(s)->m;
    for (int j = 0; j < i; j++)
        if (s->starts[j].m.fits == at->fits && fabs(s->starts[j].m.cost - at->cost) <= 1e-4 * at->cost) return true;
    if (!best->fits) return false;
    if (!at->fits) return far < FAR_OFF; /* a walk in the largest steps may still make it fit */
    return at->cost > far * fmin(best->cost, s->give_up);
}

void mt__choose_thin_out(search *s, int left)
{
    for (int i = 0; i < STARTS; i++) {
        int ahead = 0;
        for (int j = 0; j < STARTS; j++)
            ahead += start_exists(&s->starts[j]) &&
                     (merit_better(s->starts[j].m, s->starts[i].m) || (j < i && !merit_better(s->starts[i].m, s->starts[j].m)));
        if (ahead >= left) s->starts[i].dropped = true;
    }
}

/* Step sizes, getting smaller, and how much slower than the best a start may be to continue. */
static const struct {
    int part;
    double far;
} levels[LEVELS] = { { 4, FAR_OFF }, { 8, 1.06 }, { 16, 1.03 }, { 32, 1.02 }, { 64, 1.01 }, { 128, 1.005 } };

mt_rc mt__choose_walk_levels(search *s, int from, int to, mt_err *err)
{
    bool finest = false;
    for (int l = from; l < to && !finest; l++) {
        for (int i = 0; i < STARTS; i++)
            if (start_exists(&s->starts[i]) && !s->starts[i].dropped && !left_behind(s, i, levels[l].far))
                MT_TRY(walk_from(s, &s->starts[i], levels[l].part, err));
        finest = stride(s, HOMES, levels[l].part) == 1 && stride(s, KEEP_ALL, levels[l].part) == 1 &&
                 stride(s, MICROS, levels[l].part) == 1;
    }
    return MT_OK;
}
