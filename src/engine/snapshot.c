#define _GNU_SOURCE
#include "engine/snapshot.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/pool.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE = 1 << 20 }; /* numbers a thread copies at a time */

struct mt_snapshot {
    mt_state *state;
    const mt_model *model;
    const mt_plan *plan;         /* NULL: all state is stored here */
    size_t each[MT_STATE_KINDS]; /* bytes of a number; 0: not requested */
    char **copies;               /* copy of a unit (layout_of); NULL: not copied */
    size_t bytes;
};

/* The elements that are copied, in the order of the copy. */
static int runs_of(const mt_snapshot *s, int unit, int kind, mt_stretch runs[2])
{
    if (s->plan) return s->each[kind] ? mt_plan_runs(s->plan, unit, (mt_state_kind)kind, runs) : 0;
    const mt_layout *l = s->model->units[unit].layout;
    const int64_t masters = kind == MT_STATE_HI ? l->n_hi : l->n_low; /* the rest is zero, or packed */
    runs[0] = (mt_stretch){ 0, mt_state_is_array((mt_state_kind)kind) ? l->n_train : masters };
    return s->each[kind] ? 1 : 0;
}

static int64_t count_of(const mt_snapshot *s, int unit, int kind)
{
    mt_stretch runs[2];
    int64_t sum = 0;
    for (int i = runs_of(s, unit, kind, runs) - 1; i >= 0; i--) sum += runs[i].n;
    return sum;
}

/* Where each kind is in the unit's copy. */
static mt_state_layout layout_of(const mt_snapshot *s, int unit)
{
    size_t bytes[MT_STATE_PARTS] = { 0 };
    for (int k = 0; k < MT_STATE_KINDS; k++) bytes[k] = (size_t)count_of(s, unit, k) * s->each[k];
    return mt_state_lay_out(bytes);
}

static size_t bytes_of(const mt_snapshot *s, int unit) { return layout_of(s, unit).bytes; }

/* -- copying a unit -------------------------------------------------------------------------------- */

typedef struct copying {
    const mt_snapshot *s;
    int unit;
    char *to;
    pthread_mutex_t lock; /* guards err */
    mt_err err;
} copying;

static int64_t pieces_of(const mt_snapshot *s, int unit, int kind) { return (count_of(s, unit, kind) + PIECE - 1) / PIECE; }

/* Up to PIECE numbers, counted as they are copied. */
static mt_rc read_stored(const mt_snapshot *s, int unit, int kind, int64_t first, char *to, mt_err *err)
{
    mt_stretch runs[2];
    const int n = runs_of(s, unit, kind, runs);
    const int64_t end = first + PIECE;
    int64_t before = 0;
    for (int i = 0; i < n; before += runs[i++].n) {
        const int64_t from = mt_max_i64(first, before), to_end = mt_min_i64(end, before + runs[i].n);
        if (to_end <= from) continue;
        const mt_state_range r = { unit, (mt_state_kind)kind, runs[i].first + from - before, to_end - from };
        MT_TRY(mt_state_read_locked(s->state, r, to + (size_t)(from - first) * s->each[kind], err));
    }
    return MT_OK;
}

static void copy_piece(void *arg, int64_t i)
{
    copying *c = arg;
    const mt_snapshot *s = c->s;
    mt_err err = { 0 };
    int kind = 0;
    for (int64_t n; i >= (n = pieces_of(s, c->unit, kind)); kind++) i -= n;
    char *to = c->to + layout_of(s, c->unit).at[kind] + (size_t)(i * PIECE) * s->each[kind];
    if (!read_stored(s, c->unit, kind, i * PIECE, to, &err)) return;
    pthread_mutex_lock(&c->lock);
    if (!c->err.rc) c->err = err;
    pthread_mutex_unlock(&c->lock);
}

static mt_rc copy_unit(const mt_snapshot *s, int unit, char *to, mt_pool *pool, mt_err *err)
{
    copying c = { .s = s, .unit = unit, .to = to, .lock = PTHREAD_MUTEX_INITIALIZER };
    int64_t n = 0;
    for (int kind = 0; kind < MT_STATE_KINDS; kind++) n += pieces_of(s, unit, kind);
    mt_pool_for(pool, n, copy_piece, &c);
    pthread_mutex_destroy(&c.lock);
    if (c.err.rc) *err = c.err;
    return c.err.rc;
}

/* -- memory ---------------------------------------------------------------------------------------- */

static char *map(size_t bytes)
{
    if (mt_fault(MT_FAULT_ALLOC)) return NULL;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, MADV_HUGEPAGE); /* advisory only */
    return p;
}

/* The next unit that fits, from the i-th to be copied on; -1: none. */
static int next_that_fits(const mt_snapshot *s, const mt_snapshot_options *o, size_t room, int *i)
{
    int n = s->model->n_units;
    while (*i < n) {
        int u = o->backwards ? n - 1 - *i : *i;
        size_t bytes = bytes_of(s, u);
        ++*i;
        if (bytes && bytes <= room) return u;
    }
    return -1;
}

static mt_rc take_units(mt_snapshot *s, const mt_snapshot_options *o, mt_pool *pool, mt_err *err)
{
    size_t room = o->room;
    for (int i = 0, u; (u = next_that_fits(s, o, room, &i)) >= 0;) {
        size_t bytes = bytes_of(s, u);
        char *p = map(bytes);
        if (!p) return MT_OK;
        s->copies[u] = p;
        MT_TRY(copy_unit(s, u, p, pool, err));
        mt_state_unlock(s->state, u);
        room -= bytes;
        s->bytes += bytes;
    }
    return MT_OK;
}

/* -- interface --------------------------------------------------------------------------------------- */

static mt_snapshot extent_of(const mt_model *model, const mt_snapshot_options *o)
{
    mt_snapshot s = { .model = model, .plan = o->plan };
    for (mt_state_kind k = 0; k < MT_STATE_KINDS; k++)
        s.each[k] = mt_state_is_array(k) && o->only_weights ? 0 : mt_state_read_bytes(o->form, k);
    return s;
}

size_t mt_snapshot_would_take(const mt_model *model, const mt_snapshot_options *o)
{
    const mt_snapshot s = extent_of(model, o);
    size_t sum = 0;
    for (int i = 0, u; (u = next_that_fits(&s, o, o->room - sum, &i)) >= 0;) sum += bytes_of(&s, u);
    return sum;
}

mt_rc mt_snapshot_take(mt_snapshot **out, mt_state *state, const mt_model *model, const mt_snapshot_options *o, mt_err *err)
{
    mt_pool *pool = NULL;
    *out = NULL;
    mt_snapshot *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "copying the state aside");
    *s = extent_of(model, o);
    s->state = state;
    s->copies = mt_calloc((size_t)model->n_units, sizeof *s->copies);
    mt_rc rc = s->copies ? MT_OK : mt_no_memory(err, "copying the state aside");
    if (!rc) rc = mt_state_await_locked(state, err); /* before any long work */
    if (!rc && o->room && !mt_pool_create(&pool, o->n_threads, &(mt_err){ 0 })) rc = take_units(s, o, pool, err);
    mt_pool_free(pool);
    if (rc)
        mt_snapshot_free(s);
    else
        *out = s;
    return rc;
}

/* Values that are not stored are zero: low halves of frozen weights.  The reader knows which slices are here. */
static void read_copied(const mt_snapshot *s, mt_state_range r, const char *copy, char *dst)
{
    mt_stretch runs[2];
    const int n = runs_of(s, r.unit, r.kind, runs);
    const size_t each = s->each[r.kind];
    if (r.kind == MT_STATE_LO) memset(dst, 0, (size_t)r.n * each);
    for (int i = 0; i < n; copy += (size_t)runs[i++].n * each) {
        const int64_t from = mt_max_i64(r.first, runs[i].first), end = mt_min_i64(r.first + r.n, runs[i].first + runs[i].n);
        if (end > from)
            memcpy(dst + (size_t)(from - r.first) * each, copy + (size_t)(from - runs[i].first) * each,
                   (size_t)(end - from) * each);
    }
}

mt_rc mt_snapshot_read(const mt_snapshot *s, mt_state_range r, void *dst, mt_err *err)
{
    const char *copy = s->copies[r.unit];
    if (!copy || r.kind == MT_STATE_PACKED) return mt_state_read_locked(s->state, r, dst, err);
    const int64_t size = s->each[r.kind] ? mt_unit_state(s->model, r.unit, r.kind).n : 0;
    if (r.first < 0 || r.n < 0 || r.first > size - r.n)
        return mt_fail(err, MT_ERANGE, "unit %d: elements %lld to %lld of its copy's %lld", r.unit, (long long)r.first,
                       (long long)(r.first + r.n), (long long)size);
    r = mt_state_read_packed(s->state, r, dst);
    read_copied(s, r, copy + layout_of(s, r.unit).at[r.kind], dst);
    return MT_OK;
}

void mt_snapshot_drop(mt_snapshot *s, int unit)
{
    if (s->copies[unit]) munmap(s->copies[unit], bytes_of(s, unit));
    s->copies[unit] = NULL;
    mt_state_unlock(s->state, unit);
}

size_t mt_snapshot_bytes(const mt_snapshot *s) { return s->bytes; }

void mt_snapshot_free(mt_snapshot *s)
{
    if (!s) return;
    for (int u = 0; s->copies && u < s->model->n_units; u++) mt_snapshot_drop(s, u);
    mt_free(s->copies);
    mt_free(s);
}
