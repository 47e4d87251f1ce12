#include "model/slice.h"

#include "model/model.h"

#include <string.h>

bool mt_weight_is_plain(const mt_weight *w)
{
    const mt_tensor_slice *s = &w->slice;
    return !s->transposed && s->first == 0 && s->shape[0] == w->shape[0];
}

int64_t mt_weight_place(const mt_weight *w, int64_t i, int64_t *run)
{
    const mt_tensor_slice *s = &w->slice;
    int64_t columns = w->shape[1], row = i / columns, column = i % columns;
    int64_t at = s->first + row / s->run * s->stride + row % s->run;
    *run = s->transposed ? 1 : (s->run - row % s->run) * columns - column;
    return s->transposed ? column * s->shape[1] + at : at * columns + column;
}

void mt_weight_gather(const mt_weight *w, const void *tensor, size_t size, int64_t first, int64_t n, void *out)
{
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = mt_weight_place(w, first + i, &run);
        if (run > n - i) run = n - i;
        memcpy((char *)out + (size_t)i * size, (const char *)tensor + (size_t)at * size, (size_t)run * size);
    }
}

void mt_weight_scatter(const mt_weight *w, void *tensor, size_t size, int64_t first, int64_t n, const void *in)
{
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = mt_weight_place(w, first + i, &run);
        if (run > n - i) run = n - i;
        memcpy((char *)tensor + (size_t)at * size, (const char *)in + (size_t)i * size, (size_t)run * size);
    }
}
