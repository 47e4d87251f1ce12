/* least.c - decides whether anything fits, and finds the least memory.
 *
 * Few knobs make a placement smaller, and most of those trade one memory for the other, byte for byte: state on the device for
 * state on the host, kept inputs on the host for kept inputs on the device.  So there are few smallest placements: one of each
 * slot; one sweep or the shortest ones; each length of segments; as many device homes as fit, or more, for which kept inputs move
 * to the host.  (A private staging slot takes as much device memory as a device home and frees less host memory: such slots are
 * for users who want all homes on the host.  Reusing memory needs more device memory than such slots.) */
#include "base/mem.h"
#include "base/units.h"
#include "plan/knobs.h"

#include <stdio.h>
#include <string.h>

typedef struct least_search {
    mt_plan *trial; /* its placement is the current candidate's */
    const knob_ranges *range;
    const mt_machine *machine;
    mt_least *least; /* the smallest so far */
    bool all;        /* do not end with the first that fits */
} least_search;

static bool is_over(const least_search *h) { return h->least->fits && !h->all; }

/* Measures a candidate, and keeps it if it needs less host memory than others that fit the device. */
static mt_rc measure_one(least_search *h, const candidate *c, size_t *device, mt_err *err)
{
    mt_plan *t = h->trial;
    mt_least *best = h->least;
    mt__knobs_fill(t, c);
    MT_TRY(mt_plan_measure(t, err));
    size_t host = mt_plan_host_total(t, h->machine);
    *device = t->device_bytes;
    if (*device < best->need.device) best->need.device = *device;
    if (*device > h->machine->device_bytes || host >= best->need.host) return MT_OK;
    best->need.host = host;
    best->c = *c;
    best->fits = host <= h->machine->host_bytes;
    return MT_OK;
}

/* The first `n` units have their home on the device, or staged updates if all homes must be the host. */
static int most_units(const least_search *h)
{
    return h->range->highest[HOMES] ? h->range->highest[HOMES] : h->range->highest[STAGED];
}

static void set_units(const least_search *h, candidate *c, int n)
{
    if (h->range->highest[HOMES])
        c->k[HOMES] = n;
    else
        c->k[STAGED] = c->k[OWN] = n;
}

static mt_rc measure_with(least_search *h, candidate c, int units, size_t *device, mt_err *err)
{
    set_units(h, &c, units);
    return measure_one(h, &c, device, err);
}

/* Bytes that a layer of a kind keeps at least. */
static size_t kept_of_kind(const mt_plan *t, int kind)
{
    size_t bytes = mt_kept_bytes(&t->model->kinds[kind], t->arithmetic.compute, MT_KEEP_INPUT, t->place.sweep_tokens);
    return mt_round_up(bytes, MT_DEVICE_ALIGN);
}

/* The most and the least that any layer keeps. */
typedef struct kept_range {
    size_t least, most;
} kept_range;

static kept_range kept_of_layers(const mt_plan *t)
{
    kept_range r = { SIZE_MAX, 0 };
    for (int k = 0; k < t->model->n_kinds; k++) {
        const size_t bytes = kept_of_kind(t, k);
        if (bytes < r.least) r.least = bytes;
        if (bytes > r.most) r.most = bytes;
    }
    return r;
}

/* Keeps enough activations in host memory, through two device slots, for the rest to fit the device. *fits: whether that is
 * possible. */
static mt_rc try_offloaded(least_search *h, candidate c, int units, bool *fits, mt_err *err)
{
    const mt_plan *t = h->trial;
    size_t device, n = 2;
    MT_TRY(measure_with(h, c, units, &device, err));
    *fits = device <= h->machine->device_bytes;
    if (*fits || h->range->highest[OFFLOADED] == c.k[OFFLOADED]) return MT_OK;
    const size_t host = mt_plan_host_total(t, h->machine);
    const kept_range layer = kept_of_layers(t);
    const size_t kept = (size_t)((h->range->highest[OFFLOADED] + c.k[INTERVAL] - 1) / c.k[INTERVAL]);
    while (device > h->machine->device_bytes) { /* one step if all layers keep the same amount */
        n += (device - h->machine->device_bytes + layer.most - 1) / layer.most;
        *fits = n <= kept;
        if (!*fits || host + n * layer.least >= h->least->need.host) return MT_OK;
        c.k[OFFLOADED] = (int)n;
        MT_TRY(measure_with(h, c, units, &device, err));
    }
    return MT_OK;
}

/* How many units fit on the device; -1: not even the rest fits. */
static mt_rc find_room(least_search *h, const candidate *c, int *out, mt_err *err)
{
    const int most = most_units(h);
    int lo = -1, hi = most + 1; /* lo units fit; hi do not, or are too many */
    for (int n = 0; hi - lo > 1 && !is_over(h);) {
        size_t device;
        MT_TRY(measure_with(h, *c, n, &device, err));
        if (device <= h->machine->device_bytes)
            lo = n;
        else
            hi = n;
        n = hi > most ? most : lo + (hi - lo) / 2; /* none, then all, then between */
    }
    *out = lo;
    return MT_OK;
}

/* The smallest on the device, whatever it takes of the host. */
static mt_rc measure_smallest(least_search *h, candidate c, mt_err *err)
{
    size_t device;
    c.k[OFFLOADED] = h->range->highest[OFFLOADED];
    return measure_one(h, &c, &device, err);
}

/* With thousands of units, not every number is tried, because each trial counts them all. */
static mt_rc try_units(least_search *h, const candidate *c, mt_err *err)
{
    enum { LOOKS = 256 };
    int room, most = most_units(h), stride = most / LOOKS + 1;
    bool fits = true;
    MT_TRY(find_room(h, c, &room, err));
    int last = room;
    for (int n = room + 1; n < most && fits && !is_over(h); n = (n / stride + 1) * stride) {
        MT_TRY(try_offloaded(h, *c, n, &fits, err));
        if (fits) last = n;
    }
    fits = true;
    for (int n = last + 1; n < most && n < last + stride && fits && !is_over(h); n++) /* the last of them, one by one */
        MT_TRY(try_offloaded(h, *c, n, &fits, err));
    if (!is_over(h) && room < most) MT_TRY(try_offloaded(h, *c, most, &fits, err));
    return is_over(h) ? MT_OK : measure_smallest(h, *c, err);
}

static mt_rc try_segments(least_search *h, candidate c, mt_err *err)
{
    for (int i = h->range->lowest[INTERVAL]; i <= h->range->highest[INTERVAL] && !is_over(h); i += i < 8 ? 1 : i / 4)
        for (int skip = 0; skip <= h->range->highest[HOMES_SKIP] && !is_over(h); skip++) {
            c.k[INTERVAL] = i;
            c.k[HOMES_SKIP] = skip;
            MT_TRY(try_units(h, &c, err));
        }
    return MT_OK;
}

mt_rc mt__least_find(mt_least *out, mt_plan *trial, const knob_ranges *r, const mt_machine *m, bool all, mt_err *err)
{
    least_search h = { trial, r, m, out, all };
    candidate c;
    *out = (mt_least){ .need = { SIZE_MAX, SIZE_MAX } };
    memcpy(c.k, r->lowest, sizeof c.k);
    c.k[MICROS] = r->highest[MICROS];
    MT_TRY(try_segments(&h, c, err));
    for (int host = 0; host <= r->highest[ACC_HOST] && r->highest[MICROS] > 1; host++) {
        c.k[MICROS] = 1;
        c.k[ACC_HOST] = host;
        MT_TRY(try_segments(&h, c, err));
    }
    return MT_OK;
}

static mt_rc find_alone(mt_least *out, mt_plan_inputs in, bool all, mt_err *err)
{
    mt_plan trial = { .model = in.model, .job = *in.job, .arithmetic = *in.arithmetic };
    knob_ranges range;
    MT_TRY(mt__knobs_ranges(&range, &trial, in.machine, err));
    MT_TRY(mt_placement_init(&trial.place, in.model, err));
    mt_rc rc = mt__least_find(out, &trial, &range, in.machine, all, err);
    mt_placement_free(&trial.place);
    return rc;
}

/* Several lanes whose devices reach each other may need less. */
static bool has_routes(mt_plan_inputs in) { return mt__knobs_may_use_peers(in.job, in.arithmetic, in.machine); }
static mt_machine without_peers(mt_plan_inputs in)
{
    mt_machine m = *in.machine;
    m.peer = 0;
    return m;
}

bool mt_plan_fits(mt_plan_inputs in)
{
    mt_least least;
    mt_err ignored = { 0 };
    if (!find_alone(&least, in, false, &ignored) && least.fits) return true;
    const mt_machine apart = without_peers(in);
    return has_routes(in) && mt_plan_fits((mt_plan_inputs){ in.model, in.job, in.arithmetic, &apart });
}

mt_rc mt_plan_need(mt_need *out, mt_plan_inputs in, mt_err *err)
{
    mt_least least;
    mt_need other;
    const mt_machine apart = without_peers(in);
    MT_TRY(find_alone(&least, in, true, err));
    *out = least.need;
    if (!has_routes(in)) return MT_OK;
    MT_TRY(mt_plan_need(&other, (mt_plan_inputs){ in.model, in.job, in.arithmetic, &apart }, err));
    if (other.device < out->device) out->device = other.device;
    if (other.host < out->host) out->host = other.host;
    return MT_OK;
}

/* -- refusal --------------------------------------------------------------------------------------- */

/* True if a step of one document would fit. */
static bool one_fits(const mt_plan *trial, const mt_machine *m)
{
    mt_job one = trial->job;
    one.step_docs = 1;
    one.step_tokens = one.longest;
    return trial->job.step_docs > 1 && mt_plan_fits((mt_plan_inputs){ trial->model, &one, &trial->arithmetic, m });
}

/* The settings that save host memory, each with how much. */
static void put_savings(char *out, size_t n, const mt_plan *trial)
{
    const mt_arithmetic *a = &trial->arithmetic;
    int at = 0;
    *out = '\0';
    if (trial->job.clip && a->grad == MT_DTYPE_F32)
        at = snprintf(out, n, ", or set grad_dtype: bfloat16, which saves 2 bytes a parameter");
    if (trial->job.clip)
        at += snprintf(out + at, n - (size_t)at, ", or set max_grad_norm: 0, which saves %zu bytes a parameter",
                       mt_dtype_bytes(a->grad));
    const int arrays = mt_optimizer_of(a->optimizer)->n_arrays;
    if (a->moments == MT_MOMENTS_F32)
        snprintf(out + at, n - (size_t)at, ", or adam_state: bf16 or 8bit, which save %d and %d", 2 * arrays, 3 * arrays);
    if (a->moments == MT_MOMENTS_BF16) snprintf(out + at, n - (size_t)at, ", or adam_state: 8bit, which saves %d", arrays);
}

/* A plan that only runs forward has weights and a cache, and none of the settings of a training run. */
static mt_rc refuse_forward(const mt_least *l, const mt_plan *trial, const mt_machine *m, mt_err *err)
{
    if (l->need.device > m->device_bytes)
        return mt_fail(
            err, MT_ENOMEM,
            "running this model needs at least %s of device memory and may use %s; use shorter texts, or allow more with "
            "--device-memory",
            mt_bytes_text(l->need.device).s, mt_bytes_text(m->device_bytes).s);
    const size_t each = mt_dtype_bytes(trial->arithmetic.compute);
    return mt_fail(
        err, MT_ENOMEM,
        "running this model needs at least %s of host memory and may use %s (%zu bytes a parameter, %s of them); use a smaller "
        "model%s",
        mt_bytes_text(l->need.host).s, mt_bytes_text(m->host_bytes).s, each, mt_count_text((uint64_t)trial->model->n_params).s,
        each > 2 ? ", or compute in bfloat16" : "");
}

mt_rc mt__least_refuse(const mt_least *l, const mt_plan *trial, const mt_machine *m, mt_err *err)
{
    const mt_arithmetic *a = &trial->arithmetic;
    if (!trial->job.train) return refuse_forward(l, trial, m, err);
    const char *fewer = one_fits(trial, m) ? "lower batch_size, or " : "";
    if (l->need.device > m->device_bytes)
        return mt_fail(err, MT_ENOMEM,
                       "this run needs at least %s of device memory and may use %s; the largest parts grow with the micro-batch "
                       "(%lld rows): "
                       "%slower max_seq_len%s, or allow more with --device-memory",
                       mt_bytes_text(l->need.device).s, mt_bytes_text(m->device_bytes).s, (long long)a->micro_tokens, fewer,
                       m->limits.exact ? ", let strict_checkpointing go" : "");
    size_t each = mt_plan_number_bytes(trial, trial->job.clip ? MT_PIECE_PARTS : MT_PIECE_PARTS & ~MT_PART_GRADIENT);
    char savings[256];
    put_savings(savings, sizeof savings, trial);
    return mt_fail(
        err, MT_ENOMEM,
        "this run needs at least %s of host memory and may use %s (%zu bytes a parameter, %s of them); %suse a smaller model%s",
        mt_bytes_text(l->need.host).s, mt_bytes_text(m->host_bytes).s, each, mt_count_text((uint64_t)trial->model->n_params).s,
        fewer, savings);
}
