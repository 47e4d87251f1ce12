/* state.c - the engine's state as others read and write it: hi, lo, m and v of a unit, wherever their home is.
 *
 * Moments in the 8-bit form are read and written as the bf16 they are exactly (ops/moments.h).  Writing some numbers of a block
 * reads the others first; that a block is written in parts changes nothing, because what is on a block's grid is on that of a
 * smaller exponent too. */
#include "base/rng.h"
#include "engine/internal.h"

#include <string.h>

enum { PIECE = 1 << 17 }; /* 8-bit numbers at a time: whole blocks, each a copy to or from the device */

/* -- where things are ------------------------------------------------------------------------------ */

static mt_moments form(const mt_engine *e) { return e->plan->arithmetic.moments; }
static bool packed(const mt_engine *e, mt_state_kind kind) { return kind >= MT_STATE_M && form(e) == MT_MOMENTS_8BIT; }

static int64_t count_of(const mt_engine *e, int unit, mt_state_kind kind)
{
    return kind <= MT_STATE_LO ? mt__layout(e, unit)->n_elems : mt__layout(e, unit)->n_train;
}

/* Of a number, as others see it. */
static size_t bytes_each(const mt_engine *e, mt_state_kind kind)
{
    return kind <= MT_STATE_LO ? 2 : mt_dtype_bytes(mt_moments_type(form(e)));
}

size_t mt__state_bytes(const mt_engine *e, int unit, mt_state_kind kind)
{
    size_t n = (size_t)count_of(e, unit, kind);
    if (kind == MT_STATE_LO) n = (size_t)mt__layout(e, unit)->n_low;
    return kind <= MT_STATE_LO ? n * 2 : mt_moments_bytes(form(e), n);
}

static char *home_of(const mt_engine *e, int unit, mt_state_kind kind)
{
    const unit_state *s = &e->units[unit];
    void *const homes[MT_STATE_KINDS] = { s->hi, s->lo, s->m, s->v };
    return homes[kind];
}

/* True if the plan keeps this state of the unit; low halves also where all of them are zero and nothing is stored. */
static bool is_kept(const mt_engine *e, int unit, mt_state_kind kind)
{
    const mt_job *j = &e->plan->job;
    bool low = (j->train && !j->only_gradients) || mt__is_f32(e);
    return home_of(e, unit, kind) || (kind == MT_STATE_LO && low && !mt__layout(e, unit)->n_low);
}

static mt_rc check_range(const mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, mt_err *err)
{
    int64_t size = count_of(e, unit, kind);
    if (!is_kept(e, unit, kind) && !(kind <= MT_STATE_LO && e->units[unit].exact_home))
        return mt_fail(err, MT_EINVAL, "unit %d has no such state under this plan", unit);
    if (first >= 0 && n >= 0 && first <= size - n) return MT_OK;
    return mt_fail(err, MT_ERANGE, "unit %d: elements %lld to %lld of %lld", unit, (long long)first, (long long)(first + n),
                   (long long)size);
}

/* -- halves ---------------------------------------------------------------------------------------- */

/* Numbers [first, end) that two ranges share; none: end is not larger. */
typedef struct span {
    int64_t first, end;
} span;

static span shared(int64_t a, int64_t a_end, int64_t b, int64_t b_end)
{
    return (span){ mt_max_i64(a, b), mt_min_i64(a_end, b_end) };
}

/* Where nothing is updated, exact numbers have a home of their own: both halves, also of what is mapped. */
static char *exact_home_of(const mt_engine *e, int unit, mt_state_kind kind, const mt_exact_run *x, int64_t i)
{
    int64_t at = x->at + i - x->first + (kind == MT_STATE_LO ? mt__layout(e, unit)->n_exact : 0);
    return (char *)(e->units[unit].exact_home + at);
}

static mt_rc write_exact(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, mt_err *err)
{
    const mt_layout *l = mt__layout(e, unit);
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++) {
        span s = shared(first, first + n, x->first, x->first + x->n);
        if (s.end > s.first)
            MT_TRY(mt__home_write(e, unit, exact_home_of(e, unit, kind, x, s.first), src + (size_t)(s.first - first) * 2,
                                  (size_t)(s.end - s.first) * 2, err));
    }
    return MT_OK;
}

/* Of numbers [first, first + n) so many have low halves; those of the others are zero, and nobody stores them. */
static int64_t count_low(const mt_engine *e, int unit, int64_t first, int64_t n)
{
    return mt_max_i64(0, mt_min_i64(n, mt__layout(e, unit)->n_low - first));
}

static mt_rc read_low(mt_engine *e, int unit, int64_t first, int64_t n, int16_t *dst, mt_err *err)
{
    int64_t stored = count_low(e, unit, first, n);
    memset(dst + stored, 0, (size_t)(n - stored) * 2);
    return stored ? mt__home_read(e, unit, (char *)(e->units[unit].lo + first), dst, (size_t)stored * 2, err) : MT_OK;
}

static mt_rc write_low(mt_engine *e, int unit, int64_t first, int64_t n, const char *src, mt_err *err)
{
    int64_t stored = count_low(e, unit, first, n);
    for (size_t i = (size_t)stored * 2; i < (size_t)n * 2; i++)
        if (src[i])
            return mt_fail(err, MT_EFORMAT,
                           "unit %d: frozen weights that are bf16 in the model's files have other values here; train with the "
                           "files that the run began with",
                           unit);
    return stored ? mt__home_write(e, unit, (char *)(e->units[unit].lo + first), src, (size_t)stored * 2, err) : MT_OK;
}

/* -- 8-bit moments --------------------------------------------------------------------------------- */

/* Some blocks of a moment in host memory. */
typedef struct blocks {
    int64_t at, n; /* numbers; `at` begins a block */
    uint8_t code[PIECE];
    uint8_t exponent[PIECE / MT_MOMENT_BLOCK];
} blocks;

static char *exponents_of(const mt_engine *e, int unit, mt_state_kind kind, int64_t at)
{
    return home_of(e, unit, kind) + mt_moments_exponents_at((size_t)mt__layout(e, unit)->n_train) + at / MT_MOMENT_BLOCK;
}

/* Those that hold numbers [first, end), or as many as there is room for. */
static void choose_blocks(const mt_engine *e, int unit, int64_t first, int64_t end, blocks *b)
{
    b->at = first / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
    b->n = mt_min_i64(PIECE, (int64_t)mt_moments_blocks((size_t)(end - b->at)) * MT_MOMENT_BLOCK);
    b->n = mt_min_i64(b->n, mt__layout(e, unit)->n_train - b->at);
}

static mt_rc fetch_blocks(mt_engine *e, int unit, mt_state_kind kind, blocks *b, mt_err *err)
{
    MT_TRY(mt__home_read(e, unit, home_of(e, unit, kind) + b->at, b->code, (size_t)b->n, err));
    return mt__home_read(e, unit, exponents_of(e, unit, kind, b->at), b->exponent, mt_moments_blocks((size_t)b->n), err);
}

static mt_rc store_blocks(mt_engine *e, int unit, mt_state_kind kind, const blocks *b, mt_err *err)
{
    MT_TRY(mt__home_write(e, unit, home_of(e, unit, kind) + b->at, b->code, (size_t)b->n, err));
    return mt__home_write(e, unit, exponents_of(e, unit, kind, b->at), b->exponent, mt_moments_blocks((size_t)b->n), err);
}

static int numbers_in(const blocks *b, int64_t i) { return (int)mt_min_i64(MT_MOMENT_BLOCK, b->n - i * MT_MOMENT_BLOCK); }

static mt_moment_scale scale_of(const blocks *b, mt_state_kind kind, int64_t i)
{
    return mt_moment_scale_of(b->exponent[i], kind == MT_STATE_M ? MT_MOMENT_E_BITS_M : MT_MOMENT_E_BITS_V);
}

/* Block i as the bf16 it is exactly. */
static void unpack(const blocks *b, mt_state_kind kind, int64_t i, uint16_t out[MT_MOMENT_BLOCK])
{
    const uint8_t *code = b->code + i * MT_MOMENT_BLOCK;
    int n = numbers_in(b, i);
    mt_moment_scale s = scale_of(b, kind, i);
    if (kind == MT_STATE_M)
        for (int k = 0; k < n; k++) out[k] = (uint16_t)(mt__bits_of(mt_moment_m_value(code[k], s)) >> 16);
    else
        for (int k = 0; k < n; k++) out[k] = (uint16_t)(mt__bits_of(mt_moment_v_value(code[k], s)) >> 16);
}

/* Nothing is lost, so nothing random is needed. */
static void pack(blocks *b, mt_state_kind kind, int64_t i, const uint16_t in[MT_MOMENT_BLOCK])
{
    uint8_t *code = b->code + i * MT_MOMENT_BLOCK;
    int n = numbers_in(b, i);
    uint32_t largest = 0;
    for (int k = 0; k < n; k++) {
        uint32_t raised = mt_moment_raised(mt_bf16_to_f32(in[k]), 0);
        largest = raised > largest ? raised : largest;
    }
    b->exponent[i] = (uint8_t)mt_moment_exponent(largest);
    mt_moment_scale s = scale_of(b, kind, i);
    if (kind == MT_STATE_M)
        for (int k = 0; k < n; k++) code[k] = (uint8_t)mt_moment_m_code(mt_bf16_to_f32(in[k]), 0, s);
    else
        for (int k = 0; k < n; k++) code[k] = (uint8_t)mt_moment_v_code(mt_bf16_to_f32(in[k]), 0, s);
}

/* Numbers [from, to) of b are asked for or given: those of block i, counted from its first. */
typedef struct share {
    int from, n;
} share;

static share share_of(int64_t i, int64_t from, int64_t to)
{
    int64_t at = i * MT_MOMENT_BLOCK, begin = from > at ? from - at : 0;
    return (share){ (int)begin, (int)(mt_min_i64(to - at, MT_MOMENT_BLOCK) - begin) };
}

static mt_rc read_blocks(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, char *dst, blocks *b, mt_err *err)
{
    uint16_t x[MT_MOMENT_BLOCK];
    for (int64_t done = 0; done < n;) {
        choose_blocks(e, unit, first + done, first + n, b);
        MT_TRY(fetch_blocks(e, unit, kind, b, err));
        int64_t from = first + done - b->at, to = mt_min_i64(b->n, from + n - done);
        for (int64_t i = from / MT_MOMENT_BLOCK; i * MT_MOMENT_BLOCK < to; i++) {
            share s = share_of(i, from, to);
            unpack(b, kind, i, x);
            memcpy(dst + 2 * done, x + s.from, (size_t)s.n * 2);
            done += s.n;
        }
    }
    return MT_OK;
}

static mt_rc write_blocks(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, blocks *b,
                          mt_err *err)
{
    uint16_t x[MT_MOMENT_BLOCK];
    for (int64_t done = 0; done < n;) {
        choose_blocks(e, unit, first + done, first + n, b);
        int64_t from = first + done - b->at, to = mt_min_i64(b->n, from + n - done);
        if (from > 0 || to < b->n) MT_TRY(fetch_blocks(e, unit, kind, b, err)); /* some numbers stay */
        for (int64_t i = from / MT_MOMENT_BLOCK; i * MT_MOMENT_BLOCK < to; i++) {
            share s = share_of(i, from, to);
            if (s.n < numbers_in(b, i)) unpack(b, kind, i, x);
            memcpy(x + s.from, src + 2 * done, (size_t)s.n * 2);
            pack(b, kind, i, x);
            done += s.n;
        }
        MT_TRY(store_blocks(e, unit, kind, b, err));
    }
    return MT_OK;
}

static mt_rc no_room(int unit, mt_err *err) { return mt_no_memory(err, "the moments of unit %d", unit); }

static mt_rc read_packed(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, char *dst, mt_err *err)
{
    blocks *b = mt_malloc(sizeof *b); /* too much for a small stack */
    mt_rc rc = b ? read_blocks(e, unit, kind, first, n, dst, b, err) : no_room(unit, err);
    mt_free(b);
    return rc;
}

static mt_rc write_packed(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, mt_err *err)
{
    blocks *b = mt_malloc(sizeof *b);
    mt_rc rc = b ? write_blocks(e, unit, kind, first, n, src, b, err) : no_room(unit, err);
    mt_free(b);
    return rc;
}

/* -- reading and writing --------------------------------------------------------------------------- */

mt_rc mt__state_read(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    size_t each = bytes_each(e, kind);
    MT_TRY(check_range(e, unit, kind, first, n, err));
    if (!is_kept(e, unit, kind)) return mt_fail(err, MT_EINVAL, "unit %d has no such state under this plan", unit);
    if (packed(e, kind)) return read_packed(e, unit, kind, first, n, dst, err);
    if (kind == MT_STATE_LO) return read_low(e, unit, first, n, dst, err);
    return mt__home_read(e, unit, home_of(e, unit, kind) + (size_t)first * each, dst, (size_t)n * each, err);
}

mt_rc mt_engine_read(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    MT_TRY(mt_engine_settle(e, err));
    return mt__state_read(e, unit, kind, first, n, dst, err);
}

static mt_rc begin_write(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, mt_err *err)
{
    MT_TRY(mt_engine_settle(e, err));
    MT_TRY(check_range(e, unit, kind, first, n, err));
    mt_sequence_forget(e->sequence, unit);
    return MT_OK;
}

static mt_rc write_home(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, mt_err *err)
{
    size_t each = bytes_each(e, kind);
    if (packed(e, kind)) return write_packed(e, unit, kind, first, n, src, err);
    if (kind <= MT_STATE_LO && e->units[unit].exact_home) MT_TRY(write_exact(e, unit, kind, first, n, src, err));
    if (!is_kept(e, unit, kind)) return MT_OK; /* mapped, or not wanted: but for the exact */
    if (kind == MT_STATE_LO) return write_low(e, unit, first, n, src, err);
    return mt__home_write(e, unit, home_of(e, unit, kind) + (size_t)first * each, src, (size_t)n * each, err);
}

mt_rc mt_engine_write(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const void *src, mt_err *err)
{
    pthread_mutex_lock(&e->write_lock);
    mt_rc rc = begin_write(e, unit, kind, first, n, err);
    pthread_mutex_unlock(&e->write_lock);
    if (!rc) rc = write_home(e, unit, kind, first, n, src, err);
    if (!rc && e->wrote) e->wrote(e->wrote_user, (size_t)n * bytes_each(e, kind));
    return rc;
}

void mt_engine_watch_writes(mt_engine *e, void (*fn)(void *user, size_t bytes), void *user)
{
    e->wrote = fn;
    e->wrote_user = user;
}

mt_rc mt_engine_checksum(mt_engine *e, uint64_t *out, mt_err *err)
{
    enum { PART = 4096 };
    char part[PART * 4];
    uint64_t h = 0;
    for (int u = 0; u < e->model->n_units; u++)
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) {
            int64_t n = count_of(e, u, kind);
            for (int64_t first = 0; first < n; first += PART) {
                int64_t k = mt_min_i64(PART, n - first);
                MT_TRY(mt_engine_read(e, u, kind, first, k, part, err));
                h = mt_hash(part, (size_t)k * bytes_each(e, kind), h);
            }
        }
    *out = h;
    return MT_OK;
}
