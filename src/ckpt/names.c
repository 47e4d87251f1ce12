#include "ckpt/names.h"

#include "base/hash.h"

#include <string.h>

bool mt__names_init(mt__names *t, size_t n)
{
    size_t slots = 8;
    while (slots / 2 < n && slots < SIZE_MAX / 4) slots *= 2; /* at most half full: probes stay short */
    *t = (mt__names){ .slots = mt_calloc(slots, sizeof *t->slots), .mask = slots - 1 };
    return t->slots != NULL;
}

void mt__names_deinit(mt__names *t)
{
    mt_free(t->slots);
    *t = (mt__names){ 0 };
}

/* The slot that holds the name, or the free one where it belongs. */
static mt__name *slot_of(const mt__names *t, const char *name)
{
    size_t i = (size_t)mt_hash_keyed(name, strlen(name)) & t->mask;
    while (t->slots[i].name && strcmp(t->slots[i].name, name) != 0) i = (i + 1) & t->mask;
    return &t->slots[i];
}

size_t mt__names_add(mt__names *t, const char *name, size_t value)
{
    mt__name *slot = slot_of(t, name);
    if (!slot->name) *slot = (mt__name){ name, value };
    return slot->value;
}

bool mt__names_find(const mt__names *t, const char *name, size_t *value)
{
    if (!t->slots) return false;
    const mt__name *slot = slot_of(t, name);
    if (!slot->name) return false;
    *value = slot->value;
    return true;
}
