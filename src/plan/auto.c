/* auto.c - chooses a fresh run's arithmetic: how many rows pass through the kernels at a time.
 *
 * Larger micro-batches make larger products and leave less memory for everything else; auto.c takes the fastest that fits.  The
 * choice decides bits, so it should not depend on how much memory happens to be free today.  It is made for a machine with
 * typical rates and memory rounded down to five binary digits; only the placement uses the real machine.  The exception: if that
 * would cost a tenth of the speed, the real machine decides. */
#include "base/mem.h"
#include "plan/search.h"

#include <math.h>

enum { MLP_ROWS = 32768, HEAD_ROWS = 4096, HEAD_SHARE = 32 }; /* most rows at a time; logits take up to a 32nd of the device */
enum { MOE_TOKENS = 65536, MOE_SHARE = 8 };                   /* that pass an expert together */

typedef struct rows {
    int64_t micro, mlp, head;
} rows;

/* From large to small; a micro-batch holds at least the longest document. */
static const rows sizes[] = { { 32768, MLP_ROWS, 1024 },
                              { 16384, MLP_ROWS, 1024 },
                              { 8192, MLP_ROWS, 1024 },
                              { 4096, MLP_ROWS, 512 },
                              { 2048, MLP_ROWS, 256 } };
/* Fewer kernels for the same rows save their start-up time: about 1% of a small model's step on a GPU, not worth recomputing a
 * layer for. */
static const rows large = { 65536, 2 * MLP_ROWS, 1024 };
static const rows small[] = { { 1, 2048, 256 }, { 1, 256, 64 }, { 1, 32, 8 } };

/* Each chunk of the head's rows adds to its whole gradient in fp32, so few chunks are better; but logits are large. */
static int64_t head_rows(int64_t least, mt_plan_inputs in)
{
    size_t row = (size_t)in.model->config->V * 6;
    while (least >= 1024 && least < HEAD_ROWS && (size_t)least * 2 * row <= in.machine->device_bytes / HEAD_SHARE) least *= 2;
    return least;
}

/* The inputs with another arithmetic. */
static mt_plan_inputs with(mt_plan_inputs in, const mt_arithmetic *a)
{
    in.arithmetic = a;
    return in;
}

/* Rows of a share, which micro-batches and passes do not cross: about its part of the step plus one document. */
static int64_t share_tokens(mt_plan_inputs in)
{
    const int64_t parts = mt_arithmetic_parts(in.arithmetic), step = in.job->step_tokens;
    return parts == 1 ? step : mt_min_i64(step, (step + parts - 1) / parts + in.job->longest);
}

/* Every pass through an expert reads and writes all of its gradient sums, so few passes are better; but their rows take memory.
 * A pass may use up to an eighth of the device. */
int64_t mt_plan_moe_tokens(mt_plan_inputs in)
{
    const mt_arithmetic *a = in.arithmetic;
    int64_t n = mt_min_i64(MOE_TOKENS, share_tokens(in));
    if (!in.model->unit_experts) return 0;
    while (n > a->micro_tokens && mt_model_pass_bytes(in.model, a->compute) * (size_t)n > in.machine->device_bytes / MOE_SHARE)
        n /= 2;
    return n > a->micro_tokens ? n : 0;
}

static mt_arithmetic arithmetic_of(const rows *r, mt_plan_inputs in)
{
    mt_arithmetic a = *in.arithmetic;
    a.micro_tokens = mt_max_i64(in.job->longest, mt_min_i64(share_tokens(in), r->micro));
    a.mlp_rows = r->mlp;
    a.head_rows = head_rows(r->head, in);
    a.moe_tokens = r->micro == 1 ? 0 : mt_plan_moe_tokens(with(in, &a)); /* small sizes: a micro-batch alone */
    return a;
}

static size_t five_digits(size_t n)
{
    int shift = 0;
    while (n >> shift > 31) shift++;
    return n >> shift << shift;
}

enum { FITTED = 3, LARGE = MT_COUNT(sizes) + FITTED, TRIES };

/* Sizes in between: a fifth, a sixth or a tenth of the step in whole documents, so that sweeps of one or two micro-batches come
 * out even. */
static rows fitted(const mt_job *job, int i)
{
    static const int in[FITTED] = { 5, 6, 10 };
    int64_t parts = in[i], docs = (job->step_tokens + parts * job->longest - 1) / (parts * job->longest),
            micro = docs * job->longest;
    return (rows){ micro > 8192 && micro < MLP_ROWS ? micro : sizes[0].micro, MLP_ROWS, 1024 };
}

static rows try_at(const mt_job *job, int i)
{
    const int n = MT_COUNT(sizes);
    if (i < n) return sizes[i];
    return i < LARGE ? fitted(job, i - n) : large;
}

/* True if a layer recomputes something.  Those below the lowest one with a backward do not, however little they keep. */
static bool redoes(const mt_plan *p)
{
    for (int l = mt_plan_lowest_layer(p); l < p->model->config->L; l++)
        if (p->place.layers[l].keep < MT_KEEP_ALL) return true;
    return false;
}

mt_arithmetic mt_plan_smallest(mt_plan_inputs in)
{
    mt_arithmetic a = arithmetic_of(&small[MT_COUNT(small) - 1], in);
    a.attention.workspace = 0; /* grows in steps with the device's memory, so that what fits a device also fits a larger one */
    return a;
}

/* The first small one that fits. */
static mt_rc choose_small(mt_arithmetic *best, mt_plan_inputs in, mt_err *err)
{
    mt_plan *plan;
    for (size_t i = 0; i < MT_COUNT(small); i++) {
        *best = i + 1 < MT_COUNT(small) ? arithmetic_of(&small[i], in) : mt_plan_smallest(in);
        if (mt_plan_fits(with(in, best))) return MT_OK;
    }
    mt_rc rc = mt_plan_search(&plan, with(in, best), err); /* its error names what is short */
    mt_plan_free(plan);
    return rc;
}

/* The fastest of the comfortable sizes, or the first small one that fits; seconds: approximate step time, INFINITY for a small
 * size. hint: 0, or the best rows for a somewhat larger step: then only those and the first that fit are tried. */
static mt_rc choose_arithmetic(mt_arithmetic *best, double *seconds, mt_plan_inputs in, int64_t hint, mt_err *err)
{
    int64_t last = 0, first = arithmetic_of(&sizes[0], in).micro_tokens;
    mt_plan *plan;
    *seconds = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        rows r = try_at(in.job, i);
        mt_arithmetic a = arithmetic_of(&r, in);
        if (a.micro_tokens == last || (i > 0 && a.micro_tokens == first) || (i == LARGE && in.machine->shared)) continue;
        if (hint && *seconds < INFINITY && a.micro_tokens != hint) continue;
        last = a.micro_tokens;
        mt_rc rc = mt_plan_search_faster(&plan, with(in, &a), *seconds, err);
        if (rc && rc != MT_ENOMEM) return rc;
        if (rc || !plan) continue;
        if (i < LARGE || !redoes(plan)) {
            *best = a;
            *seconds = plan->predicted_seconds;
        }
        mt_plan_free(plan);
    }
    return *seconds < INFINITY ? MT_OK : choose_small(best, in, err);
}

/* Chooses with typical rates and memory rounded down. */
static mt_rc choose_steadily(mt_arithmetic *best, mt_plan_inputs in, mt_err *err)
{
    const mt_machine *machine = in.machine;
    mt_machine rounded = machine->shared ? mt_machine_cpu(100e9, 2) : mt_machine_typical();
    double seconds;
    rounded.home_host = machine->home_host;
    rounded.limits = machine->limits;
    rounded.device_bytes = five_digits(machine->device_bytes);
    rounded.host_bytes = five_digits(machine->host_bytes);
    mt_plan_inputs usual = in;
    usual.machine = &rounded;
    mt_rc rc = choose_arithmetic(best, &seconds, usual, 0, err);
    bool fits = !rc && mt_plan_fits(with(in, best)); /* this machine's runtime may need more than the typical one's */
    return rc == MT_ENOMEM || (!rc && !fits) ? choose_arithmetic(best, &seconds, in, 0, err) : rc;
}

/* True if every placement uses more than nine tenths of a memory. */
static mt_rc is_tight(bool *out, mt_plan_inputs in, mt_err *err)
{
    const mt_arithmetic a = mt_plan_smallest(in);
    mt_need need;
    MT_TRY(mt_plan_need(&need, with(in, &a), err));
    *out = need.device > in.machine->device_bytes / 10 * 9 || need.host > in.machine->host_bytes / 10 * 9;
    return MT_OK;
}

/* True for another kind of GPU than the typical one. */
static bool is_unusual(const mt_machine *m) { return !m->shared && fabs(m->flops / mt_machine_typical().flops - 1) > 0.1; }

/* If typical rates or rounded memory would cost a tenth of the speed, the real machine decides. */
static mt_rc improve(mt_arithmetic *a, mt_plan_inputs in, mt_err *err)
{
    mt_machine whole = *in.machine; /* compared by plans without pieces, as choose_arithmetic makes them */
    mt_arithmetic other;
    mt_plan *plan;
    double seconds;
    whole.limits.whole_units = true;
    in.machine = &whole;
    MT_TRY(mt_plan_search(&plan, with(in, a), err));
    mt_rc rc = choose_arithmetic(&other, &seconds, in, 0, err);
    if (!rc && other.micro_tokens != a->micro_tokens && seconds <= 0.9 * plan->predicted_seconds) *a = other;
    mt_plan_free(plan);
    return rc;
}

static mt_rc choose_for(mt_arithmetic *a, mt_plan_inputs in, mt_err *err)
{
    bool tight;
    MT_TRY(choose_steadily(a, in, err));
    MT_TRY(is_tight(&tight, in, err));
    return tight || is_unusual(in.machine) ? improve(a, in, err) : MT_OK;
}

/* The number of devices and machines decides no bit: the arithmetic is that of one device, unless it does not fit. */
static mt_rc choose_for_lanes(mt_arithmetic *a, mt_plan_inputs in, mt_err *err)
{
    mt_job job = *in.job;
    mt_machine machine = *in.machine;
    mt_plan_inputs one = in;
    job.lanes = job.machines = job.machine = 0;
    if (machine.crowd > 1) machine.device_bytes *= (size_t)machine.crowd;
    one.job = &job;
    one.machine = &machine;
    mt_rc rc = choose_for(a, one, err);
    if (rc && rc != MT_ENOMEM) return rc;
    return rc || !mt_plan_fits(with(in, a)) ? choose_for(a, in, err) : MT_OK;
}

mt_rc mt_plan_auto(mt_plan **out, mt_plan_inputs in, mt_err *err)
{
    mt_arithmetic a;
    *out = NULL;
    MT_TRY(in.job->lanes > 1 || in.job->machines > 1 ? choose_for_lanes(&a, in, err) : choose_for(&a, in, err));
    return mt_plan_search(out, with(in, &a), err);
}

mt_rc mt_plan_quick(double *seconds, mt_plan_inputs in, int64_t *hint, mt_err *err)
{
    mt_arithmetic a;
    mt_plan *plan;
    MT_TRY(choose_arithmetic(&a, seconds, in, *hint, err));
    *hint = a.micro_tokens;
    if (*seconds < INFINITY) return MT_OK;
    MT_TRY(mt_plan_search_faster(&plan, with(in, &a), INFINITY, err));
    *seconds = plan->predicted_seconds;
    mt_plan_free(plan);
    return MT_OK;
}

bool mt_plan_auto_fits(mt_plan_inputs in)
{
    mt_arithmetic a = mt_plan_smallest(in);
    return mt_plan_fits(with(in, &a));
}
