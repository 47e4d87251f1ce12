/* buffer_index.h - finds a buffer of a plan by what it is for, in constant time.
 *
 *     create   once the list of buffers is whole; the index does not keep the list
 *     find     a buffer's place in the list
 *     free     also accepts an index whose create failed */
#ifndef MT_SCHEDULE_BUFFER_INDEX_H
#define MT_SCHEDULE_BUFFER_INDEX_H

#include "schedule/plan.h"

typedef struct mt_buffer_index {
    int first_row[MT_BUFFER_KINDS + 1]; /* of a kind */
    int *first_cell;                    /* [rows + 1] */
    int *cells;                         /* position in the list; -1: no such buffer */
} mt_buffer_index;

mt_rc mt_buffer_index_create(mt_buffer_index *x, const mt_buffer *list, size_t n, mt_err *err);
void mt_buffer_index_free(mt_buffer_index *x);
/* -1: there is none. */
int mt_buffer_index_find(const mt_buffer_index *x, mt_buffer_kind kind, int i, int j);

#endif
