#include "model/slice.h"

#include "model/model.h"

#include <string.h>

static int64_t expert_of(const mt_unit *u, const mt_weight *w) { return w->slice.experts ? u->first_expert + w->expert : 0; }

int64_t mt_weight_slab(const mt_unit *u, const mt_weight *w) { return expert_of(u, w) * mt_slice_slab(&w->slice); }

int64_t mt_weight_first_row(const mt_unit *u, const mt_weight *w)
{
    return expert_of(u, w) * w->slice.slab[w->slice.transposed] + w->slice.first;
}

int mt_slab_next(const mt_layout *l, int k)
{
    const mt_weight *w = l->weights;
    for (int next = k + 1; next < l->n_weights && w[next].expert == w[k].expert; next++)
        if (strcmp(w[next].name, w[k].name) == 0) return next;
    return l->n_weights;
}

bool mt_weight_is_plain(const mt_weight *w)
{
    const mt_tensor_slice *s = &w->slice;
    return !s->transposed && s->first == 0 && s->slab[0] == w->shape[0];
}

int64_t mt_weight_place(const mt_weight *w, int64_t i, int64_t *run)
{
    const mt_tensor_slice *s = &w->slice;
    int64_t columns = w->shape[1], row = i / columns, column = i % columns;
    int64_t at = s->first + row / s->run * s->stride + row % s->run;
    *run = s->transposed ? 1 : (s->run - row % s->run) * columns - column;
    return s->transposed ? column * s->slab[1] + at : at * columns + column;
}

void mt_weight_gather(const mt_weight *w, const void *slab, size_t size, int64_t first, int64_t n, void *out)
{
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = mt_weight_place(w, first + i, &run);
        if (run > n - i) run = n - i;
        memcpy((char *)out + (size_t)i * size, (const char *)slab + (size_t)at * size, (size_t)run * size);
    }
}

void mt_weight_scatter(const mt_weight *w, void *slab, size_t size, int64_t first, int64_t n, const void *in)
{
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = mt_weight_place(w, first + i, &run);
        if (run > n - i) run = n - i;
        memcpy((char *)slab + (size_t)at * size, (const char *)in + (size_t)i * size, (size_t)run * size);
    }
}
