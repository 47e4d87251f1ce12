/* disk_log.h - the changes to files that a program has recorded (MT_DISK_LOG, base/disk.h), one after the other. */
#ifndef MT_TEST_DISK_LOG_H
#define MT_TEST_DISK_LOG_H

#include "test.h"

#include "base/disk.h"
#include "base/mem.h"

typedef struct disk_change {
    mt_disk_record r;
    char *path, *to; /* owned */
    const uint8_t *data;
} disk_change;

/* The change at p; returns where the next one is. */
static inline const uint8_t *disk_change_read(disk_change *c, const uint8_t *p)
{
    memcpy(&c->r, p, sizeof c->r);
    p += sizeof c->r;
    c->path = mt_strndup((const char *)p, c->r.n_path);
    c->to = mt_strndup((const char *)p + c->r.n_path, c->r.n_to);
    assert_true(c->path && c->to);
    c->data = p + c->r.n_path + c->r.n_to;
    return c->data + c->r.n_data;
}

static inline void disk_change_free(disk_change *c)
{
    mt_free(c->path);
    mt_free(c->to);
}

#endif
