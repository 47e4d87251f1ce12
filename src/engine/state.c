/* state.c - the engine's state as others read and write it: hi, lo, m and v of a unit, wherever their home is.
 *
 * Moments in the 8-bit form are read and written as the bf16 they are exactly (ops/moments.h).  Writing some numbers of a block
 * reads the others first; that a block is written in parts changes nothing, because what is on a block's grid is on that of a
 * smaller exponent too. */
#include "base/rng.h"
#include "engine/internal.h"

#include <string.h>

enum { PIECE = 1 << 15 }; /* 8-bit numbers at a time: whole blocks */

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
    return kind <= MT_STATE_LO ? n * 2 : mt_moments_bytes(form(e), n);
}

static char *home_of(const mt_engine *e, int unit, mt_state_kind kind)
{
    const unit_state *s = &e->units[unit];
    void *const homes[MT_STATE_KINDS] = { s->hi, s->lo, s->m, s->v };
    return homes[kind];
}

static mt_rc check_range(const mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, mt_err *err)
{
    int64_t size = count_of(e, unit, kind);
    if (!home_of(e, unit, kind)) return mt_fail(err, MT_EINVAL, "unit %d has no such state under this plan", unit);
    if (first >= 0 && n >= 0 && first <= size - n) return MT_OK;
    return mt_fail(err, MT_ERANGE, "unit %d: elements %lld to %lld of %lld", unit, (long long)first, (long long)(first + n),
                   (long long)size);
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
static mt_rc fetch_blocks(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t end, blocks *b, mt_err *err)
{
    b->at = first / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
    b->n = mt_min_i64(PIECE, (int64_t)mt_moments_blocks((size_t)(end - b->at)) * MT_MOMENT_BLOCK);
    b->n = mt_min_i64(b->n, mt__layout(e, unit)->n_train - b->at);
    MT_TRY(mt__home_read(e, unit, home_of(e, unit, kind) + b->at, b->code, (size_t)b->n, err));
    return mt__home_read(e, unit, exponents_of(e, unit, kind, b->at), b->exponent, mt_moments_blocks((size_t)b->n), err);
}

static int e_bits(mt_state_kind kind) { return kind == MT_STATE_M ? MT_MOMENT_E_BITS_M : MT_MOMENT_E_BITS_V; }

static float value_at(const blocks *b, mt_state_kind kind, int64_t i)
{
    mt_moment_scale s = mt_moment_scale_of(b->exponent[i / MT_MOMENT_BLOCK], e_bits(kind));
    return kind == MT_STATE_M ? mt_moment_m_value(b->code[i], s) : mt_moment_v_value(b->code[i], s);
}

static mt_rc read_packed(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, char *dst, mt_err *err)
{
    blocks b;
    for (int64_t done = 0; done < n;) {
        MT_TRY(fetch_blocks(e, unit, kind, first + done, first + n, &b, err));
        for (int64_t i = first + done - b.at; i < b.n && done < n; i++, done++) {
            uint16_t value = (uint16_t)(mt_f32_bits(value_at(&b, kind, i)) >> 16);
            memcpy(dst + 2 * done, &value, 2);
        }
    }
    return MT_OK;
}

/* Block i of b again, with numbers [from, to) of it from src; nothing is lost, so nothing random is needed. */
static void merge_block(blocks *b, mt_state_kind kind, int64_t i, int64_t from, int64_t to, const char *src)
{
    float x[MT_MOMENT_BLOCK];
    int64_t at = i * MT_MOMENT_BLOCK, n = mt_min_i64(MT_MOMENT_BLOCK, b->n - at);
    uint32_t largest = 0;
    for (int64_t k = 0; k < n; k++) {
        uint16_t value = 0;
        bool given = at + k >= from && at + k < to;
        if (given) memcpy(&value, src + 2 * (at + k - from), 2);
        x[k] = given ? mt_bf16_to_f32(value) : value_at(b, kind, at + k);
        uint32_t raised = mt_moment_raised(x[k], 0);
        if (raised > largest) largest = raised;
    }
    b->exponent[i] = (uint8_t)mt_moment_exponent(largest);
    mt_moment_scale s = mt_moment_scale_of(b->exponent[i], e_bits(kind));
    for (int64_t k = 0; k < n; k++)
        b->code[at + k] = (uint8_t)(kind == MT_STATE_M ? mt_moment_m_code(x[k], 0, s) : mt_moment_v_code(x[k], 0, s));
}

static mt_rc write_packed(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, mt_err *err)
{
    blocks b;
    for (int64_t done = 0; done < n;) {
        MT_TRY(fetch_blocks(e, unit, kind, first + done, first + n, &b, err));
        int64_t from = first + done - b.at, to = mt_min_i64(b.n, from + n - done);
        for (int64_t i = from / MT_MOMENT_BLOCK; i * MT_MOMENT_BLOCK < to; i++)
            merge_block(&b, kind, i, from, to, src + 2 * done);
        MT_TRY(mt__home_write(e, unit, home_of(e, unit, kind) + b.at, b.code, (size_t)b.n, err));
        MT_TRY(mt__home_write(e, unit, exponents_of(e, unit, kind, b.at), b.exponent, mt_moments_blocks((size_t)b.n), err));
        done += to - from;
    }
    return MT_OK;
}

/* -- reading and writing --------------------------------------------------------------------------- */

mt_rc mt__state_read(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, void *dst, mt_err *err)
{
    size_t each = bytes_each(e, kind);
    MT_TRY(check_range(e, unit, kind, first, n, err));
    if (packed(e, kind)) return read_packed(e, unit, kind, first, n, dst, err);
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
    for (int i = 0; i < e->n_ring; i++)
        if (e->ring[i].unit == unit) e->ring[i].unit = -1; /* what the device holds is old now */
    if (e->units[unit].stage) e->units[unit].stage->version = -1;
    return MT_OK;
}

static mt_rc write_home(mt_engine *e, int unit, mt_state_kind kind, int64_t first, int64_t n, const char *src, mt_err *err)
{
    size_t each = bytes_each(e, kind);
    if (packed(e, kind)) return write_packed(e, unit, kind, first, n, src, err);
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
