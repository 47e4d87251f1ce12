/* products.c - one output row made by several weights. */
#include "model/part.h"

void mt_products_add(mt_products *f, const mt_layout *l, mt_role w, mt_role b, int64_t n)
{
    const int i = f->n - 1;
    bool touches = i >= 0 && l->at[f->parts[i].w] + f->parts[i].n * f->k == l->at[w] && l->trains[f->parts[i].w] == l->trains[w];
    const bool biased = b != MT_ROLES && l->at[b] >= 0;
    if (touches) touches = biased == (f->parts[i].b != MT_ROLES && l->at[f->parts[i].b] >= 0);
    if (touches && biased) touches = l->at[f->parts[i].b] + f->parts[i].n == l->at[b] && l->trains[f->parts[i].b] == l->trains[b];
    if (touches) {
        f->parts[i].n += n;
    } else {
        f->parts[f->n].w = w;
        f->parts[f->n].b = b;
        f->parts[f->n].first = f->width;
        f->parts[f->n++].n = n;
    }
    f->width += n;
}

static mt_linear product_args(const mt_pass *p, const mt_products *f, int i, int64_t n, const void *x)
{
    return (mt_linear){ .t = p->r->t,
                        .M = n,
                        .N = f->parts[i].n,
                        .K = f->k,
                        .ldy = f->width,
                        .x = x,
                        .w = mt_pass_weight(p, f->parts[i].w),
                        .scratch = p->r->scratch };
}

mt_rc mt_products_forward(const mt_pass *p, const mt_products *f, int64_t n, const void *x, void *y, mt_err *err)
{
    for (int i = 0; i < f->n; i++) {
        mt_linear a = product_args(p, f, i, n, x);
        if (f->parts[i].b != MT_ROLES) a.b = mt_pass_weight(p, f->parts[i].b);
        a.y = mt_pass_rows(p, y, 1, f->parts[i].first);
        MT_TRY(p->r->ops->linear_fwd(p->r->stream, &a, err));
    }
    return MT_OK;
}

mt_rc mt_products_backward(const mt_pass *p, const mt_products *f, int64_t n, const void *x, const void *dy, void *dx,
                           bool dx_add, mt_err *err)
{
    for (int i = 0; i < f->n; i++) {
        mt_linear a = product_args(p, f, i, n, x);
        a.dy = mt_pass_rows(p, dy, 1, f->parts[i].first);
        a.dx = dx;
        a.dx_add = dx_add || i > 0;
        a.dw = mt_pass_grad(p, f->parts[i].w);
        a.dw_set = p->fresh;
        if (f->parts[i].b != MT_ROLES) a.db = mt_pass_grad(p, f->parts[i].b);
        MT_TRY(p->r->ops->linear_bwd(p->r->stream, &a, err));
    }
    return MT_OK;
}
