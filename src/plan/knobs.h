/* knobs.h - placements as a search sees them: a dozen numbers.  For choose.c, which looks for the fastest, and least.c, which
 * looks for the smallest. */
#ifndef MT_PLAN_KNOBS_H
#define MT_PLAN_KNOBS_H

#include "plan/plan.h"

typedef enum knob {
    MICROS,        /* micro-batches of a sweep */
    INTERVAL,      /* layers redone from one kept input */
    KEEP_ALL,      /* layers that keep everything: of those in host memory, then from the first */
    KEEP_CHEAP,    /* of those of them that keep it on the device, from the first, so many their norms; beyond all of them,
                       activations again from the first; not searched for */
    KEEP_MIXER,    /* the next so many keep input and what the mixer made, the rest their input */
    OFFLOADED,     /* layers whose kept activations go to host memory, spread */
    HOMES,         /* units, from the first (needed first, ready last), whose masters and state live on the device */
    HOMES_SKIP,    /* ... but not the embedding, which may be too large */
    STAGED,        /* the next so many are updated through the device, in memory they borrow */
    OWN,           /* ... but for the first so many of them, whose state would arrive last: they have memory of their own
                     * there */
    PIECES,        /* of what the host would update, this many PIECE_SHARES of each unit are updated on the device in pieces; not
                     * searched for until the rest is settled, like the next */
    PIECE_SIZE,    /* of a piece, in elements: a power of two, this one; follows from the device */
    KEEP_SLOTS,    /* that kept activations pass through on their way to host memory */
    RESIDENT,      /* of the other layers' units, spread, weights that stay on the device through the step */
    ENDS_RESIDENT, /* embedding and head too */
    ACC_HOST,      /* gradients wait in host memory between sweeps */
    RING,
    GRAD_SLOTS,
    SLABS,
    PEERS,  /* several lanes: their sums meet on the devices, and HOMES are in slices; not searched for */
    GATHER, /* ... and weights of the other units are gathered from slices; not searched for, either */
    KNOBS
} knob;

enum { PIECE_SHARES = 32 };

/* A placement, by its knobs. */
typedef struct candidate {
    int k[KNOBS];
} candidate;

/* What each may be, for a model, a job and what the settings allow. */
typedef struct knob_ranges {
    int lowest[KNOBS], highest[KNOBS];
} knob_ranges;

/* Rows that a sweep grows by. */
int64_t mt__knobs_micro(const mt_plan *trial);
/* Of the trial's model, job and arithmetic. */
mt_rc mt__knobs_ranges(knob_ranges *r, const mt_plan *trial, const mt_machine *m, mt_err *err);
/* The sums of several lanes may meet on the devices: they reach each other, and nothing is to be rounded or sent to other
 * machines before it is added. */
bool mt__knobs_may_use_peers(const mt_job *j, const mt_arithmetic *a, const mt_machine *m);
/* The trial's placement, whose arrays are there, from knobs within their ranges. */
void mt__knobs_fill(mt_plan *trial, const candidate *c);

/* The smallest placement there is, with the memory it takes. */
typedef struct mt_least {
    bool fits;
    candidate c;  /* of the least host memory among those whose device memory fits, where there are any */
    mt_need need; /* found so far: where one fits, the search may have ended with it */
} mt_least;

/* Does anything fit?  The answer never changes from yes to no when memory grows or a step gets shorter: which placements are
 * looked at does not depend on that, but for those that are larger than others in every way.  all: to the end, for `need`.  The
 * trial's placement is used. */
mt_rc mt__least_find(mt_least *out, mt_plan *trial, const knob_ranges *r, const mt_machine *m, bool all, mt_err *err);
/* The error that says what is short. */
mt_rc mt__least_refuse(const mt_least *l, const mt_plan *trial, const mt_machine *m, mt_err *err);

#endif
