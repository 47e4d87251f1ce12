/* schedule.c - one function per schedule, one table of names.  Each mirrors the function of transformers' optimization.py named
 * above it. */
#include "optim/schedule.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double at_least_1(double steps) { return fmax(1, steps); }

/* The products below keep transformers' order, so that the angles, and with them the factors near 0, have its bits. */
static double half_cosine(double angle) { return 0.5 * (1 + cos(angle)); }

/* How far the steps after the warm-up have come: 0..1 within the run. */
static double progress(const mt_schedule *s, double step) { return (step - s->warmup) / at_least_1(s->n_steps - s->warmup); }

static double lifted(double factor, double floor_rate) { return fmax(0, factor * (1 - floor_rate) + floor_rate); }

/* get_constant_schedule, get_constant_schedule_with_warmup */
static double constant(const mt_schedule *s, double step)
{
    (void)s, (void)step;
    return 1;
}

/* Schedules marked LINEAR_WARMUP in the table see only the steps after it. */

/* get_linear_schedule_with_warmup */
static double linear(const mt_schedule *s, double step)
{
    return fmax(0, (s->n_steps - step) / at_least_1(s->n_steps - s->warmup));
}

/* get_cosine_schedule_with_warmup */
static double cosine(const mt_schedule *s, double step)
{
    return fmax(0, half_cosine(pi * s->num_cycles * 2 * progress(s, step)));
}

/* get_cosine_with_hard_restarts_schedule_with_warmup */
static double cosine_with_restarts(const mt_schedule *s, double step)
{
    double p = progress(s, step);
    return p >= 1 ? 0 : fmax(0, half_cosine(pi * fmod(s->num_cycles * p, 1)));
}

/* get_polynomial_decay_schedule_with_warmup */
static double polynomial(const mt_schedule *s, double step)
{
    if (step > s->n_steps) return s->lr_end / s->lr;
    double remaining = 1 - progress(s, step);
    return ((s->lr - s->lr_end) * pow(remaining, s->power) + s->lr_end) / s->lr;
}

/* get_inverse_sqrt_schedule */
static double inverse_sqrt(const mt_schedule *s, double step)
{
    return 1 / sqrt((step + (s->timescale - s->warmup)) / s->timescale);
}

/* get_cosine_with_min_lr_schedule_with_warmup */
static double cosine_with_min_lr(const mt_schedule *s, double step)
{
    return lifted(half_cosine(pi * s->num_cycles * 2 * progress(s, step)), s->min_lr_rate);
}

/* get_cosine_with_min_lr_schedule_with_warmup_lr_rate; one step ahead of the others: its last step is the minimum. */
static double cosine_warmup_with_min_lr(const mt_schedule *s, double step)
{
    if (step < s->warmup) {
        if (isnan(s->warmup_lr_rate)) return (step + 1) / at_least_1(s->warmup);
        return s->warmup_lr_rate + (1 - s->warmup_lr_rate) * step / at_least_1(s->warmup - 1);
    }
    return lifted(half_cosine(pi * s->num_cycles * 2 * progress(s, step + 1)), s->min_lr_rate);
}

/* get_wsd_schedule */
static double warmup_stable_decay(const mt_schedule *s, double step)
{
    if (step < s->warmup) return lifted(s->rise(step / at_least_1(s->warmup), s->num_cycles), s->min_lr_rate);
    step -= s->warmup;
    if (step < s->stable) return 1;
    step -= s->stable;
    if (step < s->decay) return lifted(s->fall(step / at_least_1(s->decay), s->num_cycles), s->min_lr_rate);
    return s->min_lr_rate;
}

static double rise_linear(double p, double cycles) { return (void)cycles, p; }
static double rise_cosine(double p, double cycles) { return (void)cycles, 0.5 * (1 - cos(pi * p)); }
static double rise_sqrt(double p, double cycles) { return (void)cycles, 1 - sqrt(1 - p); }
static double fall_linear(double p, double cycles) { return (void)cycles, 1 - p; }
static double fall_cosine(double p, double cycles) { return half_cosine(pi * cycles * 2 * p); }
static double fall_sqrt(double p, double cycles) { return (void)cycles, 1 - sqrt(p); }

static const struct {
    const char *name;
    mt_schedule_curve rise, fall;
} curves[] = {
    { "linear", rise_linear, fall_linear },
    { "cosine", rise_cosine, fall_cosine },
    { "1-sqrt", rise_sqrt, fall_sqrt },
};

enum { LINEAR_WARMUP = 1, MIN_LR = 2, STAGES = 4 }; /* what mt_schedule_init resolves for a schedule */

/* name in transformers, function, what it needs, default of num_cycles */
#define SCHEDULES(X)                                                                                                             \
    X(constant, constant, 0, 0)                                                                                                  \
    X(constant_with_warmup, constant, LINEAR_WARMUP, 0)                                                                          \
    X(linear, linear, LINEAR_WARMUP, 0)                                                                                          \
    X(cosine, cosine, LINEAR_WARMUP, 0.5)                                                                                        \
    X(cosine_with_restarts, cosine_with_restarts, LINEAR_WARMUP, 1)                                                              \
    X(polynomial, polynomial, LINEAR_WARMUP, 0)                                                                                  \
    X(inverse_sqrt, inverse_sqrt, LINEAR_WARMUP, 0)                                                                              \
    X(cosine_with_min_lr, cosine_with_min_lr, LINEAR_WARMUP | MIN_LR, 0.5)                                                       \
    X(cosine_warmup_with_min_lr, cosine_warmup_with_min_lr, MIN_LR, 0.5)                                                         \
    X(warmup_stable_decay, warmup_stable_decay, STAGES, 0.5)

static const struct kind {
    const char *name;
    mt_schedule_fn factor;
    int needs;
    double num_cycles;
} kinds[] = {
#define KIND(name, fn, needs, num_cycles) { #name, fn, needs, num_cycles },
    SCHEDULES(KIND)
#undef KIND
};

const char *mt_schedule_names(void)
{
#define NAME(name, fn, needs, num_cycles) ", " #name
    static const char names[] = SCHEDULES(NAME);
#undef NAME
    return names + 2; /* without the first comma */
}

mt_schedule_config mt_schedule_defaults(void)
{
    return (mt_schedule_config){ .name = "constant",
                                 .num_cycles = NAN,
                                 .power = NAN,
                                 .lr_end = NAN,
                                 .timescale = NAN,
                                 .min_lr = NAN,
                                 .min_lr_rate = NAN,
                                 .warmup_lr_rate = NAN,
                                 .num_decay_steps = NAN,
                                 .num_stable_steps = NAN,
                                 .min_lr_ratio = NAN };
}

static double schedule_given(double value, double fallback) { return isnan(value) ? fallback : value; }

static mt_rc find_kind(const struct kind **out, const char *name, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(kinds); i++) {
        *out = &kinds[i];
        if (!strcmp(kinds[i].name, name)) return MT_OK;
    }
    if (!strcmp(name, "reduce_lr_on_plateau") || !strcmp(name, "greedy"))
        return mt_fail(err, MT_EUNSUPPORTED,
                       "learning-rate schedule \"%s\" follows a metric as it is measured and is not supported; choose from: %s",
                       name, mt_schedule_names());
    return mt_fail(err, MT_EINVAL, "unknown learning-rate schedule \"%s\"; the known ones are: %s", name, mt_schedule_names());
}

static mt_rc find_curve(size_t *out, const char *what, const char *name, const char *fallback, mt_err *err)
{
    if (!name) name = fallback;
    for (*out = 0; *out < MT_COUNT(curves); ++*out)
        if (!strcmp(curves[*out].name, name)) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "unknown %s \"%s\" of the warmup_stable_decay schedule; the known ones are: linear, cosine, 1-sqrt", what,
                   name);
}

/* transformers' TrainingArguments.get_warmup_steps. */
static mt_rc resolve_warmup(mt_schedule *s, const mt_schedule_config *c, mt_err *err)
{
    if (!(c->warmup_steps >= 0) || !isfinite(c->warmup_steps))
        return mt_fail(err, MT_ERANGE, "%g warm-up steps: give a number of steps, or a share of the run between 0 and 1",
                       c->warmup_steps);
    if (!(c->warmup_ratio >= 0 && c->warmup_ratio <= 1))
        return mt_fail(err, MT_ERANGE, "a warm-up ratio of %g: it is a share of the run, between 0 and 1", c->warmup_ratio);
    if (c->warmup_steps >= 1)
        s->warmup = trunc(c->warmup_steps);
    else
        s->warmup = ceil(s->n_steps * (c->warmup_steps > 0 ? c->warmup_steps : c->warmup_ratio));
    return MT_OK;
}

static mt_rc resolve_min_lr(mt_schedule *s, const mt_schedule_config *c, mt_err *err)
{
    if (isnan(c->min_lr) == isnan(c->min_lr_rate))
        return mt_fail(err, MT_EINVAL, "schedule %s needs %s of min_lr and min_lr_rate", c->name,
                       isnan(c->min_lr) ? "one" : "only one");
    s->min_lr_rate = isnan(c->min_lr) ? c->min_lr_rate : c->min_lr / c->lr;
    if (!(s->min_lr_rate >= 0 && s->min_lr_rate <= 1))
        return mt_fail(err, MT_ERANGE,
                       "schedule %s: the smallest learning rate must be between 0 and the learning rate, not %g of it", c->name,
                       s->min_lr_rate);
    return MT_OK;
}

static mt_rc resolve_stages(mt_schedule *s, const mt_schedule_config *c, mt_err *err)
{
    if (isnan(c->num_decay_steps))
        return mt_fail(err, MT_EINVAL,
                       "schedule warmup_stable_decay needs num_decay_steps: how many of the %.0f steps at the end the learning "
                       "rate falls over",
                       s->n_steps);
    s->decay = trunc(c->num_decay_steps);
    s->stable = trunc(schedule_given(c->num_stable_steps, s->n_steps - s->warmup - s->decay));
    if (s->decay < 0 || s->stable < 0)
        return mt_fail(err, MT_ERANGE,
                       "schedule warmup_stable_decay: %.0f warm-up and %.0f decay steps do not fit into %.0f steps", s->warmup,
                       s->decay, s->n_steps);
    s->min_lr_rate = schedule_given(c->min_lr_ratio, 0);
    if (!(s->min_lr_rate >= 0 && s->min_lr_rate <= 1))
        return mt_fail(err, MT_ERANGE, "schedule warmup_stable_decay: a min_lr_ratio of %g; it must be between 0 and 1",
                       s->min_lr_rate);
    size_t rise, fall;
    MT_TRY(find_curve(&rise, "warmup_type", c->warmup_type, "linear", err));
    MT_TRY(find_curve(&fall, "decay_type", c->decay_type, "cosine", err));
    s->rise = curves[rise].rise;
    s->fall = curves[fall].fall;
    return MT_OK;
}

static mt_rc check_base(const mt_schedule_config *c, mt_err *err)
{
    if (!(c->lr >= 0) || !isfinite(c->lr))
        return mt_fail(err, MT_ERANGE, "a learning rate of %g: it is a positive number, often near 1e-5", c->lr);
    if (c->n_steps < 1)
        return mt_fail(err, MT_ERANGE, "a learning-rate schedule over %lld steps: there must be at least one",
                       (long long)c->n_steps);
    return MT_OK;
}

static mt_rc check_shape(const mt_schedule *s, const char *name, mt_err *err)
{
    if (!isfinite(s->num_cycles) || s->num_cycles < 0)
        return mt_fail(err, MT_ERANGE, "schedule %s: num_cycles is %g and must be a number from 0 up", name, s->num_cycles);
    if (!isfinite(s->power) || s->power < 0)
        return mt_fail(err, MT_ERANGE, "schedule %s: power is %g and must be a number from 0 up", name, s->power);
    if (!(s->timescale > 0))
        return mt_fail(err, MT_ERANGE, "schedule %s: timescale is %g and must be positive", name, s->timescale);
    if (s->factor == polynomial && !(s->lr > s->lr_end))
        return mt_fail(err, MT_ERANGE, "schedule polynomial: lr_end (%g) must be smaller than the learning rate (%g)", s->lr_end,
                       s->lr);
    return MT_OK;
}

mt_rc mt_schedule_init(mt_schedule *out, const mt_schedule_config *c, mt_err *err)
{
    const struct kind *kind;
    MT_TRY(find_kind(&kind, c->name, err));
    MT_TRY(check_base(c, err));
    mt_schedule s = { .factor = kind->factor, .lr = c->lr, .n_steps = (double)c->n_steps };
    MT_TRY(resolve_warmup(&s, c, err));
    s.linear_warmup = kind->needs & LINEAR_WARMUP ? s.warmup : 0;
    s.num_cycles = schedule_given(c->num_cycles, kind->num_cycles);
    s.power = schedule_given(c->power, 1);
    s.lr_end = schedule_given(c->lr_end, 1e-7);
    s.timescale = schedule_given(c->timescale, s.warmup > 0 ? s.warmup : 10000);
    s.warmup_lr_rate = c->warmup_lr_rate;
    MT_TRY(check_shape(&s, kind->name, err));
    if (kind->needs & MIN_LR) MT_TRY(resolve_min_lr(&s, c, err));
    if (kind->needs & STAGES) MT_TRY(resolve_stages(&s, c, err));
    *out = s;
    return MT_OK;
}

double mt_schedule_factor(const mt_schedule *s, int64_t step)
{
    double at = (double)step;
    return at < s->linear_warmup ? at / s->linear_warmup : s->factor(s, at);
}

double mt_schedule_lr(const mt_schedule *s, int64_t step) { return s->lr * mt_schedule_factor(s, step); }
