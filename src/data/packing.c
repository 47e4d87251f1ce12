/* packing.c - see packing.h.  The number of a sample in its window fits 16 bits, so all rows are kept and no window is packed
 * twice, in whatever order rows are asked for. */
#include "data/packing.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_MIN = 4096,
    WINDOW_MAX = 65536, /* numbers in a window are uint16_t */
    WINDOW_ROWS = 256   /* a window should fill about this many rows: its last one is seldom full */
};

struct mt_packing {
    int64_t n, row_tokens;
    mt_length_fn length;
    const void *ctx; /* borrowed; outlives the packing */
    int64_t window_size, n_windows;
    int64_t *rows_before; /* [n_windows + 1] */
    int64_t most;
    uint16_t *items; /* [n] numbers in their window, row after row */
    uint16_t *start; /* [all rows] the row's first place in its window's part of items */
    size_t cap_start;
    int64_t *row; /* [most] the row handed out last */
    /* for packing one window */
    struct item {
        int64_t place, length, row;
    } * work;
    int64_t *room;     /* [rows] left */
    int32_t *next;     /* [rows] of the same room, -1: none */
    int32_t *by_room;  /* [row_tokens + 1] a row with exactly so much left, -1: none */
    uint64_t *some;    /* a bit for each room that a row has */
    uint64_t *some_64; /* a bit for each word of `some` that is not 0 */
};

/* -- rows by the room they have left --------------------------------------------------------------- */

static void put_row(mt_packing *p, int64_t row)
{
    int64_t room = p->room[row];
    p->next[row] = p->by_room[room];
    p->by_room[room] = (int32_t)row;
    p->some[room / 64] |= UINT64_C(1) << room % 64;
    p->some_64[room / 4096] |= UINT64_C(1) << room / 64 % 64;
}

static void take_row(mt_packing *p, int64_t room)
{
    int32_t row = p->by_room[room];
    p->by_room[room] = p->next[row];
    if (p->by_room[room] >= 0) return;
    p->some[room / 64] &= ~(UINT64_C(1) << room % 64);
    if (p->some[room / 64] == 0) p->some_64[room / 4096] &= ~(UINT64_C(1) << room / 64 % 64);
}

static int64_t first_bit_from(const uint64_t *bits, int64_t from, int64_t n_bits)
{
    int64_t w = from / 64, n_words = n_bits / 64 + 1;
    uint64_t word = bits[w] & ~UINT64_C(0) << from % 64;
    while (word == 0 && ++w < n_words) word = bits[w];
    return word ? w * 64 + __builtin_ctzll(word) : -1;
}

/* The least room that is at least `length`, or -1. */
static int64_t best_room(const mt_packing *p, int64_t length)
{
    uint64_t here = p->some[length / 64] & ~UINT64_C(0) << length % 64;
    if (here) return length / 64 * 64 + __builtin_ctzll(here);
    int64_t n_words = p->row_tokens / 64 + 1, w = length / 64 + 1;
    if (w >= n_words) return -1;
    w = first_bit_from(p->some_64, w, n_words);
    return w < 0 ? -1 : w * 64 + __builtin_ctzll(p->some[w]);
}

static void forget_rows(mt_packing *p, int64_t n_rows)
{
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t room = p->room[r];
        p->by_room[room] = -1;
        p->some[room / 64] = 0;
        p->some_64[room / 4096] = 0;
    }
}

/* -- one window ------------------------------------------------------------------------------------ */

static int longest_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_row(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int64_t window_end(const mt_packing *p, int64_t w) { return mt_min_i64((w + 1) * p->window_size, p->n); }

/* Give every item of work[0 .. n) a row; returns how many rows that took. */
static int64_t pack_items(mt_packing *p, int64_t n)
{
    int64_t n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        struct item *it = &p->work[i];
        int64_t room = best_room(p, it->length);
        if (room < 0) {
            it->row = n_rows++;
            p->room[it->row] = p->row_tokens - it->length;
        } else {
            it->row = p->by_room[room];
            take_row(p, room);
            p->room[it->row] -= it->length;
        }
        put_row(p, it->row);
    }
    forget_rows(p, n_rows);
    return n_rows;
}

/* Fills `work`, sorted by row. */
static mt_rc pack_window(mt_packing *p, int64_t w, int64_t *n_rows, mt_err *err)
{
    int64_t first = w * p->window_size, n = window_end(p, w) - first;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = p->length(p->ctx, first + i);
        if (length < 1 || length > p->row_tokens)
            return mt_fail(err, MT_EINTERNAL, "a sample of %lld tokens does not fit a row of %lld", (long long)length,
                           (long long)p->row_tokens);
        p->work[i] = (struct item){ first + i, length, 0 };
    }
    qsort(p->work, (size_t)n, sizeof *p->work, longest_first);
    *n_rows = pack_items(p, n);
    return MT_OK;
}

/* Keeps the rows of window w, the next one. */
static mt_rc keep_window(mt_packing *p, int64_t w, mt_err *err)
{
    int64_t first = w * p->window_size, n = window_end(p, w) - first, before = p->rows_before[w], n_rows;
    MT_TRY(pack_window(p, w, &n_rows, err));
    qsort(p->work, (size_t)n, sizeof *p->work, by_row);
    MT_TRY(mt_grow(&p->start, &p->cap_start, (size_t)(before + n_rows), sizeof *p->start, err));
    for (int64_t i = 0, start = 0; i < n; i++) {
        if (i == 0 || p->work[i].row != p->work[i - 1].row) p->start[before + p->work[i].row] = (uint16_t)(start = i);
        p->items[first + i] = (uint16_t)(p->work[i].place - first);
        p->most = mt_max_i64(p->most, i - start + 1);
    }
    p->rows_before[w + 1] = before + n_rows;
    return MT_OK;
}

/* -- all of them ----------------------------------------------------------------------------------- */

/* Large enough that a window fills many rows, by the mean length of the first samples. */
static int64_t choose_window(const mt_packing *p)
{
    int64_t n = mt_min_i64(p->n, WINDOW_MIN), sum = 0, size = WINDOW_MIN;
    for (int64_t i = 0; i < n; i++) sum += p->length(p->ctx, i);
    if (sum < 1) return size;
    while (size < WINDOW_MAX && (double)size * (double)sum / (double)n < (double)WINDOW_ROWS * (double)p->row_tokens) size *= 2;
    return size;
}

static mt_rc allocate(mt_packing *p, mt_err *err)
{
    size_t w = (size_t)p->window_size, rooms = (size_t)p->row_tokens + 1;
    p->rows_before = mt_calloc((size_t)p->n_windows + 1, sizeof *p->rows_before);
    p->work = mt_calloc(w, sizeof *p->work);
    p->room = mt_calloc(w, sizeof *p->room);
    p->next = mt_calloc(w, sizeof *p->next);
    p->by_room = mt_malloc(rooms * sizeof *p->by_room);
    p->some = mt_calloc(rooms / 64 + 1, sizeof *p->some);
    p->some_64 = mt_calloc(rooms / 4096 + 2, sizeof *p->some_64);
    p->items = mt_malloc(((size_t)p->n + 1) * sizeof *p->items);
    if (!p->rows_before || !p->work || !p->room || !p->next || !p->by_room || !p->some || !p->some_64 || !p->items)
        return mt_no_memory(err, "packing %lld samples", (long long)p->n);
    memset(p->by_room, 0xff, rooms * sizeof *p->by_room);
    return MT_OK;
}

static mt_rc keep_windows(mt_packing *p, const atomic_bool *stop, mt_err *err)
{
    for (int64_t w = 0; w < p->n_windows; w++) {
        if (stop && atomic_load(stop)) return mt_fail(err, MT_ESTOPPED, "packing was stopped on request");
        MT_TRY(keep_window(p, w, err));
    }
    p->row = mt_malloc(((size_t)p->most + 1) * sizeof *p->row);
    return p->row ? MT_OK : mt_no_memory(err, "packing %lld samples", (long long)p->n);
}

mt_rc mt_packing_create(mt_packing **out, int64_t n, int64_t row_tokens, mt_length_fn length, const void *ctx,
                        const atomic_bool *stop, mt_err *err)
{
    *out = NULL;
    mt_packing *p = mt_calloc(1, sizeof *p);
    if (!p) return mt_no_memory(err, "packing %lld samples", (long long)n);
    p->n = n;
    p->row_tokens = row_tokens;
    p->length = length;
    p->ctx = ctx;
    p->window_size = choose_window(p);
    p->n_windows = (n + p->window_size - 1) / p->window_size;
    mt_rc rc = allocate(p, err);
    if (!rc) rc = keep_windows(p, stop, err);
    if (rc) {
        mt_packing_free(p);
        return rc;
    }
    *out = p;
    return MT_OK;
}

int64_t mt_packing_rows(const mt_packing *p) { return p->rows_before[p->n_windows]; }
int64_t mt_packing_most(const mt_packing *p) { return p->most; }

void mt_packing_row(mt_packing *p, int64_t r, const int64_t **items, int64_t *n)
{
    int64_t low = 0, high = p->n_windows; /* rows_before[low] <= r < rows_before[high] */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (p->rows_before[mid] <= r)
            low = mid;
        else
            high = mid;
    }
    const int64_t first = low * p->window_size;
    const bool last = r + 1 == p->rows_before[low + 1];
    *n = (last ? window_end(p, low) - first : p->start[r + 1]) - p->start[r];
    for (int64_t i = 0; i < *n; i++) p->row[i] = first + p->items[first + p->start[r] + i];
    *items = p->row;
}

void mt_packing_free(mt_packing *p)
{
    if (!p) return;
    mt_free(p->rows_before);
    mt_free(p->work);
    mt_free(p->room);
    mt_free(p->next);
    mt_free(p->by_room);
    mt_free(p->some);
    mt_free(p->some_64);
    mt_free(p->items);
    mt_free(p->start);
    mt_free(p->row);
    mt_free(p);
}
