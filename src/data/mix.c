/* mix.c - see mix.h. */
#include "data/mix.h"

#include "base/rng.h"
#include "data/shuffle.h"

#include <math.h>
#include <string.h>

static size_t draw(const mt_mix *m, int64_t i)
{
    double x = mt_rng_uniform(m->seed, MT_SHUFFLE_MIX, (uint64_t)i);
    size_t d = 0;
    while (d + 1 < m->n_sets && x >= m->upto[d]) d++;
    return d;
}

static mt_rc sum_probs(mt_mix *m, const double *probs, mt_err *err)
{
    double sum = 0;
    m->upto = mt_calloc(m->n_sets, sizeof *m->upto);
    if (!m->upto) return mt_no_memory(err, "mixing %zu datasets", m->n_sets);
    for (size_t d = 0; d < m->n_sets; d++) {
        if (!(probs[d] > 0))
            return mt_fail(err, MT_EINVAL, "interleave_probs: every dataset needs a chance above 0, number %zu has %g", d + 1,
                           probs[d]);
        sum += probs[d];
    }
    for (size_t d = 0; d < m->n_sets; d++) m->upto[d] = (d ? m->upto[d - 1] : 0) + probs[d] / sum;
    return MT_OK;
}

/* Of a dataset that is hardly ever drawn, the last sample would never come. */
static mt_rc check_draws(const mt_mix *m, const double *probs, mt_err *err)
{
    const double MOST = 1e9; /* each is drawn once at the start: seconds */
    double first = INFINITY, last = 0;
    size_t rare = 0;
    for (size_t d = 0; d < m->n_sets; d++) {
        const double draws = (double)m->sizes[d] / probs[d];
        first = fmin(first, draws);
        if (draws > last) last = draws, rare = d;
    }
    if ((m->strategy == MT_MIX_UNDER ? first : last) <= MOST) return MT_OK;
    return mt_fail(
        err, MT_EINVAL,
        "interleave_probs: with a chance of %g, dataset %zu of %lld samples would be used up after about %.2g draws; give "
        "it a larger chance",
        probs[rare], rare + 1, (long long)m->sizes[rare], last);
}

/* What was drawn before place i, where a stride begins. */
static mt_rc keep_counts(mt_mix *m, int64_t i, mt_err *err)
{
    const size_t n = m->n_sets, block = (size_t)(i / MT_MIX_BLOCK) * n, stride = (size_t)(i / MT_MIX_STRIDE) * n;
    if (i % MT_MIX_BLOCK == 0) {
        MT_TRY(mt_grow(&m->blocks, &m->cap_blocks, block + n, sizeof *m->blocks, err));
        memcpy(m->blocks + block, m->drawn, n * sizeof *m->blocks);
    }
    MT_TRY(mt_grow(&m->strides, &m->cap_strides, stride + n, sizeof *m->strides, err));
    for (size_t d = 0; d < n; d++) m->strides[stride + d] = (uint16_t)(m->drawn[d] - m->blocks[block + d]);
    return MT_OK;
}

/* Draw until enough datasets are used up, keeping counts on the way. */
static mt_rc draw_all(mt_mix *m, const atomic_bool *stop, mt_err *err)
{
    size_t n_out = 0, enough = m->strategy == MT_MIX_UNDER ? 1 : m->n_sets;
    m->drawn = mt_calloc(m->n_sets, sizeof *m->drawn);
    if (!m->drawn) return mt_no_memory(err, "mixing %zu datasets", m->n_sets);
    for (m->n = 0; n_out < enough; m->n++) {
        if (m->n % MT_MIX_STRIDE == 0) MT_TRY(keep_counts(m, m->n, err));
        if (m->n % MT_MIX_BLOCK == 0 && stop && atomic_load(stop))
            return mt_fail(err, MT_ESTOPPED, "mixing the datasets was stopped on request");
        size_t d = draw(m, m->n);
        if (++m->drawn[d] == m->sizes[d]) n_out++;
    }
    return MT_OK;
}

static mt_rc count_places(mt_mix *m, const atomic_bool *stop, mt_err *err)
{
    if (m->strategy == MT_MIX_CONCAT) {
        for (size_t d = 0; d < m->n_sets; d++) m->n += m->sizes[d];
        return MT_OK;
    }
    int64_t least = m->sizes[0], most = m->sizes[0];
    for (size_t d = 0; d < m->n_sets; d++) {
        least = mt_min_i64(least, m->sizes[d]);
        most = mt_max_i64(most, m->sizes[d]);
    }
    if (least < 1) return mt_fail(err, MT_EINVAL, "a dataset without samples cannot be interleaved");
    if (m->upto) return draw_all(m, stop, err);
    m->n = (int64_t)m->n_sets * (m->strategy == MT_MIX_UNDER ? least : most);
    return MT_OK;
}

mt_rc mt_mix_init(mt_mix *m, mt_mix_strategy strategy, const int64_t *sizes, const double *probs, size_t n_sets, uint64_t seed,
                  const atomic_bool *stop, mt_err *err)
{
    *m = (mt_mix){ .strategy = strategy, .n_sets = n_sets, .seed = seed };
    m->sizes = mt_calloc(n_sets, sizeof *m->sizes);
    mt_rc rc = m->sizes ? MT_OK : mt_no_memory(err, "mixing %zu datasets", n_sets);
    if (!rc) memcpy(m->sizes, sizes, n_sets * sizeof *sizes);
    if (!rc && probs && strategy != MT_MIX_CONCAT) rc = sum_probs(m, probs, err);
    if (!rc && m->upto) rc = check_draws(m, probs, err);
    if (!rc) rc = count_places(m, stop, err);
    if (rc) mt_mix_deinit(m);
    return rc;
}

/* How often a dataset was drawn before place i. */
static int64_t drawn_before(const mt_mix *m, int64_t i, size_t set)
{
    const int64_t from = i / MT_MIX_STRIDE * MT_MIX_STRIDE;
    int64_t n =
        m->blocks[(size_t)(i / MT_MIX_BLOCK) * m->n_sets + set] + m->strides[(size_t)(i / MT_MIX_STRIDE) * m->n_sets + set];
    for (int64_t j = from; j < i; j++) n += draw(m, j) == set;
    return n;
}

void mt_mix_at(const mt_mix *m, int64_t i, size_t *set, int64_t *k)
{
    if (m->strategy == MT_MIX_CONCAT) {
        size_t d = 0;
        for (; i >= m->sizes[d]; d++) i -= m->sizes[d];
        *set = d;
        *k = i;
        return;
    }
    *set = m->upto ? draw(m, i) : (size_t)i % m->n_sets;
    *k = (m->upto ? drawn_before(m, i, *set) : i / (int64_t)m->n_sets) % m->sizes[*set];
}

int64_t mt_mix_drawn(const mt_mix *m, size_t set)
{
    if (m->strategy == MT_MIX_CONCAT) return m->sizes[set];
    if (m->upto) return m->drawn[set];
    return m->n / (int64_t)m->n_sets; /* whole rounds */
}

void mt_mix_deinit(mt_mix *m)
{
    mt_free(m->sizes);
    mt_free(m->upto);
    mt_free(m->drawn);
    mt_free(m->blocks);
    mt_free(m->strides);
    *m = (mt_mix){ 0 };
}
