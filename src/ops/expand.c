/* expand.c - packed weights to numbers: the table of forms, how their planes follow each other, and plain loops that define what
 * each of them means. */
#include "base/mem.h"
#include "ops/forms.h"
#include "ops/ops_cpu.h"

/* -- the table ------------------------------------------------------------------------------------- */

typedef struct form_row {
    const char *name;
    int64_t unit;       /* columns come in whole ones of these */
    size_t unit_bytes;  /* of their codes */
    size_t scale_bytes; /* of a block; 0: its scale is among the codes */
} form_row;

static const form_row forms[MT_FORMS] = {
    [MT_FORM_NUMBERS] = { "numbers", 1, 0, 0 },
    [MT_FORM_F8_E4M3] = { "F8_E4M3", 1, 1, 4 },
    [MT_FORM_F8_E5M2] = { "F8_E5M2", 1, 1, 4 },
    [MT_FORM_MXFP4] = { "MXFP4", 32, 16, 1 },
    [MT_FORM_NF4] = { "NF4", 8, 4, 4 },
    [MT_FORM_NF4_NESTED] = { "NF4", 8, 4, 1 },
    [MT_FORM_INT4] = { "INT4", 8, 4, 2 },
    [MT_FORM_Q8_0] = { "Q8_0", 32, MT_Q8_0_BYTES, 0 },
    [MT_FORM_Q4_K] = { "Q4_K", 256, MT_Q4_K_BYTES, 0 },
};

const char *mt_form_name(mt_form form) { return forms[form].name; }

static bool is_nf4(mt_form form) { return form == MT_FORM_NF4 || form == MT_FORM_NF4_NESTED; }

bool mt_packing_is_possible(const mt_packing *p)
{
    const bool tiles = p->form == MT_FORM_F8_E4M3 || p->form == MT_FORM_F8_E5M2;
    if (p->rows < 1 || p->columns < 1 || p->block < 1 || p->block_rows < 1) return false;
    if (p->columns % forms[p->form].unit || (p->block_rows > 1 && !tiles)) return false;
    if (p->form == MT_FORM_MXFP4 || p->form == MT_FORM_Q8_0 || p->form == MT_FORM_Q4_K) return p->block == forms[p->form].unit;
    if (is_nf4(p->form)) return p->columns % p->block == 0 && p->block % 8 == 0;
    return p->form != MT_FORM_INT4 || p->block % 8 == 0 || p->block == p->columns;
}

mt_packed_places mt_packing_places(const mt_packing *p)
{
    const form_row *f = &forms[p->form];
    mt_packed_places at = { .row_bytes = (size_t)(p->columns / f->unit) * f->unit_bytes };
    if (p->form == MT_FORM_NUMBERS) return (mt_packed_places){ 0 };
    at.blocks = (p->columns + p->block - 1) / p->block;
    const size_t n_scales = (size_t)((p->rows + p->block_rows - 1) / p->block_rows * at.blocks);
    at.scales = mt_round_up((size_t)p->rows * at.row_bytes, MT_FORM_ALIGN);
    at.more = at.extra = at.bytes = at.scales + mt_round_up(n_scales * f->scale_bytes, MT_FORM_ALIGN);
    if (p->form == MT_FORM_NF4_NESTED) {
        at.extra = at.more + mt_round_up((n_scales / MT_FORM_NESTED_BLOCK + 2) * sizeof(float), MT_FORM_ALIGN);
        at.bytes = at.extra + mt_round_up(sizeof(mt_form_nested), MT_FORM_ALIGN);
    }
    if (p->form == MT_FORM_INT4) {
        at.extra = at.more + mt_round_up(n_scales, MT_FORM_ALIGN);
        at.bytes = at.extra + (p->ordered ? mt_round_up((size_t)p->columns * sizeof(int32_t), MT_FORM_ALIGN) : 0);
    }
    return at;
}

size_t mt_packing_bytes(const mt_packing *p) { return mt_packing_places(p).bytes; }

mt_packed mt_packed_at(const mt_packing *p, const void *bytes)
{
    const mt_packed_places at = mt_packing_places(p);
    const uint8_t *b = bytes;
    return (mt_packed){ *p, b, b + at.scales, b + at.more, b + at.extra, at.row_bytes, at.blocks };
}

/* -- the meaning of each form ---------------------------------------------------------------------- */

/* The scale of the block of (row, column), for forms with fp32 scales. */
static float scale_of(const mt_packed *p, int64_t row, int64_t column)
{
    const int64_t block = row / p->as.block_rows * p->blocks + column / p->as.block;
    if (p->as.form == MT_FORM_NF4_NESTED) return mt_form_nested_scale(p, block);
    return ((const float *)p->scales)[block];
}

static void read_f8(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    const uint8_t *code = p->codes + (size_t)row * p->row_bytes + column;
    const float s = scale_of(p, row, column);
    const bool e4m3 = p->as.form == MT_FORM_F8_E4M3;
    for (int64_t i = 0; i < n; i++) out[i] = MT_FORM_MUL(e4m3 ? mt_form_e4m3(code[i]) : mt_form_e5m2(code[i]), s);
}

static unsigned nibble(const mt_packed *p, int64_t row, int64_t column, bool high)
{
    const uint8_t byte = p->codes[(size_t)row * p->row_bytes + (size_t)column / 2];
    return high ? byte >> 4 : byte & 15u;
}

static void read_mxfp4(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    const float s = mt_form_e8m0(((const uint8_t *)p->scales)[row * p->blocks + column / p->as.block]);
    for (int64_t i = 0; i < n; i++) out[i] = MT_FORM_MUL(mt_form_e2m1(nibble(p, row, column + i, (column + i) % 2)), s);
}

static void read_nf4(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    static const float codes[16] = { MT_NF4_CODES };
    const float s = scale_of(p, row, column);
    for (int64_t i = 0; i < n; i++) out[i] = MT_FORM_MUL(codes[nibble(p, row, column + i, (column + i) % 2 == 0)], s);
}

static void read_int4(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = row * p->blocks + mt_form_block_of(p, column + i);
        const int q = (int)nibble(p, row, column + i, (column + i) % 2) - ((const uint8_t *)p->more)[block];
        out[i] = MT_FORM_MUL((float)q, mt_form_f16(((const uint16_t *)p->scales)[block]));
    }
}

static void read_q8_0(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    const uint8_t *b = p->codes + (size_t)row * p->row_bytes + (size_t)(column / 32) * MT_Q8_0_BYTES;
    const float d = mt_form_f16(b[0] | (uint32_t)b[1] << 8);
    for (int64_t i = 0; i < n; i++) out[i] = MT_FORM_MUL(d, (float)(int8_t)b[2 + column % 32 + i]);
}

/* 32 bytes of nibbles hold two sub-blocks, low nibbles first. */
static void read_q4_k(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    const uint8_t *b = p->codes + (size_t)row * p->row_bytes + (size_t)(column / 256) * MT_Q4_K_BYTES;
    const int k = (int)(column % 256 / 32);
    float s, m;
    mt_form_q4_k_scale(b, k, &s, &m);
    const uint8_t *q = b + 16 + 32 * (k / 2) + column % 32;
    for (int64_t i = 0; i < n; i++) out[i] = MT_FORM_ADD(MT_FORM_MUL(s, (float)(q[i] >> 4 * (k % 2) & 15)), -m);
}

/* Columns [column, column + n) of a row, which share a scale. */
static void read_block(const mt_packed *p, int64_t row, int64_t column, int64_t n, float *out)
{
    switch (p->as.form) {
    case MT_FORM_F8_E4M3:
    case MT_FORM_F8_E5M2: read_f8(p, row, column, n, out); break;
    case MT_FORM_MXFP4: read_mxfp4(p, row, column, n, out); break;
    case MT_FORM_NF4:
    case MT_FORM_NF4_NESTED: read_nf4(p, row, column, n, out); break;
    case MT_FORM_INT4: read_int4(p, row, column, n, out); break;
    case MT_FORM_Q8_0: read_q8_0(p, row, column, n, out); break;
    case MT_FORM_Q4_K: read_q4_k(p, row, column, n, out); break;
    case MT_FORM_NUMBERS:
    case MT_FORMS: break;
    }
}

void mt_packed_read(const mt_packed *p, int64_t first, int64_t n, float *out)
{
    const int64_t C = p->as.columns, block = p->as.form == MT_FORM_Q4_K ? 32 : p->as.block;
    for (int64_t some; n; first += some, out += some, n -= some) {
        const int64_t row = first / C, column = first % C, end = mt_min_i64(C, (column / block + 1) * block);
        some = mt_min_i64(n, end - column);
        read_block(p, row, column, some, out);
    }
}

/* -- the op ---------------------------------------------------------------------------------------- */

size_t mt_expand_scratch(const mt_expand *a)
{
    (void)a;
    return 0;
}

enum { PIECE = 1 << 12 };

static void expand_piece(void *arg, int64_t piece)
{
    const mt_expand *a = arg;
    const mt_packed p = mt_packed_at(&a->as, a->packed);
    const int64_t from = piece * PIECE, n = mt_min_i64(PIECE, a->as.rows * a->as.columns - from);
    float numbers[PIECE];
    float *to = a->t == MT_DTYPE_F32 ? (float *)a->w + from : numbers;
    mt_packed_read(&p, from, n, to);
    for (int64_t i = 0; a->t != MT_DTYPE_F32 && i < n; i++) ((uint16_t *)a->w)[from + i] = mt_form_bf16(numbers[i]);
}

mt_rc mt__expand_run(mt_pool *pool, const mt_expand *a, mt_err *err)
{
    (void)err;
    mt_pool_for(pool, (a->as.rows * a->as.columns + PIECE - 1) / PIECE, expand_piece, (void *)a);
    return MT_OK;
}
