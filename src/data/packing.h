/* packing.h - whole samples packed into rows of a given length, best fit within a window.
 *
 * The order is cut into windows of some thousand samples.  In each, the longest goes first, always into the row where it leaves
 * the least room.  A row's samples are in the order they came.  All windows are packed once, at the start; their rows are kept,
 * in two bytes a sample and two a row. */
#ifndef MT_DATA_PACKING_H
#define MT_DATA_PACKING_H

#include "base/mem.h"

#include <stdatomic.h>

/* Length of the i-th sample of the order, at most row_tokens. */
typedef int64_t (*mt_length_fn)(const void *ctx, int64_t i);

typedef struct mt_packing mt_packing;

/* *stop (NULL: none) becoming true ends it with MT_ESTOPPED. */
mt_rc mt_packing_create(mt_packing **out, int64_t n, int64_t row_tokens, mt_length_fn length, const void *ctx,
                        const atomic_bool *stop, mt_err *err);
int64_t mt_packing_rows(const mt_packing *p);
/* Samples of the row that has most. */
int64_t mt_packing_most(const mt_packing *p);
/* Places of the order that make up row r: *items points at *n of them, valid until the next call. */
void mt_packing_row(mt_packing *p, int64_t r, const int64_t **items, int64_t *n);
void mt_packing_free(mt_packing *p); /* accepts NULL */

#endif
