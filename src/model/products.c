/* products.c - every product of rows with weights (products.h), by two ops: linear, and grouped_linear for experts. */
#include "model/products.h"

#include "model/part.h"

static bool of_experts(const mt_product *f) { return f->rows == MT_EXTENT_PASS; }

static int64_t width_of(const mt_product *f)
{
    int64_t width = 0;
    for (int i = 0; i < MT_PRODUCT_WEIGHTS; i++) width += f->of[i].n;
    return width;
}

/* -- what follows from the list -------------------------------------------------------------------- */

/* Each expert has all weights of the product, so its first follows the last of the expert before. */
bool mt_product_joins(const mt_product *f, mt_role a, mt_role b)
{
    int last = 0;
    for (int i = 1; i < MT_PRODUCT_WEIGHTS && f->of[i].n; i++) {
        if ((a == f->of[i - 1].w && b == f->of[i].w) || (a == f->of[i - 1].b && b == f->of[i].b)) return true;
        last = i;
    }
    return of_experts(f) && ((a == f->of[last].w && b == f->of[0].w) || (a == f->of[last].b && b == f->of[0].b));
}

static int64_t rows_at_once(const mt_product *f, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    if (of_experts(f)) return shape->pass * mt_min_i64(s->T, s->unit_experts);
    return f->rows == MT_EXTENT_CHUNK ? shape->chunk : shape->rows;
}

size_t mt_product_scratch(const mt_product *f, const mt_layer_spec *s, const mt_scratch_shape *shape)
{
    float *some = (float *)1; /* present; never read */
    bool biased = false;
    for (int i = 0; i < MT_PRODUCT_WEIGHTS; i++) biased |= f->of[i].n && f->of[i].b != MT_ROLES;
    const int64_t rows = rows_at_once(f, s, shape), N = width_of(f);
    if (of_experts(f))
        return mt_grouped_linear_scratch(
            &(mt_grouped_linear){ .t = shape->t, .M = rows, .N = N, .K = f->k, .c = s->unit_experts, .dw = some });
    return mt_linear_scratch(&(mt_linear){ .t = shape->t, .M = rows, .N = N, .K = f->k, .dw = some, .db = biased ? some : NULL });
}

/* -- the numbers of a role ------------------------------------------------------------------------- */

/* Where all else is fp32, too, there is nothing to do. */
static bool is_exact(const mt_pass *p, const mt_product *f)
{
    return f->exact && p->r->t == MT_DTYPE_BF16 && p->l->exact_at[f->of[0].w] >= 0;
}

bool mt_product_is_exact(const mt_pass *p, int product) { return is_exact(p, &p->products[product]); }

/* `skip` numbers after the first of a role's; NULL: the unit does not have it. */
static const void *numbers_of(const mt_pass *p, mt_role role, bool exact, int64_t skip)
{
    if (role == MT_ROLES || p->l->at[role] < 0) return NULL;
    return exact ? (const void *)(mt_pass_exact(p, role) + skip) : mt_pass_rows(p, mt_pass_weight(p, role), 1, skip);
}

static float *grad_of(const mt_pass *p, mt_role role, int64_t skip)
{
    float *g = role == MT_ROLES ? NULL : mt_pass_grad(p, role);
    return g ? g + skip : NULL;
}

/* -- dense ----------------------------------------------------------------------------------------- */

static bool has_bias(const mt_layout *l, mt_role b) { return b != MT_ROLES && l->at[b] >= 0; }

/* True if the weights i and i + 1 of a product can be computed as one: their numbers touch and train alike, as do their biases'. */
static bool touch(const mt_layout *l, const mt_product *f, int i)
{
    const mt_role w = f->of[i].w, b = f->of[i].b, next = f->of[i + 1].w, next_b = f->of[i + 1].b;
    if (!f->of[i + 1].n || l->at[w] + f->of[i].n * f->k != l->at[next] || l->trains[w] != l->trains[next]) return false;
    if (!has_bias(l, b) || !has_bias(l, next_b)) return has_bias(l, b) == has_bias(l, next_b);
    return l->at[b] + f->of[i].n == l->at[next_b] && l->trains[b] == l->trains[next_b];
}

/* Weights of a product that one op computes together, as far as a call takes their columns. */
typedef struct stretch {
    mt_role w, b;        /* the first weight and its bias */
    int64_t skip, n;     /* the first column, counted from that weight's first; columns */
    int64_t column;      /* the first column, in the call's y */
    int next;            /* where the next stretch begins, in the list */
    int64_t next_column; /* and in a row of the product */
} stretch;

/* Finds the next stretch; the first after a zeroed one.  False: there are no more. */
static bool next_stretch(stretch *s, const mt_pass *p, const mt_product *f, const mt_product_io *io)
{
    const int64_t from = io->first_column, to = io->n_columns ? from + io->n_columns : INT64_MAX;
    while (s->next < MT_PRODUCT_WEIGHTS) {
        const int first = s->next++;
        const int64_t begin = s->next_column, skip = mt_max_i64(from - begin, 0);
        s->next_column += f->of[first].n;
        while (s->next < MT_PRODUCT_WEIGHTS && touch(p->l, f, s->next - 1)) s->next_column += f->of[s->next++].n;
        s->w = f->of[first].w;
        s->b = f->of[first].b;
        s->skip = skip;
        s->n = mt_min_i64(s->next_column, to) - begin - skip;
        s->column = begin + skip - from;
        if (s->n > 0) return true;
    }
    return false;
}

static mt_linear dense_args(const mt_pass *p, const mt_product *f, const mt_product_io *io, const stretch *s)
{
    const bool exact = is_exact(p, f);
    return (mt_linear){ .t = exact ? MT_DTYPE_F32 : p->r->t,
                        .M = io->n,
                        .N = s->n,
                        .K = f->k,
                        .ldx = io->ldx,
                        .ldy = io->ldy ? io->ldy : width_of(f),
                        .alpha = f->alpha,
                        .x = io->x,
                        .w = numbers_of(p, s->w, exact, s->skip * f->k),
                        .scratch = p->r->scratch };
}

/* Rows of y from a column on. */
static void *from_column(const void *rows, mt_dtype t, int64_t column)
{
    return rows ? (char *)(uintptr_t)rows + (size_t)column * mt_dtype_bytes(t) : NULL;
}

static mt_rc dense_forward(const mt_pass *p, const mt_product *f, const mt_product_io *io, mt_err *err)
{
    for (stretch s = { .next = 0 }; next_stretch(&s, p, f, io);) {
        mt_linear a = dense_args(p, f, io, &s);
        a.b = numbers_of(p, s.b, is_exact(p, f), s.skip);
        a.y = from_column(io->y, f->f32 ? MT_DTYPE_F32 : a.t, s.column);
        a.y_f32 = f->f32;
        a.add = from_column(io->add, a.t, s.column);
        a.ldadd = io->add ? width_of(f) : 0;
        a.softcap = io->softcap;
        MT_TRY(p->r->ops->linear_fwd(p->r->stream, &a, err));
    }
    return MT_OK;
}

static mt_rc dense_backward(const mt_pass *p, const mt_product *f, const mt_product_io *io, mt_err *err)
{
    bool dx_add = io->dx_add;
    for (stretch s = { .next = 0 }; next_stretch(&s, p, f, io);) {
        mt_linear a = dense_args(p, f, io, &s);
        a.dy = from_column(io->dy, a.t, s.column);
        a.dx = io->dx;
        a.dx_add = dx_add;
        dx_add = true;
        if (io->x) {
            a.dw = grad_of(p, s.w, s.skip * f->k);
            a.dw_set = p->fresh;
            a.db = grad_of(p, s.b, s.skip);
        }
        if (a.dx || a.dw || a.db) MT_TRY(p->r->ops->linear_bwd(p->r->stream, &a, err));
    }
    return MT_OK;
}

/* -- of experts: each has all weights of the product side by side ---------------------------------- */

static mt_grouped_linear grouped_args(const mt_pass *p, const mt_product *f, const mt_product_io *io)
{
    return (mt_grouped_linear){ .t = p->r->t,
                                .M = io->n,
                                .N = width_of(f),
                                .K = f->k,
                                .e0 = p->first_expert,
                                .c = p->n_experts,
                                .offsets = io->sorted->offsets,
                                .rows = io->sorted->rows,
                                .gather_x = io->gather_x,
                                .gather_dy = io->gather_dy,
                                .x = io->x,
                                .w = numbers_of(p, f->of[0].w, false, 0),
                                .b = numbers_of(p, f->of[0].b, false, 0),
                                .scratch = p->r->scratch };
}

static mt_rc grouped_forward(const mt_pass *p, const mt_product *f, const mt_product_io *io, mt_err *err)
{
    mt_grouped_linear a = grouped_args(p, f, io);
    a.y = io->y;
    return p->r->ops->grouped_linear_fwd(p->r->stream, &a, err);
}

static mt_rc grouped_backward(const mt_pass *p, const mt_product *f, const mt_product_io *io, mt_err *err)
{
    mt_grouped_linear a = grouped_args(p, f, io);
    a.dy = io->dy;
    a.dx = io->dx;
    if (io->x) {
        a.dw = grad_of(p, f->of[0].w, 0);
        a.db = grad_of(p, f->of[0].b, 0);
        a.dw_set = p->fresh;
    }
    if (io->x && a.b && io->weights) {
        a.order = io->sorted->order;
        a.weights = io->weights;
        a.dweights = io->dweights;
    }
    return a.dx || a.dw || a.db || a.dweights ? p->r->ops->grouped_linear_bwd(p->r->stream, &a, err) : MT_OK;
}

/* -- either ---------------------------------------------------------------------------------------- */

mt_rc mt_product_forward(const mt_pass *p, int product, const mt_product_io *io, mt_err *err)
{
    const mt_product *f = &p->products[product];
    return of_experts(f) ? grouped_forward(p, f, io, err) : dense_forward(p, f, io, err);
}

mt_rc mt_product_backward(const mt_pass *p, int product, const mt_product_io *io, mt_err *err)
{
    const mt_product *f = &p->products[product];
    return of_experts(f) ? grouped_backward(p, f, io, err) : dense_backward(p, f, io, err);
}
