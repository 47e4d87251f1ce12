/* ops_traced.c - a table of ops that writes down what it queues (device/trace.h) and leaves the work to the device's own table.
 * Products say which they are: their shapes, and in backward whether they make dw or dx, which are queued one by one for that. */
#include "device/trace.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct label {
    char name[MT_TRACE_NAME];
    double flops;
} label;

/* An op's work as the pieces that are timed apart; at most two. */
static int split_plain(void *parts, const void *a, size_t bytes)
{
    memcpy(parts, a, bytes);
    return 1;
}

static int split_product(void *parts, const void *a, size_t bytes)
{
    mt_linear *p = parts;
    (void)bytes;
    p[0] = p[1] = *(const mt_linear *)a;
    if (!p[0].dx || !(p[0].dw || p[0].db)) return 1;
    p[0].dx = NULL; /* the order in which an op does both */
    p[1].dw = p[1].db = NULL;
    return 2;
}

static int split_grouped(void *parts, const void *a, size_t bytes)
{
    mt_grouped_linear *p = parts;
    (void)bytes;
    p[0] = p[1] = *(const mt_grouped_linear *)a;
    if (!p[0].dx || !(p[0].dw || p[0].db || p[0].dweights)) return 1;
    p[0].dx = NULL; /* as above */
    p[1].dw = p[1].db = p[1].dweights = NULL;
    return 2;
}

static label name_plain(const char *fn, const void *a)
{
    label l = { .flops = 0 };
    (void)a;
    snprintf(l.name, sizeof l.name, "%s", fn);
    return l;
}

/* Which of its three products a call computes. */
static const char *direction(const void *dy, const void *dx)
{
    if (!dy) return "fwd";
    return dx ? "dx" : "dw";
}

static label name_product(const char *fn, const void *a)
{
    const mt_linear *p = a;
    label l = { .flops = 2.0 * (double)p->M * (double)p->N * (double)p->K };
    (void)fn;
    snprintf(l.name, sizeof l.name, "linear_%s %lldx%lld", direction(p->dy, p->dx), (long long)p->N, (long long)p->K);
    return l;
}

/* How many rows the experts of a call have is known on the device alone, so no FLOPs here.  The name has what run/spent.c estimates them
 * from: the number of experts, and the most rows they can have. */
static label name_grouped(const char *fn, const void *a)
{
    const mt_grouped_linear *p = a;
    label l = { .flops = 0 };
    (void)fn;
    snprintf(l.name, sizeof l.name, "experts_%s %lldx%lld, %lld to %lld", direction(p->dy, p->dx), (long long)p->N,
             (long long)p->K, (long long)p->M, (long long)p->c);
    return l;
}

#define SPLIT(a)                                                                                                                 \
    _Generic((a), const mt_linear * : split_product, const mt_grouped_linear * : split_grouped, default : split_plain)
#define NAME(a) _Generic((a), const mt_linear * : name_product, const mt_grouped_linear * : name_grouped, default : name_plain)

#define TRACED(fn, type)                                                                                                         \
    static mt_rc traced_##fn(mt_stream *s, const type *a, mt_err *err)                                                           \
    {                                                                                                                            \
        type parts[2];                                                                                                           \
        int n = SPLIT(a)(parts, a, sizeof *a);                                                                                   \
        for (int i = 0; i < n; i++) {                                                                                            \
            label l = NAME(a)(#fn, &parts[i]);                                                                                   \
            MT_TRY(mt_trace_begin(s, MT_TRACE_OP, l.name, l.flops, 0, err));                                                     \
            MT_TRY(mt_ops_of(s->dev)->fn(s, &parts[i], err));                                                                    \
            MT_TRY(mt_trace_end(s, err));                                                                                        \
        }                                                                                                                        \
        return MT_OK;                                                                                                            \
    }

#define MT_OP(n)                                                                                                                 \
    TRACED(n##_fwd, mt_##n)                                                                                                      \
    TRACED(n##_bwd, mt_##n)
#define MT_OP1(n) TRACED(n, mt_##n)
#include "ops/ops.def"

const mt_ops mt_ops_traced = {
#define MT_OP(n)  .n##_fwd = traced_##n##_fwd, .n##_bwd = traced_##n##_bwd,
#define MT_OP1(n) .n = traced_##n,
#include "ops/ops.def"
    .traits = MT_TRAITS_ALL, /* never asked: the device's own table was */
};
