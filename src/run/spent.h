/* spent.h - where a traced step's time went: the spans of a trace, added up by kind. */
#ifndef MT_RUN_SPENT_H
#define MT_RUN_SPENT_H

#include "base/json_write.h"
#include "device/trace.h"
#include "model/layer.h"

typedef struct mt_spent_row {
    const char *track;
    char name[MT_TRACE_NAME]; /* "gate+up dw", "attention bwd", "wait write-back", "idle" */
    mt_trace_kind kind;
    int n;
    double seconds, flops, bytes;
} mt_spent_row;

enum { MT_SPENT_ROWS = 96 };

typedef struct mt_spent {
    double seconds; /* from norm to norm */
    int lost;       /* spans that did not fit; the rows do not include them */
    int n;
    mt_spent_row rows[MT_SPENT_ROWS]; /* by track, longest first; the row "idle" is the rest of the compute stream's time */
} mt_spent;

/* After collect. */
void mt_spent_of(mt_spent *out, const mt_trace *trace, const mt_model *m);
/* Prints a table; product_rate: FLOP/s of a large product on this device, 0: unknown. */
void mt_spent_text(mt_str *out, const mt_spent *s, double product_rate);
void mt_spent_json(mt_json_out *j, const char *key, const mt_spent *s);

#endif
