/* names.h - from tensor name to index, by hash.  Names are borrowed and must outlive the table.  The size is
 * fixed when the table is made, so adding cannot fail for lack of memory. */
#ifndef MT_CKPT_NAMES_H
#define MT_CKPT_NAMES_H

#include "base/mem.h"

typedef struct mt__name {
    const char *name; /* NULL: a free slot */
    size_t value;
} mt__name;

typedef struct mt__names {
    mt__name *slots;
    size_t mask; /* slots - 1, a power of two less one */
} mt__names;

/* Room for n names; false: no memory. */
bool mt__names_init(mt__names *t, size_t n);
void mt__names_deinit(mt__names *t);

/* The value stored with the name: the one given, or the earlier one if it is there already. */
size_t mt__names_add(mt__names *t, const char *name, size_t value);
/* False if it is not there. */
bool mt__names_find(const mt__names *t, const char *name, size_t *value);

#endif
