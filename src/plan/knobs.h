/* knobs.h - a placement as the search sees it: a dozen numbers. choose.c searches for the fastest, least.c for the smallest. */
#ifndef MT_PLAN_KNOBS_H
#define MT_PLAN_KNOBS_H

#include "plan/search.h"

typedef enum knob {
    MICROS,        /* micro-batches of a sweep */
    INTERVAL,      /* layers recomputed from one kept input */
    KEEP_ALL,      /* layers that keep everything: first those kept in host memory, then from the first layer on */
    KEEP_CHEAP,    /* of the layers that keep on the device, counted from the first, this many also keep their norms; a larger
                    * number means activations too, again from the first; not searched */
    KEEP_MIXER,    /* the next n keep their input and the mixer's output, the rest only their input */
    OFFLOADED,     /* layers whose kept activations go to host memory, spread evenly */
    HOMES,         /* units whose home is the device, from the first (which is needed first and ready last) */
    HOMES_SKIP,    /* ... except the embedding, which may be too large */
    STAGED,        /* the next n have staged updates in reused memory */
    OWN,           /* ... except the first n of them, whose state would arrive last: they get private staging slots */
    PIECES,        /* PIECE_SHARES of each host-updated unit that run on the device in pieces; searched last, like the next */
    PIECE_SIZE,    /* log2 of a piece's elements; follows from the device */
    KEEP_SLOTS,    /* slots for kept activations on their way to host memory */
    RESIDENT,      /* resident units among the other layers, spread evenly */
    ENDS_RESIDENT, /* embedding and head are resident too */
    ACC_HOST,      /* gradients wait in host memory between sweeps */
    RING,
    GRAD_SLOTS,
    SLABS,
    PEERS,  /* several lanes: sums are added on the devices, and HOMES are in slices; not searched */
    GATHER, /* ... and weights of the other units are gathered from slices; not searched either */
    KNOBS
} knob;

enum { PIECE_SHARES = 32 };

/* A placement, by its knobs. */
typedef struct candidate {
    int k[KNOBS];
} candidate;

/* The range of each knob for a model, a job and the settings' limits. */
typedef struct knob_ranges {
    int lowest[KNOBS], highest[KNOBS];
} knob_ranges;

/* For the trial's model, job and arithmetic. */
mt_rc mt__knobs_ranges(knob_ranges *r, const mt_plan *trial, const mt_machine *m, mt_err *err);
/* True if the devices can add the sums of several lanes: they reach each other, and nothing must be rounded or sent to another
 * machine before it is added. */
bool mt__knobs_may_use_peers(const mt_job *j, const mt_arithmetic *a, const mt_machine *m);
/* Fills the trial's placement (its arrays exist) from knobs that are within their ranges. */
void mt__knobs_fill(mt_plan *trial, const candidate *c);

/* The smallest placement there is, with the memory it takes. */
typedef struct mt_least {
    bool fits;
    candidate c;  /* the one with the least host memory among those that fit the device, if any does */
    mt_need need; /* the smallest found so far; the search may end once one fits */
} mt_least;

/* True if any placement fits.  More memory or a shorter step never turns yes into no: the placements tried do not depend on
 * either, except that those larger than others in every way are skipped. all: search to the end, for `need`.  Overwrites the
 * trial's placement. */
mt_rc mt__least_find(mt_least *out, mt_plan *trial, const knob_ranges *r, const mt_machine *m, bool all, mt_err *err);
/* Fails with an error that names what is short. */
mt_rc mt__least_refuse(const mt_least *l, const mt_plan *trial, const mt_machine *m, mt_err *err);

#endif
