/* optimizer.h - the table of optimizers.  Everything else asks it: the planner for bytes, the engine for updates, checkpoints for
 * names, settings for choices.
 *
 *     a row    name, arrays of state, granularity, coefficients, the update on the host and on a device
 *     state.h  bytes and layouts of a unit's state, whatever the row
 *
 * An update is mt_update (ops/update.h): the same structure for every optimizer, wherever it runs.  The engine makes one for each
 * unit and step, narrows it to the part that a lane, a machine or a piece has (mt_update_part), gives it addresses, and hands it to
 * the row.  docs/adding-an-optimizer.md says what a new one needs. */
#ifndef MT_OPTIM_OPTIMIZER_H
#define MT_OPTIM_OPTIMIZER_H

#include "base/pool.h"
#include "ops/ops.h"
#include "optim/state.h"

/* Settings of an update, and its number. */
typedef struct mt_update_step {
    double lr; /* of this step: after the schedule */
    double beta1, beta2, eps;
    double weight_decay; /* 0 for parameters without */
    double grad_scale;   /* 1, or less to clip */
    int64_t t;           /* 1 for the first update */
} mt_update_step;

/* What must stay together when an update is cut over threads, pieces, lanes and machines. */
typedef enum mt_granularity {
    MT_BY_ELEMENT, /* nothing but a block of moments: elements do not depend on each other */
    MT_BY_MATRIX,  /* a weight: plans that cut units are refused */
} mt_granularity;

typedef struct mt_optimizer {
    const char *name;                      /* as optimizer.type has it */
    const char *title;                     /* in messages: "AdamW" */
    const char *arrays_title, *host_title; /* in reports: what its arrays are, and its work on the host */
    int n_arrays;
    struct {
        const char *tail; /* of its tensors' names in checkpoints */
        bool is_square;   /* never negative: the 8-bit form has no sign */
    } arrays[MT_MOST_ARRAYS];
    mt_granularity granularity;
    double device_bytes; /* of device memory that an update of one number in fp32 moves */
    mt_update_coef (*coef)(const mt_update_step *step);
    double beta2;  /* if optimizer.beta2 is not set */
    bool uses_eps; /* optimizer.eps has an effect */
    /* Numbers [from, to) on the calling thread, whose memory they must be; `from` begins a block of moments and so does `to`, unless
     * it is n.  Returns how many left the finite range. */
    size_t (*on_host)(const mt_update *u, int64_t from, int64_t to);
    /* Queues all of it. */
    mt_rc (*on_device)(const mt_ops *ops, mt_stream *s, const mt_update *u, mt_err *err);
} mt_optimizer;

const mt_optimizer *mt_optimizer_of(mt_optimizer_kind kind);
bool mt_optimizer_from_name(const char *name, mt_optimizer_kind *out);

/* Numbers [first, first + n) as a separate update, with the same result; first begins a block of moments. */
mt_update mt_update_part(const mt_update *whole, int64_t first, int64_t n);

/* -- for the rows: updates on the host, a register or a number at a time ------------------------------ */

typedef struct mt_update_args {
    uint16_t *hi; /* [n] each; need no alignment beyond their type's; must not overlap */
    int16_t *lo;
    float *m, *v;    /* the optimizer's arrays; v: NULL if it has one */
    const void *g;   /* [n] */
    mt_dtype g_type; /* MT_DTYPE_BF16 or MT_DTYPE_F32 */
    size_t n;
    mt_update_coef coef;
} mt_update_args;

/* Both return how many numbers left the finite range. */
typedef struct mt_update_impl {
    const char *name;
    bool (*supported)(void);
    size_t (*update)(const mt_update_args *args);
    /* With arrays of a smaller form: reads a whole block of them into args' m and v, updates all, and stores them. */
    size_t (*update_block)(const mt_update_args *args, const mt_moments_chunk *block);
} mt_update_impl;

/* The first that this CPU supports; the last is always supported. */
const mt_update_impl *mt_update_best(const mt_update_impl *impls);
/* on_host of an optimizer by element, with this implementation of it. */
size_t mt_update_numbers(const mt_update_impl *impl, const mt_update *u, int64_t from, int64_t to);
/* The op of the CPU device: all of it, over a pool's threads. */
void mt_update_over_pool(mt_pool *pool, const mt_optimizer *optimizer, const mt_update *u);

/* args without its first n_done numbers: what a vector loop leaves over. */
static inline mt_update_args mt__update_rest(const mt_update_args *args, size_t n_done)
{
    mt_update_args rest = *args;
    rest.hi += n_done;
    rest.lo += n_done;
    rest.m += n_done;
    rest.v = args->v ? args->v + n_done : NULL;
    rest.g = (const char *)args->g + n_done * (args->g_type == MT_DTYPE_BF16 ? 2 : 4);
    rest.n -= n_done;
    return rest;
}

#endif
