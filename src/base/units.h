/* units.h - sizes, rates and times as people write and read them.  G = 10^9, Gi = 2^30. */
#ifndef MT_BASE_UNITS_H
#define MT_BASE_UNITS_H

#include "base/err.h"

#include <stdint.h>

typedef struct mt_short_text {
    char s[32];
} mt_short_text;

/* printf("%s", mt_bytes_text(n).s): "512 B", "3.2 KiB", "15.3 GiB". */
mt_short_text mt_bytes_text(uint64_t bytes);
/* "950", "12.3K", "7.6B" (parameters, tokens). */
mt_short_text mt_count_text(uint64_t n);
/* "2.2 ms", "0.8 s", "12 s", "3 min 20 s", "5 h 02 min", "3 d 4 h". */
mt_short_text mt_seconds_text(double s);

/* "64M", "1.5T", "80Gi", "123", "64 MB", "64MiB" -> bytes. */
mt_rc mt_bytes_parse(const char *text, uint64_t *out, mt_err *err);
/* The same for memory to run in: 0 and plain numbers below a mebibyte are refused, because a user who writes 64 means 64G. */
mt_rc mt_memory_parse(const char *text, uint64_t *out, mt_err *err);
/* "350M", "13B", "1.5T", "8000000": parameters, at least one. */
mt_rc mt_count_parse(const char *text, uint64_t *out, mt_err *err);

#endif
