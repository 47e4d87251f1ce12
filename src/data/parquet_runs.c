/* parquet_runs.c - the two ways Parquet packs integers into few bits.
 *
 * Hybrid runs: each run is a header and either one value to repeat or groups of eight bit-packed values.
 * Delta packing: blocks of differences, each block with a smallest one and, per miniblock, a bit width. */
#include "base/le.h"
#include "data/parquet.h"
#include "data/thrift.h"

#include <string.h>

/* `width` (up to 64) bits from bit `at` on, low bits first; reads no byte at or past end. */
static uint64_t take_bits(const uint8_t *bits, const uint8_t *end, uint64_t at, int width)
{
    if (width == 0) return 0;
    const uint8_t *p = bits + at / 8;
    int shift = (int)(at % 8);
    uint64_t x = 0;
    if (end - p >= 8)
        x = mt__le64(p);
    else
        for (int i = 0; p + i < end; i++) x |= (uint64_t)p[i] << 8 * i;
    x >>= shift;
    if (shift && shift + width > 64 && end - p > 8) x |= (uint64_t)p[8] << (64 - shift);
    return width == 64 ? x : x & ((UINT64_C(1) << width) - 1);
}

void mt__pq_runs_init(pq_runs *r, const uint8_t *p, const uint8_t *end, int width)
{
    *r = (pq_runs){ .p = p, .end = end, .width = width };
}

static const char *start_packed(pq_runs *r, uint64_t groups)
{
    size_t room = (size_t)(r->end - r->p);
    if (groups > UINT32_MAX) return "a run of absurd length";
    uint64_t bytes = groups * (uint64_t)r->width;
    r->packed = true;
    r->bits = r->p;
    r->at = 0;
    r->left = groups * 8;
    if (bytes > room) { /* writers may leave out the padding of the last group */
        r->left = r->width ? (uint64_t)room * 8 / (uint64_t)r->width : r->left;
        bytes = room;
    }
    r->p += bytes;
    return NULL;
}

static const char *start_repeated(pq_runs *r, uint64_t count)
{
    size_t bytes = (size_t)(r->width + 7) / 8;
    if ((size_t)(r->end - r->p) < bytes) return "a run is cut off";
    r->value = 0;
    for (size_t i = 0; i < bytes; i++) r->value |= (uint32_t)r->p[i] << 8 * i;
    if (r->width < 32 && r->value >> r->width) return "a run's value has more bits than it may";
    r->p += bytes;
    r->packed = false;
    r->left = count;
    return NULL;
}

static const char *next_run(pq_runs *r)
{
    uint64_t head;
    while (r->left == 0) {
        if (!mt__varint(&r->p, r->end, &head)) return "levels or indices end too early";
        const char *trouble = head & 1 ? start_packed(r, head >> 1) : start_repeated(r, head >> 1);
        if (trouble) return trouble;
    }
    return NULL;
}

static void copy_packed(pq_runs *r, uint32_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++, r->at += (uint64_t)r->width) out[i] = (uint32_t)take_bits(r->bits, r->p, r->at, r->width);
}

const char *mt__pq_runs_read(pq_runs *r, uint32_t *out, size_t n)
{
    if (r->width == 0) return memset(out, 0, n * sizeof *out), NULL;
    while (n) {
        const char *trouble = next_run(r);
        if (trouble) return trouble;
        size_t take = n < r->left ? n : (size_t)r->left;
        if (r->packed)
            copy_packed(r, out, take);
        else
            for (size_t i = 0; i < take; i++) out[i] = r->value;
        r->left -= take;
        out += take;
        n -= take;
    }
    return NULL;
}

/* Header: values per block, miniblocks per block, values in all, the first value. */
const char *mt__pq_delta_init(pq_delta *d, const uint8_t *p, const uint8_t *end)
{
    uint64_t per_block, n_mini, total, first;
    *d = (pq_delta){ .p = p, .end = end };
    if (!mt__varint(&d->p, end, &per_block) || !mt__varint(&d->p, end, &n_mini) || !mt__varint(&d->p, end, &total) ||
        !mt__varint(&d->p, end, &first))
        return "a delta header is cut off";
    if (per_block == 0 || per_block > 1 << 20 || n_mini == 0 || n_mini > per_block || per_block % n_mini ||
        per_block / n_mini % 8)
        return "a delta header makes no sense";
    d->n_mini = n_mini;
    d->per_mini = per_block / n_mini;
    d->left = total;
    d->first = true;
    d->value = (uint64_t)mt__zigzag(first);
    d->mini = n_mini; /* a block header comes first */
    return NULL;
}

static const char *next_block(pq_delta *d)
{
    uint64_t min;
    if (!mt__varint(&d->p, d->end, &min) || (uint64_t)(d->end - d->p) < d->n_mini) return "delta blocks end too early";
    d->min_delta = (uint64_t)mt__zigzag(min);
    d->widths = d->p;
    d->p += d->n_mini;
    d->mini = 0;
    return NULL;
}

static const char *next_mini(pq_delta *d)
{
    if (d->mini == d->n_mini) {
        const char *trouble = next_block(d);
        if (trouble) return trouble;
    }
    d->width = d->widths[d->mini++];
    uint64_t bytes = d->per_mini / 8 * (uint64_t)d->width;
    if (d->width > 64 || bytes > (uint64_t)(d->end - d->p)) return "a delta miniblock is cut off";
    d->bits = d->p;
    d->p += bytes;
    d->at = 0;
    d->mini_left = d->per_mini;
    return NULL;
}

const char *mt__pq_delta_read(pq_delta *d, int64_t *out, size_t n)
{
    if (n > d->left) return "fewer delta values than entries";
    for (size_t i = 0; i < n; i++) {
        if (d->first)
            d->first = false;
        else {
            const char *trouble = d->mini_left ? NULL : next_mini(d);
            if (trouble) return trouble;
            d->value += d->min_delta + take_bits(d->bits, d->p, d->at, d->width);
            d->at += (uint64_t)d->width;
            d->mini_left--;
        }
        d->left--;
        out[i] = (int64_t)d->value;
    }
    return NULL;
}

const char *mt__pq_delta_end(const pq_delta *from, const uint8_t **out)
{
    pq_delta d = *from;
    uint64_t left = d.left ? d.left - d.first : 0;
    while (left > d.mini_left) {
        left -= d.mini_left;
        const char *trouble = next_mini(&d);
        if (trouble) return trouble;
    }
    *out = d.p;
    return NULL;
}
