/* op_experts.c - the cases of the ops that mixtures of experts are made of: routing, sorting, grouped products, weighted sums.
 *
 * Routes are drawn here and sorted by a plain loop, so that the cases of one op do not depend on another. */
#include "op_declare.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- routes ---------------------------------------------------------------------------------------- */

typedef enum spread {
    EVEN,    /* T random experts a row */
    CROWDED, /* the first T experts get every row, the others none */
    GAPPED,  /* experts of index 1 modulo 3 get no row (E at least 2 T) */
} spread;

typedef struct routes {
    int64_t N, T, E;
    int32_t *experts;              /* [N, T] ascending */
    int32_t *offsets;              /* [E + 1] */
    int32_t *order, *rows, *place; /* [N T] */
} routes;

static void *numbers(int64_t n)
{
    void *p = calloc((size_t)n + 1, sizeof(int32_t));
    if (!p) abort();
    return p;
}

static bool takes_rows(spread how, int64_t T, int64_t e) { return how == EVEN || (how == CROWDED ? e < T : e % 3 != 1); }

/* Marks T experts of row n, by a walk from a random one. */
static void draw_row(const routes *m, spread how, uint64_t seed, int64_t n)
{
    char *taken = calloc((size_t)m->E, 1);
    if (!taken) abort();
    for (int64_t k = 0; k < m->T; k++) {
        int64_t e = (int64_t)mt_rng_below(seed, 91, (uint64_t)(n * m->T + k), (uint64_t)m->E);
        while (taken[e] || !takes_rows(how, m->T, e)) e = (e + 1) % m->E;
        taken[e] = 1;
    }
    for (int64_t e = 0, k = 0; e < m->E; e++)
        if (taken[e]) m->experts[n * m->T + k++] = (int32_t)e;
    free(taken);
}

static routes routes_create(int64_t N, int64_t T, int64_t E, spread how, uint64_t seed)
{
    routes m = { N, T, E, numbers(N * T), numbers(E + 1), numbers(N * T), numbers(N * T), numbers(N * T) };
    for (int64_t n = 0; n < N; n++) draw_row(&m, how, seed, n);
    int32_t at = 0;
    for (int64_t e = 0; e < E; e++) {
        m.offsets[e] = at;
        for (int64_t p = 0; p < N * T; p++)
            if (m.experts[p] == e) {
                m.order[at] = (int32_t)p;
                m.rows[at] = (int32_t)(p / T);
                m.place[p] = at++;
            }
    }
    m.offsets[E] = at;
    return m;
}

static void routes_free(routes *m)
{
    free(m->experts);
    free(m->offsets);
    free(m->order);
    free(m->rows);
    free(m->place);
}

static op_buf *add_table(op_run *r, const void *field, const char *name, const int32_t *values, int64_t n)
{
    op_buf *b = add_ints(r, field, name, n);
    memcpy(b->init, values, (size_t)n * sizeof *values);
    return b;
}

static int32_t int_at(const op_buf *b, const unsigned char *data, int64_t i)
{
    int32_t v;
    (void)b;
    memcpy(&v, data + 4 * i, sizeof v);
    return v;
}

/* -- route ----------------------------------------------------------------------------------------- */

static const struct {
    mt_route a;
    bool bias, aux, ties;
} route_cases[] = {
    { { .kind = MT_ROUTE_SOFTMAX, .N = 1, .E = 1, .T = 1 }, false, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 37, .E = 8, .T = 2 }, false, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 70, .E = 60, .T = 4, .norm = true }, false, true, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 33, .E = 160, .T = 6, .n_group = 8, .topk_group = 3, .scale = 16 }, false, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 9, .E = 512, .T = 10, .norm = true }, false, true, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 19, .E = 64, .T = 6, .norm = true, .norm_eps = 1e-20f }, false, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 40, .E = 64, .T = 6, .norm = true, .norm_floor = 1e-12f }, true, true, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 21, .E = 16, .T = 3, .norm = true, .norm_floor = 0.9f }, true, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 5, .E = 7, .T = 7 }, false, true, false }, /* every expert */
    { { .kind = MT_ROUTE_SOFTMAX, .N = 3, .E = 1024, .T = 1 }, false, false, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 0, .E = 8, .T = 2 }, false, true, false },
    { { .kind = MT_ROUTE_SOFTMAX, .N = 200, .E = 33, .T = 4 }, false, true, true },
    { { .kind = MT_ROUTE_SIGMOID,
        .N = 33,
        .E = 256,
        .T = 8,
        .n_group = 8,
        .topk_group = 4,
        .norm = true,
        .norm_eps = 1e-20f,
        .scale = 2.5f },
      true,
      false,
      false },
    { { .kind = MT_ROUTE_SIGMOID, .N = 17, .E = 384, .T = 8, .norm = true, .norm_eps = 1e-20f, .scale = 2.827f },
      true,
      false,
      false },
    { { .kind = MT_ROUTE_SIGMOID, .N = 17, .E = 16, .T = 4, .n_group = 4, .topk_group = 2, .scale = 1.8f }, true, false, false },
    { { .kind = MT_ROUTE_SIGMOID, .N = 33, .E = 60, .T = 8, .norm = true }, true, true, false },
    { { .kind = MT_ROUTE_SIGMOID, .N = 9, .E = 32, .T = 4, .norm = true, .norm_eps = 1e-6f }, false, false, false },
    { { .kind = MT_ROUTE_SIGMOID, .N = 90, .E = 40, .T = 4, .norm = true }, true, false, true },
    { { .kind = MT_ROUTE_SIGMOID, .N = 50, .E = 32, .T = 4, .n_group = 8, .topk_group = 2 }, false, false, true },
    { { .kind = MT_ROUTE_CHOSEN, .N = 40, .E = 32, .T = 4 }, false, true, false },
    { { .kind = MT_ROUTE_CHOSEN, .N = 12, .E = 40, .T = 8 }, false, false, false },
    { { .kind = MT_ROUTE_CHOSEN, .N = 3, .E = 4, .T = 4 }, false, false, false },
    { { .kind = MT_ROUTE_LOGIT_SIGMOID, .N = 30, .E = 16, .T = 1 }, false, false, false },
    { { .kind = MT_ROUTE_LOGIT_SIGMOID, .N = 30, .E = 128, .T = 2 }, false, false, false },
    { { .kind = MT_ROUTE_MIXER, .N = 45, .E = 16, .T = 2, .jitter = 0.1f }, false, false, false },
    { { .kind = MT_ROUTE_MIXER, .N = 5, .E = 2, .T = 2, .jitter = 0.1f }, false, true, false },
    { { .kind = MT_ROUTE_MIXER, .N = 5, .E = 37, .T = 2, .jitter = 0.1f }, false, false, false },
};

/* The experts that row n is to choose: rank[e] < T, in groups that hold at least two of them each if there are groups. */
static void draw_ranks(const op_run *r, const mt_route *a, int64_t n, int64_t *rank)
{
    int64_t groups = a->n_group > 1 ? a->n_group : 1, kept = a->n_group > 1 ? a->topk_group : 1, per = a->E / groups;
    int64_t first = (int64_t)mt_rng_below(r->how.seed, 90, (uint64_t)n, (uint64_t)groups);
    for (int64_t e = 0; e < a->E; e++) rank[e] = a->T;
    for (int64_t k = 0; k < a->T; k++) {
        int64_t group = (first + k % kept) % groups, e;
        e = (int64_t)mt_rng_below(r->how.seed, 89, (uint64_t)(n * a->T + k), (uint64_t)per);
        while (rank[group * per + e] < a->T) e = (e + 1) % per;
        rank[group * per + e] = k;
    }
}

/* Logits that leave no doubt, so that a small step changes no choice. */
static double clear_logit(const op_run *r, const mt_route *a, int64_t n, int64_t e, int64_t rank)
{
    double u = (double)mt_rng_below(r->how.seed, 88, (uint64_t)(n * a->E + e), 1000) / 1000;
    if (a->kind == MT_ROUTE_MIXER) return rank == 0 ? 2.0 : rank == 1 ? 1.9 : e % 3 == 0 ? 1.75 + 0.05 * u : 1.2 * u - 0.5;
    return rank < a->T ? 0.5 + u : -2 + 2 * u;
}

static void draw_logits(op_run *r, const mt_route *a, op_buf *logits, bool ties)
{
    int64_t rank[MT_ROUTE_EXPERTS];
    for (int64_t n = 0; n < a->N; n++) {
        draw_ranks(r, a, n, rank);
        for (int64_t e = 0; e < a->E; e++)
            op_set(logits, n, e,
                   ties ? (double)mt_rng_below(r->how.seed, 87, (uint64_t)(n * a->E + e), 3) / 2
                        : clear_logit(r, a, n, e, rank[e]));
    }
}

static void declare_aux(op_run *r, mt_route *a, bool ties)
{
    op_buf *counts = op_add(r, &a->aux_counts, "aux_counts", OP_INOUT, MT_DTYPE_I32, 1, a->E, 0);
    op_buf *probs = op_add(r, &a->aux_probs, "aux_probs", OP_SUM, MT_DTYPE_F32, 1, a->E, 0);
    for (int64_t e = 0; e < a->E; e++) op_set(counts, 0, e, (double)(e % 5));
    if (ties || a->N == 0) return;
    /* aux_scale sum of counts probs is a loss whose gradient backward adds: the counts it ends with are its factors. */
    a->aux_scale = 0.25f;
    op_buf *factors = op_add(r, NULL, "factors of the probabilities", OP_INPUT, MT_DTYPE_F32, 1, a->E, 0);
    int64_t rank[MT_ROUTE_EXPERTS];
    for (int64_t e = 0; e < a->E; e++) op_set(factors, 0, e, (double)a->aux_scale * (double)(e % 5));
    for (int64_t n = 0; n < a->N; n++) {
        draw_ranks(r, a, n, rank);
        for (int64_t e = 0; e < a->E; e++)
            if (rank[e] < a->T) op_set(factors, 0, e, op_get(factors, factors->init, 0, e) + (double)a->aux_scale);
    }
    links(r, probs, factors);
}

static void declare_route(op_run *r, int c)
{
    ARGS(mt_route, route_cases[c].a);
    a->t = r->how.t;
    op_buf *logits = op_add(r, &a->logits, "logits", OP_INPUT, MT_DTYPE_F32, a->N, a->E, 0);
    draw_logits(r, a, logits, route_cases[c].ties);
    if (route_cases[c].bias) {
        op_buf *bias = op_add(r, &a->bias, "bias", OP_INPUT, MT_DTYPE_F32, 1, a->E, 0);
        for (int64_t e = 0; e < a->E; e++)
            op_set(bias, 0, e,
                   ((double)mt_rng_below(r->how.seed, 86, (uint64_t)e, 1000) / 1000 - 0.5) *
                       (a->kind == MT_ROUTE_SIGMOID ? 0.04 : 0.002));
        for (int64_t e = 0; route_cases[c].ties && e < a->E; e++) op_set(bias, 0, e, 0);
    }
    op_add(r, &a->experts, "experts", OP_OUTPUT, MT_DTYPE_I32, a->N, a->T, 0);
    op_buf *w = op_add(r, &a->weights, "weights", OP_OUTPUT, MT_DTYPE_F32, a->N, a->T, 0),
           *dw = op_add(r, &a->dweights, "dweights", OP_INPUT, MT_DTYPE_F32, a->N, a->T, 0);
    op_buf *dl = op_add(r, &a->dlogits, "dlogits", OP_OUTPUT, a->t, a->N, a->E, 0);
    links(r, w, dw);
    if (!route_cases[c].ties) grows(r, logits, dl);      /* differences would change the choice */
    dl->floor = a->E == 1 || a->T == a->E ? 1e-2 : 1e-6; /* weights that always add up to one barely move */
    if (route_cases[c].aux) declare_aux(r, a, route_cases[c].ties);
    add_scratch(r, &a->scratch, mt_route_scratch(a));
}

/* Each row's experts are the ones it was made for; equal logits go to the lower index. */
static const char *check_route(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const mt_route *a = &route_cases[r->case_index].a;
    const op_buf *experts = op_named(r, "experts"), *logits = op_named(r, "logits");
    int64_t rank[MT_ROUTE_EXPERTS];
    for (int64_t n = 0; n < a->N; n++) {
        bool chosen[MT_ROUTE_EXPERTS] = { 0 };
        draw_ranks(r, a, n, rank);
        for (int64_t k = 0; k < a->T; k++) {
            int32_t e = int_at(experts, experts->result, n * a->T + k);
            if (e < 0 || e >= a->E) return "an expert that does not exist";
            if (k && e <= int_at(experts, experts->result, n * a->T + k - 1)) return "experts do not ascend";
            if (!route_cases[r->case_index].ties && rank[e] >= a->T) return "a row went to the wrong expert";
            chosen[e] = true;
        }
        for (int64_t e = 0; route_cases[r->case_index].ties && a->n_group < 2 && e < a->E; e++)
            for (int64_t j = 0; chosen[e] && j < a->E; j++) {
                double le = op_get(logits, logits->init, n, e), lj = op_get(logits, logits->init, n, j);
                if (!chosen[j] && (lj > le || (lj == le && j < e)))
                    return "an equal or larger logit of lower index was passed over";
            }
    }
    return NULL;
}

CHECKED_OP(route, true, false, check_route)

/* -- router_loss ----------------------------------------------------------------------------------- */

static const mt_router_loss router_loss_cases[] = { { .E = 1, .scale = 1 },
                                                    { .E = 60, .scale = 0.25 },
                                                    { .E = 512, .scale = 1e-3 } };

static void declare_router_loss(op_run *r, int c)
{
    ARGS(mt_router_loss, router_loss_cases[c]);
    op_buf *counts = add_ints(r, &a->counts, "counts", a->E);
    for (int64_t e = 0; e < a->E; e++) op_set(counts, 0, e, (double)mt_rng_below(r->how.seed, 85, (uint64_t)e, 1000));
    op_add(r, &a->probs, "probs", OP_INPUT, MT_DTYPE_F32, 1, a->E, 0);
    op_set(op_add(r, &a->sum, "sum", OP_INOUT, MT_DTYPE_F64, 1, 1, 0), 0, 0, 2.5);
}

CHECKED_OP(router_loss, false, true, NULL)

/* -- expert_sort ----------------------------------------------------------------------------------- */

static const struct {
    mt_expert_sort a;
    spread how;
} expert_sort_cases[] = {
    { { .N = 1, .T = 1, .E = 1 }, EVEN },       { { .N = 300, .T = 1, .E = 1 }, EVEN },
    { { .N = 211, .T = 4, .E = 60 }, EVEN },    { { .N = 700, .T = 6, .E = 160 }, GAPPED },
    { { .N = 33, .T = 8, .E = 384 }, EVEN },    { { .N = 1500, .T = 10, .E = 512 }, EVEN },
    { { .N = 900, .T = 2, .E = 8 }, CROWDED },  { { .N = 64, .T = 8, .E = 8 }, EVEN },
    { { .N = 5, .T = 1, .E = 1024 }, CROWDED }, { { .N = 0, .T = 2, .E = 8 }, EVEN },
};

static void declare_expert_sort(op_run *r, int c)
{
    ARGS(mt_expert_sort, expert_sort_cases[c].a);
    routes m = routes_create(a->N, a->T, a->E, expert_sort_cases[c].how, r->how.seed);
    add_table(r, &a->experts, "experts", m.experts, a->N * a->T);
    op_add(r, &a->offsets, "offsets", OP_OUTPUT, MT_DTYPE_I32, 1, a->E + 1, 0);
    op_add(r, &a->order, "order", OP_OUTPUT, MT_DTYPE_I32, 1, a->N * a->T, 0);
    op_add(r, &a->rows, "rows", OP_OUTPUT, MT_DTYPE_I32, 1, a->N * a->T, 0);
    op_add(r, &a->place, "place", OP_OUTPUT, MT_DTYPE_I32, 1, a->N * a->T, 0);
    op_buf *loads = op_add(r, &a->loads, "loads", OP_INOUT, MT_DTYPE_I32, 1, a->E, 0);
    for (int64_t e = 0; e < a->E; e++) ((int32_t *)loads->init)[e] = (int32_t)e; /* which it adds to */
    add_scratch(r, &a->scratch, mt_expert_sort_scratch(a));
    routes_free(&m);
}

static bool holds(op_run *r, const char *name, const int32_t *want, int64_t n)
{
    return memcmp(op_named(r, name)->result, want, (size_t)n * sizeof *want) == 0;
}

static bool loads_hold(op_run *r, const int32_t *offsets, int64_t E)
{
    const int32_t *loads = (const void *)op_named(r, "loads")->result;
    for (int64_t e = 0; e < E; e++)
        if (loads[e] != e + offsets[e + 1] - offsets[e]) return false;
    return true;
}

static const char *check_expert_sort(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const mt_expert_sort *a = &expert_sort_cases[r->case_index].a;
    routes m = routes_create(a->N, a->T, a->E, expert_sort_cases[r->case_index].how, r->how.seed);
    const char *wrong = !holds(r, "offsets", m.offsets, a->E + 1)  ? "offsets are wrong"
                        : !holds(r, "order", m.order, a->N * a->T) ? "order is not by expert, then by row"
                        : !holds(r, "rows", m.rows, a->N * a->T)   ? "rows are not those of the pairs"
                        : !holds(r, "place", m.place, a->N * a->T) ? "place is not the inverse of order"
                        : !loads_hold(r, m.offsets, a->E)          ? "loads are not what they were, and the rows of each expert"
                                                                   : NULL;
    routes_free(&m);
    return wrong;
}

CHECKED_OP(expert_sort, false, true, check_expert_sort)

/* -- grouped_linear -------------------------------------------------------------------------------- */

/* Marks a case whose dy is of rows that count times weights; declaring it puts a buffer in their place. */
static const float with_weights[1];

static const struct {
    mt_grouped_linear a;
    int64_t tokens, T, E;
    spread how;
    bool bias, frozen, no_dx;
} grouped_linear_cases[] = {
    { { .N = 1, .K = 1, .e0 = 0, .c = 1 }, 1, 1, 1, EVEN, true, false, false },
    { { .N = 5, .K = 3, .e0 = 0, .c = 3 }, 17, 2, 3, EVEN, true, false, false },
    { { .N = 24, .K = 16, .e0 = 2, .c = 3 }, 40, 2, 8, EVEN, false, false, false },
    { { .N = 24, .K = 40, .e0 = 0, .c = 60, .gather_x = true }, 90, 4, 60, EVEN, true, false, false },
    { { .N = 40, .K = 24, .e0 = 64, .c = 64, .gather_dy = true }, 200, 6, 160, GAPPED, false, false, false },
    { { .N = 16, .K = 8, .e0 = 0, .c = 384, .dw_set = true }, 50, 8, 384, EVEN, true, false, false },
    { { .N = 8, .K = 16, .e0 = 448, .c = 64, .gather_x = true, .dw_set = true }, 90, 10, 512, EVEN, false, false, false },
    { { .N = 130, .K = 72, .e0 = 0, .c = 2, .gather_x = true }, 150, 1, 2, CROWDED, true, false, false }, /* one takes all */
    { { .N = 136, .K = 264, .e0 = 0, .c = 4 }, 300, 2, 4, EVEN, false, false, false },
    { { .N = 264, .K = 136, .e0 = 0, .c = 4, .gather_dy = true, .dw_set = true }, 300, 2, 4, CROWDED, true, false, false },
    { { .N = 520, .K = 200, .e0 = 1, .c = 2, .gather_x = true }, 700, 2, 3, EVEN, true, false, false },
    { { .N = 64, .K = 512, .e0 = 0, .c = 1, .gather_dy = true }, 515, 1, 2, EVEN, false, false, false },
    { { .N = 33, .K = 65, .e0 = 0, .c = 5, .gather_x = true }, 200, 2, 5, GAPPED, true, false, false },
    { { .N = 48, .K = 32, .e0 = 3, .c = 1 }, 60, 2, 8, CROWDED, true, false, false }, /* no row at all */
    { { .N = 48, .K = 32, .e0 = 3, .c = 2, .dw_set = true }, 60, 2, 8, CROWDED, true, false, false },
    { { .N = 64, .K = 64, .e0 = 0, .c = 8 }, 100, 2, 8, EVEN, false, true, false },
    { { .N = 64, .K = 64, .e0 = 0, .c = 8, .gather_x = true }, 100, 2, 8, EVEN, true, false, true },
    { { .N = 16, .K = 16, .e0 = 0, .c = 4 }, 0, 2, 4, EVEN, true, false, false },
    { { .N = 256, .K = 128, .e0 = 0, .c = 3, .gather_x = true }, 256, 1, 3, EVEN, false, false, false }, /* whole tiles */
    { { .N = 5, .K = 3, .e0 = 0, .c = 3, .gather_dy = true, .weights = with_weights }, 17, 2, 3, EVEN, true, false, true },
    { { .N = 40, .K = 24, .e0 = 64, .c = 64, .gather_dy = true, .weights = with_weights },
      200,
      6,
      160,
      GAPPED,
      true,
      false,
      true },
    { { .N = 264, .K = 136, .e0 = 1, .c = 2, .gather_dy = true, .dw_set = true, .weights = with_weights },
      300,
      2,
      4,
      EVEN,
      true,
      false,
      true },
    { { .N = 33, .K = 8, .e0 = 0, .c = 2, .gather_dy = true, .weights = with_weights },
      90,
      1,
      2,
      CROWDED,
      true,
      true,
      true }, /* a frozen bias */
    /* large_experts, on a GPU alone: more tiles than it has processors, so that blocks go from one to the next */
    { { .N = 1096, .K = 520, .e0 = 0, .c = 8, .gather_x = true }, 4000, 2, 8, EVEN, true, false, false },
    { { .N = 520, .K = 1096, .e0 = 0, .c = 60, .gather_dy = true, .dw_set = true }, 2000, 4, 60, GAPPED, false, false, false },
    { { .N = 1536, .K = 256, .e0 = 1, .c = 2, .gather_x = true }, 9000, 1, 4, EVEN, false, false, false },
};
enum { N_LARGE_EXPERTS = 3, N_GROUPED = MT_COUNT(grouped_linear_cases) - N_LARGE_EXPERTS };

/* y has a packed row where a gathered dy has one per token: the loss's gradient to y is written out for the differences. */
static op_buf *packed_dy(op_run *r, const mt_grouped_linear *a, const op_buf *dy, const routes *m, int64_t n)
{
    op_buf *b = op_add(r, NULL, "dy by packed row", OP_INPUT, a->t, n, a->N, 0);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < a->N; j++) op_set(b, i, j, op_get(dy, dy->init, m->rows[m->offsets[a->e0] + i], j));
    return b;
}

static void declare_grouped_linear(op_run *r, int c)
{
    ARGS(mt_grouped_linear, grouped_linear_cases[c].a);
    int64_t tokens = grouped_linear_cases[c].tokens, T = grouped_linear_cases[c].T, E = grouped_linear_cases[c].E;
    routes m = routes_create(tokens, T, E, grouped_linear_cases[c].how, r->how.seed);
    int64_t n = m.offsets[a->e0 + a->c] - m.offsets[a->e0];
    op_kind sum = a->dw_set ? OP_OUTPUT : OP_SUM;
    a->t = r->how.t;
    a->M = tokens * mt_min_i64(T, a->c);
    add_table(r, &a->offsets, "offsets", m.offsets, E + 1);
    if (a->gather_x || a->gather_dy) add_table(r, &a->rows, "rows", m.rows, tokens * T);
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->gather_x ? tokens : n, a->K, 0);
    op_buf *w = op_add(r, &a->w, "w", OP_INPUT, a->t, a->c * a->N, a->K, 0);
    op_scale(r, w, 1.0 / sqrt((double)a->K), 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, n, a->N, 0);
    op_buf *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->gather_dy ? tokens : n, a->N, 0);
    links(r, y, a->gather_dy ? packed_dy(r, a, dy, &m, n) : dy);
    if (grouped_linear_cases[c].bias) {
        op_buf *b = op_add(r, &a->b, "b", OP_INPUT, a->t, a->c, a->N, 0);
        op_buf *db = grouped_linear_cases[c].frozen ? NULL : op_add(r, &a->db, "db", sum, MT_DTYPE_F32, a->c, a->N, 0);
        if (db && !a->weights) grows(r, b, db); /* weighted: y alone does not have it */
    }
    if (a->weights) {
        add_table(r, &a->order, "order", m.order, tokens * T);
        op_add(r, &a->weights, "weights", OP_INPUT, MT_DTYPE_F32, 1, tokens * T, 0);
        op_add(r, &a->dweights, "dweights", OP_SUM, MT_DTYPE_F32, 1, tokens * T, 0);
    }
    if (!grouped_linear_cases[c].frozen) grows(r, w, op_add(r, &a->dw, "dw", sum, MT_DTYPE_F32, a->c * a->N, a->K, 0));
    if (!grouped_linear_cases[c].no_dx) {
        op_buf *dx = op_add(r, &a->dx, "dx", OP_OUTPUT, a->t, n, a->K, 0);
        if (!a->gather_x) grows(r, x, dx); /* else x has another number of rows */
    }
    add_scratch(r, &a->scratch, mt_grouped_linear_scratch(a));
    routes_free(&m);
}

/* Element (i, j) of dy times what it counts in sum over rows of weights (y + b). */
static const char *check_weighted(op_run *r, const mt_grouped_linear *a)
{
    const op_buf *db = op_named(r, "db"), *dweights = op_named(r, "dweights"), *weights = op_named(r, "weights");
    const op_buf *offsets = op_named(r, "offsets"), *order = op_named(r, "order"), *rows = op_named(r, "rows");
    const op_buf *dy = op_named(r, "dy"), *b = op_named(r, "b");
    for (int64_t e = 0; e < a->c; e++) {
        int64_t from = int_at(offsets, offsets->init, a->e0 + e), to = int_at(offsets, offsets->init, a->e0 + e + 1);
        for (int64_t j = 0; db && j < a->N; j++) {
            double want = a->dw_set ? 0 : op_get(db, db->init, e, j);
            for (int64_t i = from; i < to; i++)
                want += op_get(weights, weights->init, 0, int_at(order, order->init, i)) *
                        op_get(dy, dy->init, int_at(rows, rows->init, i), j);
            if (fabs(op_get(db, db->result, e, j) - want) > 1e-4 * (1 + fabs(want))) return "db is not the weighted sum";
        }
        for (int64_t i = from; i < to; i++) {
            int64_t pair = int_at(order, order->init, i), row = int_at(rows, rows->init, i);
            double want = op_get(dweights, dweights->init, 0, pair);
            for (int64_t j = 0; j < a->N; j++) want += op_get(dy, dy->init, row, j) * op_get(b, b->init, e, j);
            if (fabs(op_get(dweights, dweights->result, 0, pair) - want) > 1e-3 * (1 + fabs(want)))
                return "dweights is not the product with the bias";
        }
    }
    return NULL;
}

/* What an expert without rows gets is exactly nothing. */
static const char *check_grouped_linear(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const char *wrong = op_named(r, "dweights") ? check_weighted(r, &grouped_linear_cases[r->case_index].a) : NULL;
    if (wrong) return wrong;
    const mt_grouped_linear *a = &grouped_linear_cases[r->case_index].a;
    const op_buf *dw = op_named(r, "dw"), *offsets = op_named(r, "offsets");
    for (int64_t e = 0; dw && e < a->c; e++) {
        if (int_at(offsets, offsets->init, a->e0 + e) != int_at(offsets, offsets->init, a->e0 + e + 1)) continue;
        for (int64_t i = e * a->N; i < (e + 1) * a->N; i++)
            for (int64_t j = 0; j < a->K; j++)
                if (op_get(dw, dw->result, i, j) != (a->dw_set ? 0 : op_get(dw, dw->init, i, j)))
                    return "an expert without rows has a gradient";
    }
    return NULL;
}

const op_spec spec_grouped_linear = { "grouped_linear",       OP_ID_grouped_linear, N_GROUPED, true, false,
                                      declare_grouped_linear, check_grouped_linear };

static void declare_large_experts(op_run *r, int c) { declare_grouped_linear(r, N_GROUPED + c); }

const op_spec op_large_experts = {
    "large_experts", OP_ID_grouped_linear, N_LARGE_EXPERTS, true, false, declare_large_experts, NULL
};

/* -- combine --------------------------------------------------------------------------------------- */

static const struct {
    mt_combine a;
    int64_t E;
    spread how;
    bool weights, sum, out, add;
} combine_cases[] = {
    { { .N = 1, .D = 1, .T = 1, .e0 = 0, .c = 1, .start = true }, 1, EVEN, true, false, true, false },
    { { .N = 40, .D = 24, .T = 4, .e0 = 0, .c = 60, .start = true }, 60, EVEN, true, false, true, true },
    { { .N = 33, .D = 65, .T = 2, .e0 = 2, .c = 4 }, 8, EVEN, true, true, false, false },
    { { .N = 50, .D = 136, .T = 6, .e0 = 100, .c = 60 }, 160, GAPPED, false, true, true, false },
    { { .N = 21, .D = 1032, .T = 10, .e0 = 0, .c = 128, .start = true }, 512, EVEN, true, true, false, false },
    { { .N = 70, .D = 40, .T = 2, .e0 = 4, .c = 4 }, 8, CROWDED, true, true, true, true }, /* no rows here */
    { { .N = 16, .D = 8, .T = 8, .e0 = 0, .c = 384, .start = true }, 384, EVEN, false, false, true, false },
    { { .N = 0, .D = 8, .T = 2, .e0 = 0, .c = 4, .start = true }, 4, EVEN, true, true, true, false },
};

static void declare_combine(op_run *r, int c)
{
    ARGS(mt_combine, combine_cases[c].a);
    a->t = r->how.t;
    routes m = routes_create(a->N, a->T, combine_cases[c].E, combine_cases[c].how, r->how.seed);
    add_table(r, &a->experts, "experts", m.experts, a->N * a->T);
    add_table(r, &a->place, "place", m.place, a->N * a->T);
    add_table(r, &a->offsets, "offsets", m.offsets, m.E + 1);
    op_add(r, &a->y, "y", OP_INPUT, a->t, m.offsets[a->e0 + a->c] - m.offsets[a->e0], a->D, 0);
    if (combine_cases[c].weights) op_add(r, &a->weights, "weights", OP_INPUT, MT_DTYPE_F32, a->N, a->T, 0);
    if (combine_cases[c].sum) op_add(r, &a->sum, "sum", a->start ? OP_OUTPUT : OP_INOUT, MT_DTYPE_F32, a->N, a->D, 0);
    op_buf *out = combine_cases[c].out ? op_add(r, &a->out, "out", OP_OUTPUT, a->t, a->N, a->D, 0) : NULL;
    if (combine_cases[c].add) may_share(r, out, op_add(r, &a->add, "add", OP_INPUT, a->t, a->N, a->D, 0));
    routes_free(&m);
}

/* The sum, in double, by looking for each row's experts one by one. */
static const char *check_combine(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const mt_combine *a = &combine_cases[r->case_index].a;
    const op_buf *y = op_named(r, "y"), *w = op_named(r, "weights"), *sum = op_named(r, "sum"), *out = op_named(r, "out"),
                 *add = op_named(r, "add");
    routes m = routes_create(a->N, a->T, combine_cases[r->case_index].E, combine_cases[r->case_index].how, r->how.seed);
    const char *wrong = NULL;
    for (int64_t n = 0; n < a->N; n++)
        for (int64_t d = 0; d < a->D && !wrong; d++) {
            double want = a->start ? 0 : op_get(sum, sum->init, n, d), size = 1;
            for (int64_t i = m.offsets[a->e0]; i < m.offsets[a->e0 + a->c]; i++) {
                if (m.rows[i] != n) continue;
                double term = (w ? op_get(w, w->init, n, m.order[i] % a->T) : 1) * op_get(y, y->init, i - m.offsets[a->e0], d);
                want += term;
                size += fabs(term);
            }
            if (sum && fabs(op_get(sum, sum->result, n, d) - want) > 1e-5 * size) wrong = "sum is wrong";
            want += add && !r->how.in_place ? op_get(add, add->init, n, d) : 0;
            bool compared = out && !(add && r->how.in_place);
            if (compared &&
                fabs(op_get(out, out->result, n, d) - want) > (out->t == MT_DTYPE_BF16 ? 1e-2 : 1e-5) * (size + fabs(want)))
                wrong = "out is wrong";
        }
    routes_free(&m);
    return wrong;
}

CHECKED_OP(combine, false, false, check_combine)
