/* op_run.c - what every case shares: buffers, copies, checks. */
#include "op_cases.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff, MANY = 1 << 20 }; /* a NaN in every float format; elements that are worth several threads */

/* -- buffers --------------------------------------------------------------------------------------- */

static size_t at(const op_buf *b, int64_t row, int64_t col) { return (size_t)(row * b->ld + col) * mt_dtype_bytes(b->t); }
size_t op_bytes(const op_buf *b) { return (size_t)(b->rows * b->ld) * mt_dtype_bytes(b->t); }
/* On the host: nothing reads scratch, of which there may be much. */
static size_t host_bytes(const op_buf *b) { return b->kind == OP_SCRATCH ? 0 : op_bytes(b); }

/* fn(arg, row) for all rows of a buffer, of which long attention has millions of elements. */
static void each_row(const op_buf *b, mt_pool_fn fn, void *arg)
{
    mt_pool *pool = NULL;
    if (b->rows * b->width >= MANY && mt_pool_create(&pool, mt_cpu_count(), NULL) == MT_OK) {
        mt_pool_for(pool, b->rows, fn, arg);
        mt_pool_free(pool);
        return;
    }
    for (int64_t i = 0; i < b->rows; i++) fn(arg, i);
}

double op_get(const op_buf *b, const unsigned char *data, int64_t row, int64_t col)
{
    const unsigned char *p = data + at(b, row, col);
    if (b->t == MT_DTYPE_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    float f;
    mt_to_f32(&f, p, b->t, 1);
    return f;
}

void op_set(op_buf *b, int64_t row, int64_t col, double x)
{
    unsigned char *p = b->init + at(b, row, col);
    float f = (float)x;
    int32_t i = (int32_t)x;
    if (b->t == MT_DTYPE_I32)
        memcpy(p, &i, sizeof i);
    else if (b->t == MT_DTYPE_F64)
        memcpy(p, &x, sizeof x);
    else
        mt_from_f32(p, b->t, &f, 1);
}

static bool is_float(mt_dtype t) { return t == MT_DTYPE_F32 || t == MT_DTYPE_BF16; }

/* The first n normal numbers of a stream, or NULL if they are too many to keep.  The cases of a test draw from the same streams,
 * and drawing costs more than most ops do, so the numbers of the latest seed stay. */
static const float *normal_numbers(uint64_t seed, int stream, int64_t n)
{
    static struct {
        uint64_t seed;
        struct {
            float *x;
            size_t cap;
            int64_t n;
        } streams[OP_MAX_BUFS + 1];
    } drawn;
    if (n > 8 * MANY) return NULL;
    if (drawn.seed != seed)
        for (int i = 0; i <= OP_MAX_BUFS; i++) drawn.streams[i].n = 0;
    drawn.seed = seed;
    if (mt_grow(&drawn.streams[stream].x, &drawn.streams[stream].cap, (size_t)n, sizeof(float), NULL)) return NULL;
    float *x = drawn.streams[stream].x;
    for (int64_t *i = &drawn.streams[stream].n; *i < n; ++*i) x[*i] = mt_rng_normal(seed, (uint64_t)stream, (uint64_t)*i);
    return x;
}

typedef struct drawing {
    op_buf *b;
    uint64_t seed, stream;
    double deviation, mean;
    bool rounded;
    const float *numbers; /* of the stream, or NULL */
} drawing;

static void draw_row(void *arg, int64_t i)
{
    const drawing *d = arg;
    for (int64_t j = 0; j < d->b->width; j++) {
        int64_t at_number = i * d->b->width + j;
        double number = (double)(d->numbers ? d->numbers[at_number] : mt_rng_normal(d->seed, d->stream, (uint64_t)at_number));
        float x = (float)(d->mean + d->deviation * number);
        op_set(d->b, i, j, (double)(d->rounded ? mt_bf16_to_f32(mt_f32_to_bf16(x)) : x));
    }
}

void op_scale(op_run *r, op_buf *b, double deviation, double mean)
{
    int stream = op_index(r, b) + 1;
    const float *numbers = normal_numbers(r->how.seed, stream, b->rows * b->width);
    each_row(b, draw_row, &(drawing){ b, r->how.seed, (uint64_t)stream, deviation, mean, r->how.rounded, numbers });
}

op_buf *op_add(op_run *r, const void *field, const char *name, op_kind kind, mt_dtype t, int64_t rows, int64_t width, int64_t ld)
{
    assert(r->n_bufs < OP_MAX_BUFS);
    op_buf *b = &r->bufs[r->n_bufs++];
    *b = (op_buf){ .name = name,
                   .kind = kind,
                   .t = t,
                   .rows = rows,
                   .width = width,
                   .ld = ld ? ld : width,
                   .slot = OP_NOWHERE,
                   .phases = OP_BOTH,
                   .grad = OP_NOWHERE,
                   .seed = OP_NOWHERE,
                   .shares = OP_NOWHERE,
                   .floor = 1e-6 };
    if (field) {
        b->slot = (int)((const unsigned char *)field - r->args);
        memcpy(r->args + b->slot, &(void *){ r }, sizeof(void *)); /* present, for the scratch functions */
    }
    size_t bytes = host_bytes(b) ? host_bytes(b) : 1;
    b->init = malloc(bytes);
    b->result = malloc(bytes);
    if (!b->init || !b->result) abort();
    memset(b->init, POISON, bytes);
    memset(b->result, POISON, bytes);
    if (is_float(t) && kind != OP_OUTPUT && kind != OP_SCRATCH) op_scale(r, b, 1.0, 0.0);
    return b;
}

int op_index(const op_run *r, const op_buf *b) { return (int)(b - r->bufs); }

op_buf *op_named(op_run *r, const char *name)
{
    for (int i = 0; i < r->n_bufs; i++)
        if (strcmp(r->bufs[i].name, name) == 0) return &r->bufs[i];
    return NULL;
}

uint64_t op_seed(void)
{
    const char *seed = getenv("MT_SEED");
    return seed ? strtoull(seed, NULL, 10) : 40;
}

op_run *op_run_create(const op_spec *spec, int case_index, const op_how *how)
{
    op_run *r = calloc(1, sizeof *r);
    if (!r) abort();
    r->spec = spec;
    r->case_index = case_index;
    r->how = *how;
    r->how.seed += (uint64_t)case_index * 1000003;
    spec->declare(r, case_index);
    return r;
}

void op_run_free(op_run *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_bufs; i++) {
        free(r->bufs[i].init);
        free(r->bufs[i].result);
    }
    free(r);
}

/* -- running --------------------------------------------------------------------------------------- */

static bool shares(const op_run *r, const op_buf *b) { return r->how.in_place && b->shares != OP_NOWHERE; }

static mt_rc allocate(op_run *r, mt_device *dev, mt_err *err)
{
    for (int i = 0; i < r->n_bufs; i++) {
        op_buf *b = &r->bufs[i];
        if (shares(r, b)) continue;
        bool integers = b->kind == OP_SCRATCH || !is_float(b->t);
        size_t skew = integers ? 0 : (size_t)r->how.skew * mt_dtype_bytes(b->t);
        MT_TRY(mt_device_alloc(dev, &b->base, op_bytes(b) + skew, b->name, err));
        b->dev = (char *)b->base + skew;
    }
    for (int i = 0; i < r->n_bufs; i++)
        if (shares(r, &r->bufs[i])) r->bufs[i].dev = r->bufs[r->bufs[i].shares].dev;
    return MT_OK;
}

static bool is_poisoned(const op_buf *b) { return b->kind == OP_OUTPUT || b->kind == OP_SCRATCH; }

/* What is read, once; what is written, before every run. */
static mt_rc prepare(op_run *r, bool read, mt_err *err)
{
    for (int i = 0; i < r->n_bufs; i++) {
        op_buf *b = &r->bufs[i];
        if (shares(r, b) || (b->kind == OP_INPUT) != read) continue;
        if (is_poisoned(b))
            MT_TRY(mt_fill(r->stream, b->dev, POISON, op_bytes(b), err));
        else
            MT_TRY(mt_copy(r->stream, b->dev, b->init, op_bytes(b), MT_COPY_IN, err));
    }
    return MT_OK;
}

static void bind(op_run *r, int phase)
{
    for (int has = 0; has < 2; has++) /* what has no place in this phase is NULL, unless another takes its place */
        for (int i = 0; i < r->n_bufs; i++) {
            op_buf *b = &r->bufs[i];
            bool bound = b->phases & phase;
            if (b->slot != OP_NOWHERE && bound == has)
                memcpy(r->args + b->slot, bound ? &b->dev : &(void *){ NULL }, sizeof(void *));
        }
}

static mt_rc launch(op_run *r, const mt_ops *ops, mt_stream *s, int phase, mt_err *err)
{
    const void *a = r->args;
    bind(r, phase);
    /* clang-format off */
    switch (r->spec->id) {
#define MT_OP(n)  case OP_ID_##n: return phase == OP_FWD ? ops->n##_fwd(s, a, err) : ops->n##_bwd(s, a, err);
#define MT_OP1(n) case OP_ID_##n: return ops->n(s, a, err);
#include "ops/ops.def"
    case OP_COUNT: break;
    }
    /* clang-format on */
    return mt_fail(err, MT_EINTERNAL, "no such op");
}

static mt_rc fetch(op_run *r, bool inputs, mt_err *err)
{
    for (int i = 0; i < r->n_bufs; i++) {
        op_buf *b = &r->bufs[i];
        if (op_is_result(b) || (inputs && b->kind == OP_INPUT))
            MT_TRY(mt_copy(r->stream, b->result, b->dev, op_bytes(b), MT_COPY_OUT, err));
    }
    MT_TRY(mt_record(r->stream, r->done, err));
    return mt_sync(r->done, err);
}

static mt_rc explained(const op_run *r, mt_rc rc, mt_err *err)
{
    return rc ? mt_note(err, "%s, case %d", r->spec->name, r->case_index) : MT_OK;
}

static mt_rc place(op_run *r, mt_device *dev, mt_err *err)
{
    MT_TRY(dev->api->stream_create(dev, &r->stream, "test", err));
    MT_TRY(dev->api->event_create(dev, &r->done, err));
    MT_TRY(allocate(r, dev, err));
    return prepare(r, true, err);
}

mt_rc op_place(op_run *r, mt_device *dev, mt_err *err)
{
    r->on = dev;
    return explained(r, place(r, dev, err), err);
}

static mt_rc run_placed(op_run *r, bool backward, bool inputs, mt_err *err)
{
    const mt_ops *ops = mt_ops_of(r->on);
    MT_TRY(prepare(r, false, err));
    MT_TRY(launch(r, ops, r->stream, OP_FWD, err));
    if (backward && r->spec->has_bwd) MT_TRY(launch(r, ops, r->stream, OP_BWD, err));
    return fetch(r, inputs, err);
}

mt_rc op_run_placed(op_run *r, bool backward, mt_err *err) { return explained(r, run_placed(r, backward, false, err), err); }

void op_unplace(op_run *r)
{
    if (r->stream) r->on->api->stream_free(r->stream);
    if (r->done) r->on->api->event_free(r->done);
    for (int i = 0; i < r->n_bufs; i++) {
        r->on->api->free(r->on, r->bufs[i].base);
        r->bufs[i].base = r->bufs[i].dev = NULL;
    }
    r->stream = NULL;
    r->done = NULL;
}

mt_rc op_execute(op_run *r, mt_device *dev, bool backward, mt_err *err)
{
    mt_rc rc = op_place(r, dev, err);
    if (!rc) rc = explained(r, run_placed(r, backward, true, err), err);
    op_unplace(r);
    return rc;
}

/* -- checks ---------------------------------------------------------------------------------------- */

bool op_is_result(const op_buf *b) { return b->kind == OP_OUTPUT || b->kind == OP_SUM || b->kind == OP_INOUT; }

static bool is_poison(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != POISON) return false;
    return true;
}

static const char *complain(const op_buf *b, int64_t row, int64_t col, const char *what)
{
    static char text[160];
    snprintf(text, sizeof text, "%s[%lld, %lld] %s", b->name, (long long)row, (long long)col, what);
    return text;
}

/* NULL, or what is wrong with a row of a result. */
static const char *row_fault(const op_run *r, const op_buf *b, int64_t i, int64_t *col)
{
    size_t n = mt_dtype_bytes(b->t);
    for (*col = 0; *col < b->width; ++*col) {
        if (b->kind == OP_OUTPUT && is_poison(b->result + at(b, i, *col), n)) return "was not written";
        if (!r->spec->exact && is_float(b->t) && !isfinite(op_get(b, b->result, i, *col))) return "is not finite";
    }
    return is_poison(b->result + at(b, i, b->width), (size_t)(b->ld - b->width) * n) ? NULL : "lies past the row and was written";
}

typedef struct row_check {
    const op_run *r;
    const op_buf *b;
    bool *bad; /* [rows] */
} row_check;

static void check_row(void *arg, int64_t i)
{
    const row_check *c = arg;
    int64_t col;
    c->bad[i] = row_fault(c->r, c->b, i, &col) != NULL;
}

static const char *check_rows(const op_run *r, const op_buf *b)
{
    const char *wrong = NULL;
    bool *bad = calloc((size_t)b->rows + 1, sizeof *bad);
    if (!bad) abort();
    each_row(b, check_row, &(row_check){ r, b, bad });
    for (int64_t i = 0, col; i < b->rows && !wrong; i++)
        if (bad[i]) {
            const char *what = row_fault(r, b, i, &col);
            wrong = complain(b, i, col, what);
        }
    free(bad);
    return wrong;
}

const char *op_check_written(const op_run *r)
{
    for (int k = 0; k < r->n_bufs; k++) {
        const op_buf *b = &r->bufs[k];
        if (b->kind == OP_INPUT && !r->how.in_place && memcmp(b->init, b->result, op_bytes(b)) != 0)
            return complain(b, 0, 0, "changed: an input");
        const char *wrong = op_is_result(b) ? check_rows(r, b) : NULL;
        if (wrong) return wrong;
    }
    return r->spec->check ? r->spec->check(r) : NULL;
}

typedef struct comparing {
    const op_buf *a, *b;
    double *error, *size; /* [rows] */
} comparing;

static void compare_row(void *arg, int64_t i)
{
    const comparing *c = arg;
    for (int64_t j = 0; j < c->b->width; j++) {
        double x = op_get(c->a, c->a->result, i, j), y = op_get(c->b, c->b->result, i, j);
        c->error[i] += (x - y) * (x - y);
        c->size[i] += y * y;
    }
}

double op_distance(const op_buf *a, const op_buf *b)
{
    double error = 0, size = 0, *rows = calloc((size_t)b->rows * 2 + 1, sizeof *rows);
    if (!rows) abort();
    each_row(b, compare_row, &(comparing){ a, b, rows, rows + b->rows });
    for (int64_t i = 0; i < b->rows; i++) {
        error += rows[i];
        size += rows[b->rows + i];
    }
    free(rows);
    double allowed = sqrt(size) + b->floor * sqrt((double)(b->rows * b->width));
    double d = error > 0 ? sqrt(error) / allowed : 0;
    return isfinite(error) ? d : INFINITY;
}
