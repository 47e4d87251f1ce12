/* state_io.c - reads and writes the state: hi, lo, m and v of a unit, whatever its home.
 *
 * Moments in the 8-bit form are read and written as the bf16 they are exactly (ops/moments.h).  Writing some numbers of a block
 * reads the others first.  Writing a block in parts gives the same result, because a value on a block's grid is also on the grid
 * of a smaller exponent. */
#include "base/split.h"
#include "engine/state_internal.h"
#include "schedule/slices.h"

#include <string.h>

enum { PIECE = 1 << 17 }; /* 8-bit numbers per copy to or from the device: whole blocks */

/* -- addresses ------------------------------------------------------------------------------ */

static mt_state_form form(const mt_state *s) { return mt_arithmetic_form(&s->plan->arithmetic); }
static bool packed(const mt_state *s, mt_state_kind kind)
{
    return mt_state_is_array(kind) && form(s).moments == MT_MOMENTS_8BIT;
}

size_t mt_state_number_bytes(const mt_state *s, mt_state_kind kind) { return mt_state_read_bytes(form(s), kind); }

size_t mt_state_bytes(const mt_state *s, int unit, mt_state_kind kind)
{
    return mt_plan_array_bytes(s->plan, kind, (size_t)mt_plan_stored(s->plan, unit, kind));
}

/* Numbers stored contiguously: a unit's, or one lane's slice of them. */
typedef struct span {
    mt_state_range r; /* counted from the first one stored there */
    char *home;
    int lane;         /* lane whose device has it; -1: in host memory */
    int64_t n_stored; /* number of all stored there */
} span;

static span whole_span(const mt_state *s, mt_state_range r)
{
    return (span){ .r = r,
                   .home = mt_home_at(&s->units[r.unit].home, r.kind),
                   .lane = mt__lives_on_device(s, r.unit) ? 0 : -1,
                   .n_stored = mt_plan_stored(s->plan, r.unit, r.kind) };
}

static mt_rc move_span(mt_state *s, const span *p, void *home, char *host, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    return mt__home_move(s, p->lane, p->r.unit, home, host, bytes, dir, err);
}

/* True if the plan keeps this state of the unit; also if nothing is stored here, because all low halves are zero or because other
 * machines have the unit's slices. */
static bool is_kept(const mt_state *s, mt_state_range r)
{
    const mt_job *j = &s->plan->job;
    const mt_layout *l = mt__state_layout(s, r.unit);
    if (!mt_state_has(form(s), r.kind)) return false;
    bool updates = j->train && !j->only_gradients, low = updates || s->plan->arithmetic.compute == MT_DTYPE_F32;
    if (mt_plan_machines(s->plan) > 1 && mt_state_is_array(r.kind)) return updates && l->n_train;
    return mt_home_at(&s->units[r.unit].home, r.kind) ||
           (r.kind == MT_STATE_LO && low && !mt_plan_stored(s->plan, r.unit, MT_STATE_LO));
}

static mt_rc check_range(const mt_state *s, mt_state_range r, bool is_there, mt_err *err)
{
    const int64_t size = mt_unit_state(s->model, r.unit, r.kind).n;
    if (!is_there) return mt_fail(err, MT_EINVAL, "unit %d has no such state under this plan", r.unit);
    if (r.first >= 0 && r.n >= 0 && r.first <= size - r.n) return MT_OK;
    return mt_fail(err, MT_ERANGE, "unit %d: elements %lld to %lld of %lld", r.unit, (long long)r.first,
                   (long long)(r.first + r.n), (long long)size);
}

/* -- halves ---------------------------------------------------------------------------------------- */

/* If nothing is updated, exact numbers have their own home: both halves, also of mapped weights. */
static mt_rc write_exact(mt_state *s, mt_state_range r, char *src, mt_err *err)
{
    const mt_layout *l = mt__state_layout(s, r.unit);
    uint16_t *home = s->units[r.unit].home.exact + (r.kind == MT_STATE_LO ? l->n_exact : 0);
    for (const mt_exact_run *x = l->exact; x < l->exact + MT_EXACT_RUNS; x++) {
        int64_t from = mt_max_i64(r.first, x->first), end = mt_min_i64(r.first + r.n, x->first + x->n);
        if (end > from)
            MT_TRY(mt__home_move(s, mt__lives_on_device(s, r.unit) ? 0 : -1, r.unit, home + x->at + from - x->first,
                                 src + (size_t)(from - r.first) * 2, (size_t)(end - from) * 2, MT_COPY_IN, err));
    }
    return MT_OK;
}

/* Frozen numbers loaded as bf16 have low halves of zero, which are not stored (A1). */
static mt_rc move_no_low(const mt_state *s, mt_state_range r, int16_t *host, mt_copy_dir dir, mt_err *err)
{
    const int64_t first = mt_max_i64(0, mt_min_i64(r.n, mt__state_layout(s, r.unit)->n_low - r.first));
    if (dir == MT_COPY_OUT) memset(host + first, 0, (size_t)(r.n - first) * sizeof *host);
    for (int64_t i = first; dir == MT_COPY_IN && i < r.n; i++)
        if (host[i])
            return mt_fail(err, MT_EFORMAT,
                           "unit %d: weights that are frozen now and bf16 in the model's files have other values here: this run "
                           "trained them before, or these are not the files that the run began with; freeze no more than the run "
                           "did, or use those files",
                           r.unit);
    return MT_OK;
}

/* -- 8-bit moments --------------------------------------------------------------------------------- */

/* Some blocks of a moment in host memory. */
typedef struct blocks {
    int64_t at, n; /* numbers; `at` begins a block */
    uint8_t code[PIECE];
    uint8_t exponent[PIECE / MT_MOMENT_BLOCK];
} blocks;

/* The blocks that hold the range, or as many as fit.  Ranges count from the first number stored here: slices are whole blocks. */
static void choose_blocks(const span *p, blocks *b)
{
    const mt_state_range r = p->r;
    b->at = r.first / MT_MOMENT_BLOCK * MT_MOMENT_BLOCK;
    b->n = mt_min_i64(PIECE, (int64_t)mt_moments_blocks((size_t)(r.first + r.n - b->at)) * MT_MOMENT_BLOCK);
    b->n = mt_min_i64(b->n, p->n_stored - b->at);
}

static mt_rc move_blocks(mt_state *s, const span *p, blocks *b, mt_copy_dir dir, mt_err *err)
{
    mt_byte_run runs[2];
    mt_state_byte_runs(form(s), p->r.kind, p->n_stored, b->at, b->n, runs);
    MT_TRY(move_span(s, p, p->home + runs[0].at, (char *)b->code, runs[0].bytes, dir, err));
    return move_span(s, p, p->home + runs[1].at, (char *)b->exponent, runs[1].bytes, dir, err);
}

static int numbers_in(const blocks *b, int64_t i) { return (int)mt_min_i64(MT_MOMENT_BLOCK, b->n - i * MT_MOMENT_BLOCK); }

static mt_moment_scale scale_of(const blocks *b, bool is_square, int64_t i)
{
    return mt_moment_scale_of(b->exponent[i], is_square ? MT_MOMENT_E_BITS_V : MT_MOMENT_E_BITS_M);
}

/* Block i as the bf16 it is exactly. */
static void state_io_unpack(const blocks *b, bool is_square, int64_t i, uint16_t out[MT_MOMENT_BLOCK])
{
    const uint8_t *code = b->code + i * MT_MOMENT_BLOCK;
    int n = numbers_in(b, i);
    mt_moment_scale scale = scale_of(b, is_square, i);
    if (!is_square)
        for (int k = 0; k < n; k++) out[k] = (uint16_t)(mt__bits_of(mt_moment_m_value(code[k], scale)) >> 16);
    else
        for (int k = 0; k < n; k++) out[k] = (uint16_t)(mt__bits_of(mt_moment_v_value(code[k], scale)) >> 16);
}

/* The conversion is exact, so it needs no random rounding. */
static void pack(blocks *b, bool is_square, int64_t i, const uint16_t in[MT_MOMENT_BLOCK])
{
    uint8_t *code = b->code + i * MT_MOMENT_BLOCK;
    int n = numbers_in(b, i);
    uint32_t largest = 0;
    for (int k = 0; k < n; k++) {
        uint32_t raised = mt_moment_raised(mt_bf16_to_f32(in[k]), 0);
        largest = raised > largest ? raised : largest;
    }
    b->exponent[i] = (uint8_t)mt_moment_exponent(largest);
    mt_moment_scale scale = scale_of(b, is_square, i);
    if (!is_square)
        for (int k = 0; k < n; k++) code[k] = (uint8_t)mt_moment_m_code(mt_bf16_to_f32(in[k]), 0, scale);
    else
        for (int k = 0; k < n; k++) code[k] = (uint8_t)mt_moment_v_code(mt_bf16_to_f32(in[k]), 0, scale);
}

/* Copies numbers [from, to) of b from or to `data`, and advances data. */
static void convert_blocks(blocks *b, bool is_square, int64_t from, int64_t to, char **data, mt_copy_dir dir)
{
    uint16_t x[MT_MOMENT_BLOCK];
    for (int64_t i = from / MT_MOMENT_BLOCK; i * MT_MOMENT_BLOCK < to; i++) {
        int64_t at = i * MT_MOMENT_BLOCK, first = mt_max_i64(from - at, 0);
        size_t bytes = (size_t)(mt_min_i64(to - at, MT_MOMENT_BLOCK) - first) * sizeof *x;
        bool whole = bytes == (size_t)numbers_in(b, i) * sizeof *x;
        if (dir == MT_COPY_OUT || !whole) state_io_unpack(b, is_square, i, x);
        if (dir == MT_COPY_OUT) {
            memcpy(*data, x + first, bytes);
        } else {
            memcpy(x + first, *data, bytes);
            pack(b, is_square, i, x);
        }
        *data += bytes;
    }
}

static mt_rc move_packed(mt_state *s, span p, char *data, mt_copy_dir dir, mt_err *err)
{
    mt_state_range *const r = &p.r;
    const int64_t end = r->first + r->n;
    const bool is_square = mt_state_optimizer(s)->arrays[r->kind - MT_STATE_ARRAYS].is_square;
    blocks *b = mt_malloc(sizeof *b); /* too much for a small stack */
    mt_rc rc = b ? MT_OK : mt_no_memory(err, "the moments of unit %d", r->unit);
    while (!rc && r->first < end) {
        r->n = end - r->first;
        choose_blocks(&p, b);
        int64_t from = r->first - b->at, to = mt_min_i64(b->n, end - b->at);
        if (dir == MT_COPY_OUT || from > 0 || to < b->n)
            rc = move_blocks(s, &p, b, MT_COPY_OUT, err); /* keep the other numbers */
        if (!rc) convert_blocks(b, is_square, from, to, &data, dir);
        if (!rc && dir == MT_COPY_IN) rc = move_blocks(s, &p, b, MT_COPY_IN, err);
        r->first = b->at + b->n;
    }
    mt_free(b);
    return rc;
}

/* -- reading and writing --------------------------------------------------------------------------- */

static mt_rc move_stored(mt_state *s, const span *p, char *host, mt_copy_dir dir, mt_err *err)
{
    size_t each = mt_state_number_bytes(s, p->r.kind);
    if (packed(s, p->r.kind)) return move_packed(s, *p, host, dir, err);
    return move_span(s, p, p->home + (size_t)p->r.first * each, host, (size_t)p->r.n * each, dir, err);
}

/* With several machines, this one writes and reads only the slice that it stores. */
static mt_rc move_numbers(mt_state *s, mt_state_range r, char *host, mt_copy_dir dir, mt_err *err)
{
    mt_stretch runs[2];
    const int n = mt_plan_runs(s->plan, r.unit, r.kind, runs);
    int64_t before = 0, moved = 0;
    for (int i = 0; i < n; before += runs[i++].n) {
        const int64_t from = mt_max_i64(r.first, runs[i].first), end = mt_min_i64(r.first + r.n, runs[i].first + runs[i].n);
        if (end <= from) continue;
        const span part = whole_span(s, (mt_state_range){ r.unit, r.kind, before + from - runs[i].first, end - from });
        MT_TRY(move_stored(s, &part, host + (size_t)(from - r.first) * mt_state_number_bytes(s, r.kind), dir, err));
        moved += end - from;
    }
    if (r.kind == MT_STATE_LO) {
        MT_TRY(move_no_low(s, r, (int16_t *)(void *)host, dir, err));
        moved += mt_max_i64(0, mt_min_i64(r.n, r.first + r.n - mt__state_layout(s, r.unit)->n_low));
    }
    if (dir == MT_COPY_IN || moved == r.n) return MT_OK;
    return mt_fail(err, MT_EINVAL, "unit %d: elements %lld to %lld are stored on another machine", r.unit, (long long)r.first,
                   (long long)(r.first + r.n));
}

/* -- slices ---------------------------------------------------------------------------------------- */

/* The part of r in [from, to) of the unit, which `lane` stores from number `at` on. */
static span span_on(const mt_state *s, int lane, mt_state_range r, int64_t from, int64_t to, int64_t at)
{
    const mt_home home = mt_peers_home(s->folder.peers, lane, r.unit);
    const int64_t first = mt_max_i64(r.first, from), end = mt_min_i64(r.first + r.n, to);
    return (span){ .r = { r.unit, r.kind, at + first - from, mt_max_i64(0, end - first) },
                   .home = mt_home_at(&home, r.kind),
                   .lane = lane,
                   .n_stored = mt_plan_lane_slice(s->plan, r.unit, lane).n };
}

/* Every lane has the frozen numbers, if they are stored. */
static mt_rc move_rest(mt_state *s, mt_state_range r, char *host, mt_copy_dir dir, mt_err *err)
{
    const mt_layout *l = mt__state_layout(s, r.unit);
    const int64_t end = r.kind == MT_STATE_LO ? l->n_low : l->n_hi;
    const int lanes = dir == MT_COPY_IN ? mt_plan_lanes(s->plan) : 1;
    char *at = host + (size_t)mt_max_i64(0, l->n_train - r.first) * mt_state_number_bytes(s, r.kind);
    for (int k = 0; k < lanes && !mt_state_is_array(r.kind); k++) {
        const span p = span_on(s, k, r, l->n_train, end, mt_plan_slice_rest(s->plan, r.unit));
        if (p.r.n) MT_TRY(move_stored(s, &p, at, dir, err));
    }
    return MT_OK;
}

static mt_rc move_slices(mt_state *s, mt_state_range r, char *host, mt_copy_dir dir, mt_err *err)
{
    for (int k = 0; k < mt_plan_lanes(s->plan); k++) {
        const mt_stretch cut = mt_plan_lane_slice(s->plan, r.unit, k);
        const span p = span_on(s, k, r, cut.first, cut.first + cut.n, 0);
        char *at = host + (size_t)mt_max_i64(0, cut.first - r.first) * mt_state_number_bytes(s, r.kind);
        if (p.r.n) MT_TRY(move_stored(s, &p, at, dir, err));
    }
    MT_TRY(move_rest(s, r, host, dir, err));
    return r.kind == MT_STATE_LO ? move_no_low(s, r, (int16_t *)(void *)host, dir, err) : MT_OK;
}

/* If lanes have slices of the weights, writes those too. */
static mt_rc move_range(mt_state *s, mt_state_range r, char *host, mt_copy_dir dir, mt_err *err)
{
    if (mt_plan_is_sliced(s->plan, r.unit)) return move_slices(s, r, host, dir, err);
    MT_TRY(move_numbers(s, r, host, dir, err));
    return dir == MT_COPY_IN && mt_plan_mirrors(s->plan, r.unit, r.kind) ? move_slices(s, r, host, dir, err) : MT_OK;
}

mt_rc mt_state_read_sliced_grad(mt_state *s, int unit, void *dst, mt_err *err)
{
    const size_t each = mt_dtype_bytes(s->plan->arithmetic.grad);
    for (int k = 0; k < mt_plan_lanes(s->plan); k++) {
        const mt_stretch cut = mt_plan_lane_slice(s->plan, unit, k);
        if (cut.n)
            MT_TRY(mt__home_move(s, k, unit, mt_peers_gradient(s->folder.peers, k, unit), (char *)dst + (size_t)cut.first * each,
                                 (size_t)cut.n * each, MT_COPY_OUT, err));
    }
    return MT_OK;
}

/* -- packed weights -------------------------------------------------------------------------------- */

/* True if some of the range is packed, or all of it are bytes. */
static bool has_packed(const mt_state *s, mt_state_range r)
{
    const mt_layout *l = mt__state_layout(s, r.unit);
    return l->packed_bytes && (r.kind == MT_STATE_PACKED || (r.kind <= MT_STATE_LO && r.n && r.first + r.n > l->n_hi));
}

/* The halves of packed numbers [first, first + n) of a weight; `half`: of the numbers they expand to. */
static void expand_halves(const mt_state *s, int unit, const mt_weight *w, mt_state_kind kind, int64_t first, int64_t n,
                          uint16_t *half)
{
    const mt_packed p = mt_packed_at(&w->packing, s->units[unit].home.packed + w->packed_at);
    float x[1 << 10];
    for (int64_t at = 0, some; at < n; at += some) {
        some = mt_min_i64((int64_t)MT_COUNT(x), n - at);
        mt_packed_read(&p, first + at, some, x);
        for (int64_t i = 0; i < some; i++) {
            uint16_t hi;
            int16_t lo;
            mt_split(x[i], &hi, &lo);
            half[at + i] = kind == MT_STATE_HI ? hi : (uint16_t)lo;
        }
    }
}

mt_state_range mt_state_read_packed(const mt_state *s, mt_state_range r, void *dst)
{
    const mt_layout *l = mt__state_layout(s, r.unit);
    if (!has_packed(s, r)) return r;
    if (r.kind == MT_STATE_PACKED) {
        memcpy(dst, s->units[r.unit].home.packed + r.first, (size_t)r.n);
        return (mt_state_range){ r.unit, r.kind, r.first, 0 };
    }
    const int64_t plain = mt_max_i64(0, l->n_hi - r.first);
    memset((uint16_t *)dst + plain, 0, (size_t)(r.n - plain) * sizeof(uint16_t)); /* between weights */
    for (const mt_weight *w = l->weights; w < l->weights + l->n_weights; w++) {
        const int64_t from = mt_max_i64(r.first, w->offset), end = mt_min_i64(r.first + r.n, w->offset + w->n);
        if (w->packing.form != MT_FORM_NUMBERS && end > from)
            expand_halves(s, r.unit, w, r.kind, from - w->offset, end - from, (uint16_t *)dst + (from - r.first));
    }
    return (mt_state_range){ r.unit, r.kind, r.first, plain };
}

/* Halves of packed weights can only be what they are: this is how the weights of an older checkpoint, which has halves of all, are
 * compared with the model's files. */
static mt_rc compare_packed(const mt_state *s, mt_state_range r, const uint16_t *src, mt_err *err)
{
    uint16_t half[1 << 10];
    for (int64_t at = 0; at < r.n; at += (int64_t)MT_COUNT(half)) {
        const mt_state_range part = mt_state_piece(r, at, (int64_t)MT_COUNT(half));
        (void)mt_state_read_packed(s, part, half);
        if (memcmp(half, src + at, (size_t)part.n * sizeof *half) != 0)
            return mt_fail(err, MT_EFORMAT,
                           "unit %d: weights that are frozen now and quantized in the model's files have other values here: this "
                           "run trained them before, or these are not the files that the run began with; freeze no more than "
                           "the run did, or use those files",
                           r.unit);
    }
    return MT_OK;
}

static mt_rc write_packed(mt_state *s, mt_state_range *r, const void *src, mt_err *err)
{
    const int64_t n_hi = mt__state_layout(s, r->unit)->n_hi;
    if (r->kind == MT_STATE_PACKED) {
        memcpy(s->units[r->unit].home.packed + r->first, src, (size_t)r->n);
        r->n = 0;
        return MT_OK;
    }
    if (mt_state_is_array(r->kind) || r->first + r->n <= n_hi) return MT_OK;
    const int64_t plain = mt_max_i64(0, n_hi - r->first);
    const mt_state_range rest = { r->unit, r->kind, r->first + plain, r->n - plain };
    r->n = plain;
    return compare_packed(s, rest, (const uint16_t *)src + plain, err);
}

/* -- all of it ------------------------------------------------------------------------------------- */

mt_rc mt_state_read(mt_state *s, mt_state_range r, void *dst, mt_err *err)
{
    if (has_packed(s, r)) {
        MT_TRY(check_range(s, r, true, err));
        r = mt_state_read_packed(s, r, dst);
        if (!r.n) return MT_OK;
    }
    MT_TRY(check_range(s, r, is_kept(s, r), err));
    return move_range(s, r, dst, MT_COPY_OUT, err);
}

static bool has_exact(const mt_state *s, mt_state_range r) { return !mt_state_is_array(r.kind) && s->units[r.unit].home.exact; }

bool mt_state_takes(const mt_state *s, mt_state_range r)
{
    return has_packed(s, r) || (r.kind < MT_STATE_KINDS && (is_kept(s, r) || has_exact(s, r)));
}

mt_rc mt_state_write(mt_state *s, mt_state_range r, const void *src, mt_err *err)
{
    char *from = (char *)(uintptr_t)src; /* only read */
    if (has_packed(s, r)) {
        MT_TRY(check_range(s, r, true, err));
        MT_TRY(write_packed(s, &r, src, err));
        if (!r.n) return MT_OK;
    }
    const bool kept = is_kept(s, r);
    MT_TRY(check_range(s, r, mt_state_takes(s, r), err));
    if (has_exact(s, r)) MT_TRY(write_exact(s, r, from, err));
    return kept ? move_range(s, r, from, MT_COPY_IN, err) : MT_OK; /* otherwise mapped, or not requested */
}
