/* op_declare.h - what the files of cases share: a case's arguments and its buffers. */
#ifndef MT_TESTS_OP_DECLARE_H
#define MT_TESTS_OP_DECLARE_H

#include "op_cases.h"

#include "base/mem.h"

/* The cases of each op. */
#define MT_OP(n)  extern const op_spec spec_##n;
#define MT_OP1(n) extern const op_spec spec_##n;
#include "ops/ops.def"

/* Declares `type *a` in the run's arguments, set to the case's, with the dtype filled in. */
#define ARGS(type, from)                                                                                                         \
    type *a = (type *)(void *)r->args;                                                                                           \
    _Static_assert(sizeof(type) <= OP_ARGS_BYTES, "raise OP_ARGS_BYTES");                                                        \
    *a = (from)

#define CHECKED_OP(op, backward, same_bits, checker)                                                                             \
    const op_spec spec_##op = { #op, OP_ID_##op, (int)MT_COUNT(op##_cases), backward, same_bits, declare_##op, checker };

static inline void links(op_run *r, op_buf *out, op_buf *seed) { out->seed = op_index(r, seed); }
static inline void grows(op_run *r, op_buf *in, op_buf *grad) { in->grad = op_index(r, grad); }
static inline void may_share(op_run *r, op_buf *b, op_buf *with) { b->shares = op_index(r, with); }

/* The case asks for more than the op's plain form: devices without that trait skip it. */
static inline void needs(op_run *r, bool it_does, uint32_t trait)
{
    if (it_does) r->traits |= trait;
}

static inline void set_ints(op_buf *b, int64_t n, int64_t (*value)(const op_run *, int64_t), const op_run *r)
{
    for (int64_t i = 0; i < n; i++) op_set(b, 0, i, (double)value(r, i));
}

static inline op_buf *add_ints(op_run *r, const void *field, const char *name, int64_t n)
{
    return op_add(r, field, name, OP_INPUT, MT_DTYPE_I32, 1, n, 0);
}

static inline op_buf *add_scratch(op_run *r, const void *field, size_t bytes)
{
    return op_add(r, field, "scratch", OP_SCRATCH, MT_DTYPE_U8, 1, (int64_t)bytes, 0);
}

#endif
