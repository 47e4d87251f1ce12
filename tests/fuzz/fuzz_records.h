/* fuzz_records.h - reads records from fuzzed bytes and looks at every byte that comes out. */
#ifndef MT_FUZZ_RECORDS_H
#define MT_FUZZ_RECORDS_H

#include "base/utf8.h"
#include "data/formats.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_value(const mt_value *v)
{
    switch (v->type) {
    case MT_VALUE_STR:
        if (!mt_utf8_valid(v->str.s, v->str.n, NULL)) abort();
        break;
    case MT_VALUE_LIST:
        for (size_t i = 0; i < v->list.n; i++) check_value(&v->list.items[i]);
        break;
    case MT_VALUE_MAP:
        for (size_t i = 0; i < v->map.n; i++) {
            if (!mt_utf8_valid(v->map.pairs[i].key, v->map.pairs[i].key_n, NULL)) abort();
            check_value(&v->map.pairs[i].value);
        }
        break;
    default: break;
    }
}

/* The bytes are copied to an exact allocation, so that a read past them is seen.  Few records suffice: a small
 * file can honestly hold millions of rows of nulls. */
static void fuzz_records(const char *name, const uint8_t *data, size_t size, const mt_records_options *opt)
{
    mt_err err = { 0 };
    mt_records *r = NULL;
    mt_arena arena = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    int64_t count;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return;
    if (size) memcpy(copy, data, size);
    mt_rc rc = mt__records_open_bytes(&r, name, copy, size, opt, &err);
    if (!rc) (void)mt_records_count(r, &count, &err);
    for (int i = 0; !rc && i < 200 && where.state != MT_RECORD_END; i++) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &v, &where, &err);
        if (!rc && where.state == MT_RECORD_OK) {
            if (v.type != MT_VALUE_MAP) abort();
            check_value(&v);
        }
    }
    if (rc && !strstr(err.msg, name)) abort(); /* a message names the file */
    mt_records_close(r);
    mt_arena_free(&arena);
    free(copy);
}

#endif
