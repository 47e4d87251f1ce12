/* op_run.c - what every case shares: buffers, copies, checks. */
#include "op_cases.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff, SCRATCH_BLOCK = 16 << 20 }; /* a NaN in every float format; bytes of scratch that are poisoned at a time */

/* -- buffers --------------------------------------------------------------------------------------- */

static size_t at(const op_buf *b, int64_t row, int64_t col) { return (size_t)(row * b->ld + col) * mt_dtype_bytes(b->t); }
size_t op_bytes(const op_buf *b) { return (size_t)(b->rows * b->ld) * mt_dtype_bytes(b->t); }
/* On the host: nobody looks at scratch, of which there may be much. */
static size_t host_bytes(const op_buf *b) { return b->kind == OP_SCRATCH && op_bytes(b) > SCRATCH_BLOCK ? SCRATCH_BLOCK : op_bytes(b); }

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

void op_scale(op_run *r, op_buf *b, double deviation, double mean)
{
    uint64_t stream = (uint64_t)op_index(r, b) + 1;
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->width; j++) {
            float x = (float)(mean + deviation * (double)mt_rng_normal(r->how.seed, stream, (uint64_t)(i * b->width + j)));
            op_set(b, i, j, (double)(r->how.rounded ? mt_bf16_to_f32(mt_f32_to_bf16(x)) : x));
        }
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

static mt_rc upload(op_run *r, mt_device *dev, mt_stream *s, mt_err *err)
{
    size_t skew = 0;
    for (int i = 0; i < r->n_bufs; i++) {
        op_buf *b = &r->bufs[i];
        if (shares(r, b)) continue;
        bool integers = b->kind == OP_SCRATCH || !is_float(b->t);
        skew = integers ? 0 : (size_t)r->how.skew * mt_dtype_bytes(b->t);
        MT_TRY(mt_device_alloc(dev, &b->base, op_bytes(b) + skew, b->name, err));
        b->dev = (char *)b->base + skew;
        for (size_t at = 0, block = host_bytes(b), n = op_bytes(b); at < n; at += block)
            MT_TRY(mt_copy(s, (char *)b->dev + at, b->init, n - at < block ? n - at : block, MT_COPY_IN, err));
    }
    for (int i = 0; i < r->n_bufs; i++)
        if (shares(r, &r->bufs[i])) r->bufs[i].dev = r->bufs[r->bufs[i].shares].dev;
    return MT_OK;
}

static void bind(op_run *r, int phase)
{
    for (int has = 0; has < 2; has++) /* what has no place in this phase is NULL, unless another takes its place */
        for (int i = 0; i < r->n_bufs; i++) {
            op_buf *b = &r->bufs[i];
            bool bound = b->phases & phase;
            if (b->slot != OP_NOWHERE && bound == has) memcpy(r->args + b->slot, bound ? &b->dev : &(void *){ NULL }, sizeof(void *));
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

static mt_rc run_on(op_run *r, mt_device *dev, mt_stream *s, mt_event *done, bool backward, mt_err *err)
{
    const mt_ops *ops = mt_ops_of(dev);
    MT_TRY(upload(r, dev, s, err));
    MT_TRY(launch(r, ops, s, OP_FWD, err));
    if (backward && r->spec->has_bwd) MT_TRY(launch(r, ops, s, OP_BWD, err));
    for (int i = 0; i < r->n_bufs; i++)
        if (r->bufs[i].kind != OP_SCRATCH) MT_TRY(mt_copy(s, r->bufs[i].result, r->bufs[i].dev, op_bytes(&r->bufs[i]), MT_COPY_OUT, err));
    MT_TRY(mt_record(s, done, err));
    return mt_sync(done, err);
}

mt_rc op_execute(op_run *r, mt_device *dev, bool backward, mt_err *err)
{
    mt_stream *s = NULL;
    mt_event *done = NULL;
    mt_rc rc = dev->api->stream_create(dev, &s, "test", err);
    if (!rc) rc = dev->api->event_create(dev, &done, err);
    if (!rc) rc = run_on(r, dev, s, done, backward, err);
    if (s) dev->api->stream_free(s);
    if (done) dev->api->event_free(done);
    for (int i = 0; i < r->n_bufs; i++) {
        dev->api->free(dev, r->bufs[i].base);
        r->bufs[i].base = r->bufs[i].dev = NULL;
    }
    return rc ? mt_note(err, "%s, case %d", r->spec->name, r->case_index) : MT_OK;
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

const char *op_check_written(const op_run *r)
{
    for (int k = 0; k < r->n_bufs; k++) {
        const op_buf *b = &r->bufs[k];
        size_t n = mt_dtype_bytes(b->t);
        if (b->kind == OP_INPUT && !r->how.in_place && memcmp(b->init, b->result, op_bytes(b)) != 0)
            return complain(b, 0, 0, "changed: an input");
        if (!op_is_result(b)) continue;
        for (int64_t i = 0; i < b->rows; i++) {
            for (int64_t j = 0; j < b->width; j++) {
                if (b->kind == OP_OUTPUT && is_poison(b->result + at(b, i, j), n)) return complain(b, i, j, "was not written");
                if (!r->spec->exact && is_float(b->t) && !isfinite(op_get(b, b->result, i, j)))
                    return complain(b, i, j, "is not finite");
            }
            if (!is_poison(b->result + at(b, i, b->width), (size_t)(b->ld - b->width) * n))
                return complain(b, i, b->width, "lies past the row and was written");
        }
    }
    return r->spec->check ? r->spec->check(r) : NULL;
}

double op_distance(const op_buf *a, const op_buf *b)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->width; j++) {
            double x = op_get(a, a->result, i, j), y = op_get(b, b->result, i, j);
            error += (x - y) * (x - y);
            size += y * y;
        }
    double allowed = sqrt(size) + b->floor * sqrt((double)(b->rows * b->width));
    double d = error > 0 ? sqrt(error) / allowed : 0;
    return isfinite(error) ? d : INFINITY;
}
