#include "ckpt/mxfp4.h"

#include "ops/forms.h"

#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = BLOCK / 2 };

typedef struct packed {
    mt_st_decoder base;
    const mt_st_tensor *parts[2];
    mt_packed m; /* all matrices, one after the other; a row of each is what one output has */
    const mt_map *map_of_blocks, *map_of_scales;
    size_t R, C; /* of one matrix, as the blocks have it: rows of the output, columns of the input */
} packed;

static size_t base_of(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail);
    return n > k && strcmp(name + n - k, tail) == 0 ? n - k : 0;
}

size_t mt__mxfp4_base_of_blocks(const char *name) { return base_of(name, "_blocks"); }
size_t mt__mxfp4_base_of_scales(const char *name) { return base_of(name, "_scales"); }

static void read_packed(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const packed *p = (const packed *)d;
    for (size_t i = 0; i < n; i++) {
        size_t matrix = (first + i) / (p->C * p->R), c = (first + i) / p->R % p->C, r = (first + i) % p->R;
        mt_packed_read(&p->m, (int64_t)((matrix * p->R + r) * p->C + c), 1, out + i);
    }
}

/* Whole matrices. */
static int spans_of_packed(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const packed *p = (const packed *)d;
    const size_t blocks = p->R * (p->C / BLOCK), from = first / (p->R * p->C), some = (first + n - 1) / (p->R * p->C) + 1 - from;
    out[0] = (mt_st_span){ p->map_of_blocks, p->m.codes + from * blocks * BLOCK_BYTES, some * blocks * BLOCK_BYTES };
    out[1] = (mt_st_span){ p->map_of_scales, (const uint8_t *)p->m.scales + from * blocks, some * blocks };
    return 2;
}

/* A column of the tensor is a row of the blocks: side by side there. */
static void read_every(const mt_st_decoder *d, size_t first, size_t step, size_t n, float *out)
{
    const packed *p = (const packed *)d;
    size_t matrix = first / (p->C * p->R), c = first / p->R % p->C, r = first % p->R;
    if (step != p->R || c + n > p->C) {
        for (size_t i = 0; i < n; i++) read_packed(d, first + i * step, 1, out + i);
        return;
    }
    mt_packed_read(&p->m, (int64_t)((matrix * p->R + r) * p->C + c), (int64_t)n, out);
}

static bool packing_of(const mt_st_decoder *d, const mt_st_rows *rows, mt_packing *out)
{
    *out = ((const packed *)d)->m.as;
    out->rows = rows->n;
    return true;
}

static void pack(const mt_st_decoder *d, const mt_st_rows *rows, const mt_packing *as, int64_t from, int64_t n, uint8_t *to)
{
    const packed *p = (const packed *)d;
    const mt_packed_places at = mt_packing_places(as);
    const size_t blocks = (size_t)at.blocks;
    for (int64_t r = from; r < from + n; r++) {
        const size_t row = (size_t)mt_st_row(rows, r), own = (size_t)r;
        memcpy(to + own * at.row_bytes, p->m.codes + row * at.row_bytes, at.row_bytes);
        memcpy(to + at.scales + own * blocks, (const uint8_t *)p->m.scales + row * blocks, blocks);
    }
}

static bool fit(const mt_st_tensor *b, const mt_st_tensor *s)
{
    if (b->n_dims != 4 || s->n_dims != 3 || b->shape[3] != BLOCK_BYTES) return false;
    for (int i = 0; i < 3; i++)
        if (b->shape[i] != s->shape[i] || b->shape[i] < 1) return false;
    return true;
}

mt_rc mt__mxfp4_join(mt_st_tensor *out, mt_arena *arena, const char *name, const mt_st_tensor *b, const mt_st_tensor *s,
                     mt_err *err)
{
    const mt_st_tensor *odd = NULL;
    if (s->dtype != MT_DTYPE_U8 || !s->data) odd = s;
    if (b->dtype != MT_DTYPE_U8 || !b->data) odd = b;
    if (odd)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%.200s\" is %s; blocks and scales of MXFP4 in U8 are read", odd->file,
                       odd->name, mt_st_stored_as(odd));
    if (!fit(b, s))
        return mt_fail(err, MT_EFORMAT,
                       "%s: the blocks \"%.200s\" are %s and the scales \"%.200s\" %s; expected [experts, rows, n, %d] and "
                       "[experts, rows, n].\n  The files look like different revisions; download them again",
                       b->file, b->name, mt_st_shape_text(b->n_dims, b->shape).s, s->name,
                       mt_st_shape_text(s->n_dims, s->shape).s, BLOCK_BYTES);
    packed *p = mt_arena_alloc(arena, sizeof *p);
    if (!p) return mt_no_memory(err, "MXFP4 scales");
    *p = (packed){ .base = { .read = read_packed,
                             .spans = spans_of_packed,
                             .scattered = true,
                             .stored_as = "MXFP4",
                             .read_every = read_every,
                             .packing = packing_of,
                             .pack = pack,
                             .parts = p->parts,
                             .n_parts = 2,
                             .packs_columns = true },
                   .parts = { b, s },
                   .map_of_blocks = b->map,
                   .map_of_scales = s->map,
                   .R = (size_t)b->shape[1],
                   .C = (size_t)b->shape[2] * BLOCK };
    const mt_packing as = { MT_FORM_MXFP4, b->shape[0] * b->shape[1], (int64_t)p->C, BLOCK, 1, false };
    p->m = (mt_packed){ .as = as, .codes = b->data, .scales = s->data, .row_bytes = p->C / 2, .blocks = (int64_t)p->C / BLOCK };
    *out = *b;
    out->name = name;
    out->dtype = MT_DTYPE_BF16;
    out->n_dims = 3;
    out->shape[1] = (int64_t)p->C;
    out->shape[2] = (int64_t)p->R;
    out->n = b->n * 2;
    out->bytes = b->bytes + s->bytes;
    out->data = NULL;
    out->decoder = &p->base;
    return MT_OK;
}
