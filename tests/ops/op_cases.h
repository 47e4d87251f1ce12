/* op_cases.h - the op runner: every op of ops.def, a table of cases for each, and one way to run them.
 *
 * A case is an op's argument struct with its shapes filled in.  Declaring a case lists its buffers (op_buf): what is
 * read, what is written, which buffer holds whose gradient.  Everything else follows from that list: random inputs,
 * poisoned outputs, the copies to and from a device, and the checks.
 *
 *     op_run *r = op_run_create(spec, case_index, &(op_how){ .t = MT_DTYPE_BF16, .seed = 7 });
 *     op_execute(r, device, true, &err);           // forward and backward; results in r->bufs[i].result
 *     op_run_free(r);
 *
 * The table of specs is expanded from ops.def: an op without cases does not link. */
#ifndef MT_TESTS_OP_CASES_H
#define MT_TESTS_OP_CASES_H

#include "base/dtype.h"
#include "device/device.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum op_kind {
    OP_INPUT,   /* read only: comes back as it was */
    OP_OUTPUT,  /* poisoned before; every element is written */
    OP_SUM,     /* added to: starts with numbers in it */
    OP_INOUT,   /* read, then written */
    OP_SCRATCH, /* poisoned before, not looked at */
} op_kind;

enum { OP_FWD = 1, OP_BWD = 2, OP_BOTH = 3, OP_NOWHERE = -1, OP_MAX_BUFS = 20, OP_ARGS_BYTES = 512 };

typedef struct op_buf {
    const char *name;
    op_kind kind;
    mt_dtype t;
    int64_t rows, width, ld;      /* elements; elements between width and ld must not be touched */
    int slot;                     /* byte offset of the pointer in the op's arguments, or OP_NOWHERE */
    int phases;                   /* in which the pointer is set */
    int grad;                     /* INPUT: the buffer of its gradient, or OP_NOWHERE */
    int seed;                     /* OUTPUT: the buffer whose start is the loss's gradient to it, or OP_NOWHERE */
    int shares;                   /* in-place runs: the buffer whose memory this one uses, or OP_NOWHERE */
    double floor;                 /* size of an element below which an error is not relative to it any more */
    unsigned char *init, *result; /* [rows, ld] */
    void *base, *dev;             /* device memory, and where the buffer starts in it */
} op_buf;

typedef struct op_how {
    mt_dtype t;
    uint64_t seed;
    bool rounded;                /* inputs hold bf16 values whatever t is */
    bool in_place;               /* take the liberties ops.h allows */
    int skew;                    /* buffers start this many elements past an aligned address */
    const mt_attention_use *use; /* attention: which kernels, or NULL: the case's */
} op_how;

typedef struct op_run op_run;

typedef enum op_id {
#define MT_OP(n)  OP_ID_##n,
#define MT_OP1(n) OP_ID_##n,
#include "ops/ops.def"
    OP_COUNT
} op_id;

typedef struct op_spec {
    const char *name;
    op_id id;
    int n_cases;
    bool has_bwd;
    bool exact; /* the same bits on every device */
    void (*declare)(op_run *r, int case_index);
    const char *(*check)(const op_run *r); /* more that must hold after a run; NULL: fine */
} op_spec;

struct op_run {
    const op_spec *spec;
    int case_index;
    op_how how;
    uint32_t traits; /* MT_TRAIT bits the case needs of a device */
    mt_device *on;   /* while it is placed */
    mt_stream *stream;
    mt_event *done;
    int n_bufs;
    op_buf bufs[OP_MAX_BUFS];
    _Alignas(16) unsigned char args[OP_ARGS_BYTES];
};

extern const op_spec *const op_specs[OP_COUNT];
/* Attention over thousands of rows, for devices that are fast enough: short sequences hide races. */
extern const op_spec op_long_attention;
extern const op_spec op_tall_norm;     /* on a GPU alone: of many wide rows */
extern const op_spec op_large_linear;  /* on a GPU alone: products so large that kernels of our own make them */
extern const op_spec op_large_experts; /* on a GPU alone: products of more tiles than it has processors */
extern const op_spec op_huge_attention;
/* Packings of every kind, bf16 and heads that the fused kernels of a library know. */
extern const op_spec op_packed_attention;

/* Where random inputs begin: MT_SEED, or always the same. */
uint64_t op_seed(void);

op_run *op_run_create(const op_spec *spec, int case_index, const op_how *how);
void op_run_free(op_run *r);

/* Copy in, run forward (and backward), copy out.  The device is idle before and after. */
mt_rc op_execute(op_run *r, mt_device *dev, bool backward, mt_err *err);
/* The same again and again, in less time: inputs stay on the device, what is written is poisoned before each run, results alone
 * come back. */
mt_rc op_place(op_run *r, mt_device *dev, mt_err *err);
mt_rc op_run_placed(op_run *r, bool backward, mt_err *err);
void op_unplace(op_run *r); /* after op_place, whatever it returned */

/* -- for declaring, and for looking at results ----------------------------------------------------- */

/* A buffer of rows x width whose pointer is *field (in r->args).  Inputs get normal numbers of deviation 1. */
op_buf *op_add(op_run *r, const void *field, const char *name, op_kind kind, mt_dtype t, int64_t rows, int64_t width, int64_t ld);
op_buf *op_named(op_run *r, const char *name); /* NULL: the case has none */
int op_index(const op_run *r, const op_buf *b);
void op_scale(op_run *r, op_buf *b, double deviation, double mean); /* fill again with these */

size_t op_bytes(const op_buf *b);
double op_get(const op_buf *b, const unsigned char *data, int64_t row, int64_t col);
void op_set(op_buf *b, int64_t row, int64_t col, double x); /* of init */

/* After a whole run: NULL, or what is wrong: an element not written, not finite, a gap or an input touched. */
const char *op_check_written(const op_run *r);
/* |a - b| / (|b| + floor sqrt(n)) over the buffer, Euclidean. */
double op_distance(const op_buf *a, const op_buf *b);
bool op_is_result(const op_buf *b); /* written by the op and worth comparing */

#endif
