/* op_cases.c - the cases: odd shapes (1, primes, one past a tile), rows with gaps, what may be absent absent. */
#include "op_declare.h"

#include "base/rng.h"
#include "base/split.h"
#include "optim/adamw.h"
#include "optim/lion.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- embed ----------------------------------------------------------------------------------------- */

static const struct {
    mt_embed a;
    int64_t positions; /* rows of learned positions; 0: none */
    int64_t docs[6];   /* lengths of the documents then, up to the first 0 */
    bool frozen, frozen_positions;
} embed_cases[] = {
    { { .N = 1, .D = 1, .V = 1, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 7, .D = 3, .V = 5, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 131, .D = 72, .V = 11, .scale = 8.5f, .pad_id = -1 }, 0, { 0 }, false, false }, /* many rows of one id */
    { { .N = 257, .D = 130, .V = 1009, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 90, .D = 65, .V = 13, .scale = 1, .pad_id = 4 }, 0, { 0 }, false, false },
    { { .N = 33, .D = 128, .V = 1, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false }, /* one id only */
    { { .N = 300, .D = 40, .V = 2, .scale = 0.5f, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 901, .D = 16, .V = 1, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 0, .D = 8, .V = 3, .scale = 1, .pad_id = -1 }, 0, { 0 }, false, false },
    { { .N = 1, .D = 1, .V = 1, .scale = 1, .pad_id = -1 }, 1, { 1 }, false, false },
    { { .N = 13, .D = 3, .V = 5, .scale = 2.5f, .pad_id = -1 },
      9,
      { 5, 1, 7 },
      false,
      false }, /* the last rows are beyond every document */
    { { .N = 131, .D = 136, .V = 29, .scale = 1, .pad_id = 3 }, 70, { 64, 1, 1, 65 }, false, false },
    { { .N = 257, .D = 65, .V = 100, .scale = 1, .pad_id = -1 }, 257, { 257 }, false, true },
    { { .N = 60, .D = 64, .V = 100, .scale = 1, .pad_id = -1 }, 33, { 20, 20, 20 }, true, false },
};

static int64_t random_id(const op_run *r, int64_t i)
{
    const mt_embed *a = (const mt_embed *)(const void *)r->args;
    return (int64_t)mt_rng_below(r->how.seed, 99, (uint64_t)i, (uint64_t)a->V);
}

static void declare_positions(op_run *r, mt_embed *a, int c)
{
    const int64_t *docs = embed_cases[c].docs;
    while (a->n_docs < 6 && docs[a->n_docs]) a->n_docs++;
    op_buf *pos = add_ints(r, &a->pos, "pos", a->N), *starts = add_ints(r, &a->doc_start, "doc_start", a->n_docs + 1);
    op_set(starts, 0, 0, 0);
    for (int64_t d = 0, row = 0; d < a->n_docs; d++) {
        for (int64_t i = 0; i < docs[d]; i++) op_set(pos, 0, row++, (double)i);
        op_set(starts, 0, d + 1, (double)row);
    }
    op_buf *w = op_add(r, &a->w_pos, "w_pos", OP_INPUT, a->t, embed_cases[c].positions, a->D, 0);
    if (!embed_cases[c].frozen_positions)
        grows(r, w, op_add(r, &a->dw_pos, "dw_pos", OP_SUM, MT_DTYPE_F32, embed_cases[c].positions, a->D, 0));
}

static void declare_embed(op_run *r, int c)
{
    ARGS(mt_embed, embed_cases[c].a);
    a->t = r->how.t;
    needs(r, embed_cases[c].positions, MT_TRAIT(LEARNED_POSITIONS));
    set_ints(add_ints(r, &a->ids, "ids", a->N), a->N, random_id, r);
    op_buf *by_id = add_ints(r, &a->rows_by_id, "rows_by_id", a->N);
    int64_t n = 0;
    for (int64_t id = 0; id < a->V; id++)
        for (int64_t i = 0; i < a->N; i++)
            if (random_id(r, i) == id) op_set(by_id, 0, n++, (double)i);
    op_buf *w = op_add(r, &a->w, "w", OP_INPUT, a->t, a->V, a->D, 0);
    op_buf *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, a->D, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, a->D, 0);
    links(r, y, dy);
    if (!embed_cases[c].frozen) {
        op_buf *dw = op_add(r, &a->dw, "dw", OP_SUM, MT_DTYPE_F32, a->V, a->D, 0);
        if (a->pad_id < 0) grows(r, w, dw); /* a padding row's gradient is dropped, not differentiated */
    }
    if (embed_cases[c].positions) declare_positions(r, a, c);
}

static const char *check_embed(const op_run *r)
{
    const mt_embed *a = &embed_cases[r->case_index].a;
    const op_buf *dw = op_named((op_run *)(uintptr_t)r, "dw");
    if (a->pad_id < 0) return NULL;
    for (int64_t d = 0; d < a->D; d++)
        if (op_get(dw, dw->init, a->pad_id, d) != op_get(dw, dw->result, a->pad_id, d)) return "the padding row got a gradient";
    return NULL;
}

CHECKED_OP(embed, true, false, check_embed)

/* -- norm --------------------------------------------------------------------------------------- */

static const struct {
    mt_norm a;
    bool add, frozen, bias;
} norm_cases[] = {
    { { .N = 1, .D = 1, .eps = 0.5f }, false, false, false },
    { { .N = 1, .D = 8, .eps = 1e-5f }, true, false, false },
    { { .N = 5, .D = 7, .eps = 1e-5f, .one_plus = true }, true, false, false },
    { { .N = 64, .D = 64, .eps = 1e-6f, .dx_add = true }, false, false, false },
    { { .N = 65, .D = 129, .eps = 1e-6f, .dx_add = true }, true, false, false },
    { { .N = 130, .D = 1024, .eps = 1e-6f }, false, true, false },
    { { .N = 31, .D = 2056, .eps = 1e-5f, .dx_add = true, .one_plus = true }, false, false, false },
    { { .N = 3, .D = 8200, .eps = 1e-5f }, true, false, false },
    { { .N = 521, .D = 264, .eps = 1e-5f, .dx_add = true }, false, false, false },
    { { .N = 0, .D = 16, .eps = 1e-5f }, true, false, false },
    { { .N = 1, .D = 8, .eps = 1e-5f, .centered = true }, false, false, false },
    { { .N = 5, .D = 7, .eps = 1e-5f, .centered = true }, true, false, true },
    { { .N = 65, .D = 129, .eps = 1e-5f, .centered = true, .dx_add = true }, true, false, true },
    { { .N = 64, .D = 64, .eps = 1e-6f, .centered = true, .one_plus = true }, false, false, true },
    { { .N = 130, .D = 1024, .eps = 1e-5f, .centered = true }, false, true, true },
    { { .N = 521, .D = 264, .eps = 1e-5f, .centered = true, .dx_add = true }, false, false, true },
    { { .N = 3, .D = 8200, .eps = 1e-5f, .centered = true }, true, false, true },
    { { .N = 31, .D = 2056, .eps = 1e-5f, .centered = true, .dx_add = true }, false, false, false },
    { { .N = 33, .D = 72, .eps = 1e-5f }, true, false, true },
    { { .N = 0, .D = 16, .eps = 1e-5f, .centered = true }, true, false, true },
    { { .N = 8203, .D = 40, .eps = 1e-5f, .dx_add = true }, false, false, false },
    /* rows inside wider ones */
    { { .N = 37, .D = 64, .ldx = 104, .ld_dx = 200, .eps = 1e-6f }, false, false, false },
    { { .N = 130, .D = 1536, .ldx = 2112, .ld_dx = 2120, .eps = 1e-6f, .dx_add = true }, false, false, false },
    { { .N = 70, .D = 33, .ldx = 35, .eps = 1e-6f }, true, false, false },
    { { .N = 70, .D = 512, .ldx = 580, .ld_dx = 577, .eps = 1e-6f, .centered = true }, false, false, false },
    /* bare, from here on: no weights */
    { { .N = 5, .D = 7, .eps = 1e-5f }, true, true, false },
    { { .N = 65, .D = 136, .eps = 1e-5f, .centered = true, .dx_add = true }, false, true, false },
    { { .N = 31, .D = 1032, .eps = 1e-6f }, false, true, false },
    { { .N = 9, .D = 2056, .eps = 1e-5f, .centered = true }, false, true, false },
    /* tall_norm, only on a GPU: so large a number of rows of such a width that a block takes twice as many */
    { { .N = 8203, .D = 2048, .eps = 1e-5f, .dx_add = true }, false, false, false },
    { { .N = 8257, .D = 3584, .eps = 1e-6f }, true, false, false },
    { { .N = 8203, .D = 2048, .eps = 1e-5f, .centered = true }, false, false, true },
};
enum { N_TALL_NORMS = 3, N_NORMS = MT_COUNT(norm_cases) - N_TALL_NORMS, BARE_NORMS = N_NORMS - 4 };

static void declare_norm(op_run *r, int c)
{
    ARGS(mt_norm, norm_cases[c].a);
    a->t = r->how.t;
    bool bare = c >= BARE_NORMS && c < N_NORMS;
    needs(r, a->centered || norm_cases[c].bias, MT_TRAIT(LAYERNORM));
    needs(r, bare, MT_TRAIT(BARE_NORM));
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->N, a->D, a->ldx),
           *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, a->D, 0);
    op_buf *w = bare ? NULL : op_add(r, &a->w, "w", OP_INPUT, a->t, 1, a->D, 0);
    op_buf *b = norm_cases[c].bias ? op_add(r, &a->b, "b", OP_INPUT, a->t, 1, a->D, 0) : NULL;
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, a->D, 0);
    op_buf *dx = op_add(r, &a->dx, "dx", a->dx_add ? OP_SUM : OP_OUTPUT, a->t, a->N, a->D, a->ld_dx);
    op_add(r, &a->rstd, "rstd", OP_OUTPUT, MT_DTYPE_F32, 1, a->N, 0);
    if (norm_cases[c].add) may_share(r, y, op_add(r, &a->add, "add", OP_INPUT, a->t, a->N, a->D, 0));
    if (!a->dx_add && !a->ld_dx) may_share(r, dx, dy);
    if (a->centered) op_scale(r, x, 1.0, 3.0); /* a mean to take off */
    if (!norm_cases[c].frozen) grows(r, w, op_add(r, &a->dw, "dw", OP_SUM, MT_DTYPE_F32, 1, a->D, 0));
    if (!norm_cases[c].frozen && b) grows(r, b, op_add(r, &a->db, "db", OP_SUM, MT_DTYPE_F32, 1, a->D, 0));
    links(r, y, dy);
    grows(r, x, dx);
    if (a->D == 1) dx->floor = 0.1; /* x / |x| barely moves: all cancellation */
    add_scratch(r, &a->scratch, mt_norm_scratch(a));
}

const op_spec spec_norm = { "norm", OP_ID_norm, N_NORMS, true, false, declare_norm, NULL };

static void declare_tall_norm(op_run *r, int c) { declare_norm(r, N_NORMS + c); }

const op_spec op_tall_norm = { "tall_norm", OP_ID_norm, N_TALL_NORMS, true, false, declare_tall_norm, NULL };

/* -- linear ---------------------------------------------------------------------------------------- */

static const struct {
    mt_linear a;
    bool bias, add, no_dx, no_dw, no_db;
} linear_cases[] = {
    { { .M = 1, .N = 1, .K = 1 }, true, true, false, false, false },
    { { .M = 1, .N = 17, .K = 64 }, false, false, false, false, false },
    { { .M = 7, .N = 5, .K = 3 }, true, false, false, false, false },
    { { .M = 64, .N = 48, .K = 32 }, true, false, false, false, false },
    { { .M = 129, .N = 257, .K = 96 }, true, true, false, false, false },
    { { .M = 130, .N = 72, .K = 264, .dx_add = true }, false, true, false, false, false },
    { { .M = 37, .N = 40, .K = 24, .ldx = 32, .ldy = 56, .ldadd = 48 }, true, true, false, false, false },
    { { .M = 33, .N = 41, .K = 23, .ldx = 29, .ldy = 43, .ldadd = 47, .dx_add = true }, true, true, false, false, false },
    { { .M = 19, .N = 515, .K = 64, .y_f32 = true }, false, false, false, false, false },
    { { .M = 19, .N = 64, .K = 40, .y_f32 = true }, true, false, false, true, true },
    { { .M = 65, .N = 64, .K = 64 }, true, false, true, false, false },
    { { .M = 65, .N = 64, .K = 64, .dx_add = true }, true, false, false, true, false },
    { { .M = 300, .N = 128, .K = 128 }, true, false, true, true, false },
    { { .M = 256, .N = 136, .K = 520, .ldy = 200, .ldadd = 200 }, false, true, false, false, false },
    { { .M = 0, .N = 24, .K = 16 }, true, false, false, false, false },
    { { .M = 129, .N = 257, .K = 96, .alpha = 0.25f }, true, true, false, false, false },
    { { .M = 130, .N = 72, .K = 264, .alpha = 3.5f, .dx_add = true }, false, true, false, false, false },
    { { .M = 33, .N = 41, .K = 23, .ldx = 29, .ldy = 43, .ldadd = 47, .alpha = -0.5f, .dx_add = true },
      true,
      true,
      false,
      false,
      false },
    { { .M = 19, .N = 515, .K = 64, .y_f32 = true, .alpha = 0.0625f }, true, false, false, false, false },
    { { .M = 19, .N = 515, .K = 64, .y_f32 = true, .softcap = 2.0f }, false, false, true, true, true },
    { { .M = 33, .N = 40, .K = 24, .y_f32 = true, .softcap = 0.75f, .alpha = 2.0f }, true, false, true, true, true },
    { { .M = 129, .N = 257, .K = 96, .dw_set = true }, true, false, false, false, false },
    { { .M = 33, .N = 41, .K = 23, .ldx = 29, .ldy = 43, .alpha = 0.25f, .dw_set = true }, false, false, true, false, false },
    { { .M = 0, .N = 24, .K = 16, .dw_set = true }, true, false, false, false, false },
    /* large_linear, on a GPU alone: so large that linear.cu takes our own kernel on an H100 or H200, for y and dw of the first, dx of the
     * second */
    { { .M = 5243, .N = 5624, .K = 7928, .ldx = 7936, .ldy = 5640, .ldadd = 5632 }, false, true, true, false, true },
    { { .M = 5243, .N = 6648, .K = 5624, .dx_add = true }, false, false, false, true, true },
};

enum { N_LARGE_LINEAR = 2, N_LINEAR = MT_COUNT(linear_cases) - N_LARGE_LINEAR };

static void declare_linear(op_run *r, int c)
{
    ARGS(mt_linear, linear_cases[c].a);
    a->t = r->how.t;
    mt_dtype ty = a->y_f32 ? MT_DTYPE_F32 : a->t;
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->M, a->K, a->ldx),
           *w = op_add(r, &a->w, "w", OP_INPUT, a->t, a->N, a->K, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, ty, a->M, a->N, a->ldy),
           *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->M, a->N, a->ldy);
    needs(r, a->alpha != 0, MT_TRAIT(MULTIPLIERS));
    needs(r, a->softcap != 0, MT_TRAIT(LOGIT_SOFTCAP));
    op_scale(r, w, 1.0 / sqrt((double)a->K), 0);
    if (a->softcap == 0) links(r, y, dy); /* backward does not know the cap */
    if (linear_cases[c].bias) {
        op_buf *b = op_add(r, &a->b, "b", OP_INPUT, a->t, 1, a->N, 0);
        if (!linear_cases[c].no_db) grows(r, b, op_add(r, &a->db, "db", OP_SUM, MT_DTYPE_F32, 1, a->N, 0));
    }
    if (linear_cases[c].add) {
        op_buf *add = op_add(r, &a->add, "add", OP_INPUT, a->t, a->M, a->N, a->ldadd);
        if (!a->y_f32 && add->ld == y->ld) may_share(r, y, add);
    }
    if (!linear_cases[c].no_dx) grows(r, x, op_add(r, &a->dx, "dx", a->dx_add ? OP_SUM : OP_OUTPUT, a->t, a->M, a->K, a->ldx));
    if (!linear_cases[c].no_dw) grows(r, w, op_add(r, &a->dw, "dw", a->dw_set ? OP_OUTPUT : OP_SUM, MT_DTYPE_F32, a->N, a->K, 0));
    add_scratch(r, &a->scratch, mt_linear_scratch(a));
}

const op_spec spec_linear = { "linear", OP_ID_linear, N_LINEAR, true, false, declare_linear, NULL };

static void declare_large_linear(op_run *r, int c) { declare_linear(r, N_LINEAR + c); }

const op_spec op_large_linear = { "large_linear", OP_ID_linear, N_LARGE_LINEAR, true, false, declare_large_linear, NULL };

/* -- rope ------------------------------------------------------------------------------------------ */

enum { N_POSITIONS = 97 };

static const struct {
    mt_qk_prepare a;
    bool norm, frozen;
} qk_prepare_cases[] = {
    { { .style = MT_ROPE_HALF, .N = 1, .H = 1, .K = 1, .Dh = 2, .dr = 2 }, false, false },
    { { .style = MT_ROPE_HALF, .N = 13, .H = 3, .K = 1, .Dh = 16, .dr = 16 }, false, false },
    { { .style = MT_ROPE_PAIR, .N = 13, .H = 4, .K = 2, .Dh = 16, .dr = 16, .ld_qkv = 131, .ld_qk = 131, .ld_dqkv = 131 },
      false,
      false },
    { { .style = MT_ROPE_HALF, .N = 67, .H = 4, .K = 2, .Dh = 64, .dr = 64, .ld_qkv = 512, .ld_qk = 384, .ld_dqkv = 512 },
      false,
      false },
    { { .style = MT_ROPE_HALF, .N = 65, .H = 2, .K = 2, .Dh = 80, .dr = 32 }, false, false }, /* part of the head rotates */
    { { .style = MT_ROPE_HALF,
        .N = 130,
        .H = 4,
        .K = 2,
        .Dh = 128,
        .dr = 128,
        .ld_qkv = 1024,
        .ld_qk = 768,
        .ld_dqkv = 1024,
        .eps = 1e-6f },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 9, .H = 3, .K = 3, .Dh = 10, .dr = 10, .eps = 1e-5f, .one_plus = true }, true, false },
    { { .style = MT_ROPE_PAIR, .N = 30, .H = 2, .K = 1, .Dh = 256, .dr = 64, .eps = 1e-5f }, true, true },
    { { .style = MT_ROPE_NONE, .N = 17, .H = 2, .K = 1, .Dh = 32, .dr = 32, .eps = 1e-5f }, true, false },
    { { .style = MT_ROPE_NONE, .N = 17, .H = 2, .K = 1, .Dh = 32, .dr = 32 }, false, false },
    { { .style = MT_ROPE_HALF, .N = 70, .H = 9, .K = 4, .Dh = 64, .dr = 64, .eps = 1e-5f }, true, false },
    { { .style = MT_ROPE_HALF, .N = 0, .H = 2, .K = 1, .Dh = 32, .dr = 32, .eps = 1e-5f }, true, false },
    { { .style = MT_ROPE_HALF, .N = 1, .H = 1, .K = 1, .Dh = 2, .dr = 2, .eps = 0.5f, .whole = true }, true, false },
    { { .style = MT_ROPE_HALF,
        .N = 67,
        .H = 4,
        .K = 2,
        .Dh = 64,
        .dr = 64,
        .ld_qkv = 512,
        .ld_qk = 384,
        .ld_dqkv = 512,
        .eps = 1e-6f,
        .whole = true },
      true,
      false },
    { { .style = MT_ROPE_PAIR, .N = 13, .H = 5, .K = 1, .Dh = 10, .dr = 6, .eps = 1e-5f, .whole = true, .one_plus = true },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 130, .H = 8, .K = 8, .Dh = 128, .dr = 128, .eps = 1e-6f, .whole = true }, true, true },
    { { .style = MT_ROPE_NONE, .N = 17, .H = 3, .K = 1, .Dh = 33, .dr = 32, .eps = 1e-5f, .whole = true }, true, false },
    { { .style = MT_ROPE_HALF, .N = 40, .H = 40, .K = 8, .Dh = 128, .dr = 128, .eps = 1e-6f, .whole = true }, true, false },
    { { .style = MT_ROPE_HALF, .N = 0, .H = 2, .K = 1, .Dh = 32, .dr = 32, .eps = 1e-5f, .whole = true }, true, false },
    { { .style = MT_ROPE_HALF, .N = 70, .H = 5, .K = 2, .Dh = 64, .dr = 32, .eps = 1e-5f, .whole = true, .one_plus = true },
      true,
      false },
    { { .style = MT_ROPE_NONE, .N = 33, .H = 3, .K = 3, .Dh = 256, .dr = 32, .eps = 1e-5f, .whole = true }, true, false },
    { { .style = MT_ROPE_HALF, .N = 40, .H = 20, .K = 4, .Dh = 128, .dr = 128, .eps = 1e-6f, .norm_last = true, .whole = true },
      true,
      true },
    { { .style = MT_ROPE_PAIR,
        .N = 30,
        .H = 4,
        .K = 2,
        .Dh = 64,
        .dr = 64,
        .ld_qkv = 512,
        .ld_qk = 384,
        .ld_dqkv = 512,
        .eps = 1e-5f,
        .centered = true,
        .own_weights = true },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 67, .H = 5, .K = 1, .Dh = 40, .dr = 10, .eps = 1e-5f, .centered = true, .own_weights = true },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 130, .H = 3, .K = 3, .Dh = 128, .dr = 32, .eps = 1e-5f, .centered = true }, true, false },
    { { .style = MT_ROPE_NONE, .N = 9, .H = 2, .K = 1, .Dh = 33, .dr = 32, .eps = 1e-5f, .own_weights = true }, true, true },
    { { .style = MT_ROPE_HALF, .N = 66, .H = 3, .K = 2, .Dh = 128, .dr = 64, .eps = 1e-6f },
      true,
      false }, /* part of a normed head rotates */
    { { .style = MT_ROPE_HALF, .N = 35, .H = 5, .K = 1, .Dh = 256, .dr = 96, .eps = 1e-6f, .one_plus = true }, true, false },
    { { .style = MT_ROPE_NONE, .N = 40, .H = 6, .K = 2, .Dh = 64, .dr = 64, .eps = 1e-6f }, true, false },
    /* norms after the rotation */
    { { .style = MT_ROPE_HALF,
        .N = 67,
        .H = 4,
        .K = 2,
        .Dh = 64,
        .dr = 64,
        .ld_qkv = 512,
        .ld_qk = 384,
        .ld_dqkv = 512,
        .eps = 1e-6f,
        .norm_last = true },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 33, .H = 9, .K = 3, .Dh = 128, .dr = 96, .eps = 1e-5f, .norm_last = true }, true, false },
    { { .style = MT_ROPE_PAIR, .N = 13, .H = 3, .K = 1, .Dh = 10, .dr = 6, .eps = 1e-5f, .norm_last = true, .one_plus = true },
      true,
      false },
    { { .style = MT_ROPE_HALF,
        .N = 31,
        .H = 5,
        .K = 1,
        .Dh = 40,
        .dr = 10,
        .eps = 1e-5f,
        .norm_last = true,
        .centered = true,
        .own_weights = true },
      true,
      false },
    { { .style = MT_ROPE_HALF, .N = 20, .H = 3, .K = 2, .Dh = 24, .dr = 24, .eps = 1e-5f, .norm_last = true, .whole = true },
      true,
      true },
    /* norms without weights, before and after */
    { { .style = MT_ROPE_HALF, .N = 35, .H = 6, .K = 2, .Dh = 128, .dr = 128, .eps = 1e-6f, .norm_last = true, .bare = true },
      false,
      false },
    { { .style = MT_ROPE_HALF, .N = 35, .H = 6, .K = 2, .Dh = 64, .dr = 64, .eps = 1e-6f, .bare = true }, false, false },
    { { .style = MT_ROPE_PAIR, .N = 9, .H = 3, .K = 3, .Dh = 10, .dr = 10, .eps = 1e-5f, .norm_last = true, .bare = true },
      false,
      false },
    /* queries scaled by position */
    { { .style = MT_ROPE_HALF,
        .N = 67,
        .H = 4,
        .K = 2,
        .Dh = 64,
        .dr = 64,
        .ld_qkv = 512,
        .ld_qk = 512,
        .ld_dqkv = 512,
        .q_beta = 0.5f,
        .q_period = 16 },
      false,
      false },
    { { .style = MT_ROPE_PAIR, .N = 13, .H = 3, .K = 1, .Dh = 10, .dr = 6, .q_beta = 0.25f, .q_period = 7 }, false, false },
    { { .style = MT_ROPE_NONE, .N = 9, .H = 2, .K = 1, .Dh = 33, .dr = 32, .q_beta = 1.0f, .q_period = 1 }, false, false },
    { { .style = MT_ROPE_NONE, .N = 40, .H = 5, .K = 1, .Dh = 128, .dr = 128, .q_beta = 0.3f, .q_period = 4, .q_shift = 1 },
      false,
      false },
};

static int64_t random_position(const op_run *r, int64_t i)
{
    return (int64_t)mt_rng_below(r->how.seed, 98, (uint64_t)i, N_POSITIONS);
}

/* Tables of N_POSITIONS rows, with a factor on both. */
static void add_rotations(op_run *r, const void *cos_field, const void *sin_field, int64_t dr)
{
    op_buf *cos_table = op_add(r, cos_field, "cos", OP_INPUT, MT_DTYPE_F32, N_POSITIONS, dr / 2, 0);
    op_buf *sin_table = op_add(r, sin_field, "sin", OP_INPUT, MT_DTYPE_F32, N_POSITIONS, dr / 2, 0);
    for (int64_t p = 0; p < N_POSITIONS; p++)
        for (int64_t j = 0; j < dr / 2; j++) {
            double angle = (double)p * pow(10000.0, -2.0 * (double)j / (double)dr);
            op_set(cos_table, p, j, 1.1 * cos(angle));
            op_set(sin_table, p, j, 1.1 * sin(angle));
        }
}

static void declare_qk_prepare(op_run *r, int c)
{
    ARGS(mt_qk_prepare, qk_prepare_cases[c].a);
    a->t = r->how.t;
    int64_t width = (a->H + a->K) * a->Dh;
    needs(r, a->whole, MT_TRAIT(WHOLE_QK_NORM));
    needs(r, a->centered || a->own_weights, MT_TRAIT(QK_LAYERNORM));
    needs(r, a->q_beta != 0, MT_TRAIT(QUERY_SCALE));
    needs(r, a->norm_last, MT_TRAIT(QK_NORM_LAST));
    needs(r, a->bare, MT_TRAIT(BARE_NORM));
    if (!a->ld_qkv) a->ld_qkv = a->ld_qk = a->ld_dqkv = width;
    set_ints(add_ints(r, &a->pos, "pos", a->N), a->N, random_position, r);
    add_rotations(r, &a->cos, &a->sin, a->dr);
    op_buf *qkv = op_add(r, &a->qkv, "qkv", OP_INPUT, a->t, a->N, width, a->ld_qkv);
    op_buf *qk = op_add(r, &a->qk, "qk", OP_OUTPUT, a->t, a->N, width, a->ld_qk);
    op_buf *dqkv = op_add(r, &a->dqkv, "dqkv", OP_INOUT, a->t, a->N, width, a->ld_dqkv);
    links(r, qk, dqkv);
    grows(r, qkv, dqkv);
    if (qk_prepare_cases[c].norm) {
        bool each = a->whole || a->own_weights;
        int64_t n_q = each ? a->H * a->Dh : a->Dh, n_k = each ? a->K * a->Dh : a->Dh;
        if (a->centered) op_scale(r, qkv, 1.0, 3.0);
        op_buf *wq = op_add(r, &a->wq, "wq", OP_INPUT, a->t, 1, n_q, 0), *wk = op_add(r, &a->wk, "wk", OP_INPUT, a->t, 1, n_k, 0);
        if (!qk_prepare_cases[c].frozen) {
            grows(r, wq, op_add(r, &a->dwq, "dwq", OP_SUM, MT_DTYPE_F32, 1, n_q, 0));
            grows(r, wk, op_add(r, &a->dwk, "dwk", OP_SUM, MT_DTYPE_F32, 1, n_k, 0));
        }
    } else if (a->ld_qkv == a->ld_qk && !a->bare) {
        may_share(r, qk, qkv);
    }
    add_scratch(r, &a->scratch, mt_qk_prepare_scratch(a));
}

CHECKED_OP(qk_prepare, true, false, NULL)

/* -- latent_qk ------------------------------------------------------------------------------------- */

static const struct {
    mt_latent_qk a;
    int64_t gap;  /* elements past the packed row */
    bool rotated; /* the queries were before */
    bool apart;   /* their rope parts go to another place */
} latent_qk_cases[] = {
    { { .N = 1, .H = 1, .dn = 1, .dr = 2, .style = MT_ROPE_PAIR }, 0, false, false },
    { { .N = 5, .H = 3, .dn = 6, .dr = 4, .style = MT_ROPE_PAIR }, 3, false, false },
    { { .N = 33, .H = 2, .dn = 7, .dr = 6, .style = MT_ROPE_HALF }, 1, false, false },
    { { .N = 65, .H = 16, .dn = 128, .dr = 64, .style = MT_ROPE_PAIR }, 0, false, false },
    { { .N = 40, .H = 20, .dn = 192, .dr = 64, .style = MT_ROPE_PAIR }, 8, false, false },
    { { .N = 9, .H = 16, .dn = 128, .dr = 64, .style = MT_ROPE_HALF }, 16, true, false },
    { { .N = 9, .H = 4, .dn = 24, .dr = 8, .style = MT_ROPE_NONE }, 8, false, false },
    { { .N = 0, .H = 4, .dn = 24, .dr = 8, .style = MT_ROPE_PAIR }, 0, false, false },
    { { .N = 17, .H = 4, .dn = 24, .dr = 8, .style = MT_ROPE_PAIR }, 8, false, true },
    { { .N = 3, .H = 2, .dn = 5, .dr = 6, .style = MT_ROPE_HALF }, 1, false, true },
};

static void declare_latent_qk(op_run *r, int c)
{
    ARGS(mt_latent_qk, latent_qk_cases[c].a);
    const int64_t width = a->H * (a->dn + a->dr), nope_width = a->H * a->dn, gap = latent_qk_cases[c].gap;
    a->t = r->how.t;
    a->ldq = width + gap;
    a->ldk = width + 2 * gap;
    a->ld_nope = nope_width + gap;
    a->ld_rope = a->dr + gap;
    a->ld_d = width + 3 * gap;
    set_ints(add_ints(r, &a->pos, "pos", a->N), a->N, random_position, r);
    add_rotations(r, &a->cos, &a->sin, a->dr);
    op_buf *dq = op_add(r, &a->dq, "dq", OP_INOUT, a->t, a->N, width, a->ld_d);
    if (latent_qk_cases[c].apart) {
        a->q_apart = a->dr;
        a->ld_q_to = a->H * a->dr + gap;
        op_add(r, &a->q, "q", OP_INPUT, a->t, a->N, width, a->ldq);
        op_add(r, &a->q_to, "q_to", OP_OUTPUT, a->t, a->N, a->H * a->dr, a->ld_q_to);
    } else if (!latent_qk_cases[c].rotated) {
        op_buf *q = op_add(r, &a->q, "q", OP_INOUT, a->t, a->N, width, a->ldq);
        links(r, q, dq);
        grows(r, q, dq);
    }
    op_buf *nope = op_add(r, &a->nope, "nope", OP_INPUT, a->t, a->N, nope_width, a->ld_nope);
    op_buf *rope = op_add(r, &a->rope, "rope", OP_INPUT, a->t, a->N, a->dr, a->ld_rope);
    op_buf *k = op_add(r, &a->k, "k", OP_OUTPUT, a->t, a->N, width, a->ldk);
    op_buf *dk = op_add(r, &a->dk, "dk", OP_INPUT, a->t, a->N, width, a->ld_d);
    op_buf *d_nope = op_add(r, &a->d_nope, "d_nope", OP_OUTPUT, a->t, a->N, nope_width, a->ld_d);
    op_buf *d_rope = op_add(r, &a->d_rope, "d_rope", OP_OUTPUT, a->t, a->N, a->dr, a->ld_d);
    links(r, k, dk);
    grows(r, nope, d_nope);
    grows(r, rope, d_rope);
}

CHECKED_OP(latent_qk, true, false, NULL)

/* -- attention ------------------------------------------------------------------------------------- */

/* Marks a case with sinks; declaring it puts a buffer in their place. */
static const float with_sinks[1];

/* Leading dimensions: `gap` elements past the packed row. */
typedef struct attention_case {
    mt_attention a;
    int64_t gap;     /* gradients have three times that */
    int64_t docs[9]; /* lengths, up to the first 0; below 0: the lengths so far come as often */
} attention_case;

static const attention_case attention_cases[] = {
    { { .H = 1, .K = 1, .Dh = 2 }, 0, { 1 } },
    { { .H = 2, .K = 1, .Dh = 3 }, 0, { 5, 1, 7 } },
    { { .H = 4, .K = 2, .Dh = 16 }, 8, { 33, 1, 1, 30 } },
    { { .H = 4, .K = 4, .Dh = 64 }, 0, { 129 } },
    { { .H = 4, .K = 1, .Dh = 64 }, 64, { 64, 65, 1, 63 } },
    { { .H = 4, .K = 2, .Dh = 64, .window = 17 }, 0, { 150, 40 } },
    { { .H = 7, .K = 1, .Dh = 128 }, 128, { 200, 3, 70 } },
    { { .H = 2, .K = 2, .Dh = 128, .window = 64 }, 0, { 300 } },
    { { .H = 2, .K = 1, .Dh = 96 }, 0, { 100, 28 } },
    { { .H = 2, .K = 2, .Dh = 80 }, 16, { 90, 1, 11 } },
    { { .H = 3, .K = 1, .Dh = 256 }, 0, { 70, 40 } },
    { { .H = 2, .K = 1, .Dh = 256, .window = 9 }, 8, { 140 } },
    { { .H = 2, .K = 1, .Dh = 72, .window = 1 }, 0, { 37 } },
    { { .H = 2, .K = 2, .Dh = 64 }, 0, { 1, 1, 1, 1, 1 } },
    { { .H = 2, .K = 1, .Dh = 40, .window = 1000 }, 24, { 130, 260 } },
    { { .H = 3, .K = 3, .Dh = 33 }, 5, { 19, 50 } },
    { { .H = 8, .K = 2, .Dh = 128 }, 0, { 384, 127 } },
    { { .H = 1, .K = 1, .Dh = 2, .softcap = 2 }, 0, { 1, 3 } },
    { { .H = 4, .K = 2, .Dh = 16, .softcap = 1 }, 8, { 33, 1, 30 } },
    { { .H = 4, .K = 2, .Dh = 64, .window = 17, .softcap = 2 }, 0, { 80, 40 } },
    { { .H = 2, .K = 1, .Dh = 256, .softcap = 3 }, 8, { 70, 66 } },
    { { .H = 7, .K = 1, .Dh = 128, .softcap = 50 }, 128, { 70, 3, 33 } },
    { { .H = 1, .K = 1, .Dh = 4, .alibi = 1 }, 0, { 1, 9 } },
    { { .H = 5, .K = 5, .Dh = 33, .alibi = 1 }, 5, { 19, 50 } }, /* slopes of no power of two */
    { { .H = 8, .K = 2, .Dh = 64, .alibi = 1 }, 0, { 129, 64 } },
    { { .H = 40, .K = 40, .Dh = 16, .alibi = 1 }, 0, { 65 } },
    { { .H = 6, .K = 2, .Dh = 128, .alibi = 0.125f }, 128, { 90, 1, 40 } },
    { { .H = 3, .K = 1, .Dh = 96, .window = 20, .alibi = 1 }, 0, { 100 } },
    { { .H = 4, .K = 2, .Dh = 64, .alibi = 0.5f, .softcap = 2 }, 16, { 70, 33 } },
    /* Values of another width. */
    { { .H = 2, .K = 2, .Dh = 3, .Dv = 2 }, 0, { 5, 1, 7 } },
    { { .H = 4, .K = 2, .Dh = 10, .Dv = 14, .window = 7 }, 3, { 33, 1, 30 } },
    { { .H = 2, .K = 2, .Dh = 192, .Dv = 128 }, 0, { 70, 40 } },
    { { .H = 3, .K = 3, .Dh = 192, .Dv = 128 }, 64, { 130, 1, 65 } },
    { { .H = 2, .K = 1, .Dh = 64, .Dv = 128, .softcap = 3 }, 8, { 90, 33 } },
    { { .H = 2, .K = 2, .Dh = 96, .Dv = 64, .window = 20 }, 16, { 100 } },
    { { .H = 1, .K = 1, .Dh = 2, .sinks = with_sinks }, 0, { 1, 3 } },
    { { .H = 3, .K = 1, .Dh = 33, .sinks = with_sinks }, 5, { 19, 1, 50 } },
    { { .H = 8, .K = 1, .Dh = 64, .sinks = with_sinks }, 0, { 129, 1, 64 } },
    { { .H = 4, .K = 2, .Dh = 64, .window = 17, .sinks = with_sinks }, 64, { 150, 40 } },
    { { .H = 70, .K = 10, .Dh = 16, .window = 5, .sinks = with_sinks }, 0, { 40, 33 } }, /* more heads than a block has threads */
    { { .H = 2, .K = 1, .Dh = 128, .softcap = 2, .sinks = with_sinks }, 0, { 70, 3 } },
    { { .H = 2, .K = 1, .Dh = 16, .chunk = 1 }, 0, { 5, 9 } },
    { { .H = 3, .K = 1, .Dh = 33, .chunk = 7 }, 5, { 19, 7, 50, 6 } },
    { { .H = 4, .K = 2, .Dh = 64, .chunk = 64 }, 0, { 150, 64, 65, 1 } },
    { { .H = 5, .K = 1, .Dh = 128, .chunk = 37 }, 128, { 200, 3, 111 } },
    { { .H = 2, .K = 1, .Dh = 256, .chunk = 1000 }, 8, { 140, 66 } }, /* cuts nothing */
    { { .H = 4, .K = 2, .Dh = 64, .chunk = 50, .window = 17, .sinks = with_sinks }, 0, { 150, 40 } },
    /* The last two are one shape: as fast as it goes, and plainly. */
    { { .H = 4, .K = 2, .Dh = 64 }, 0, { 150, 40 } },
    { { .H = 4, .K = 2, .Dh = 64, .use = { .ways = 1u << MT_ATTENTION_PLAIN } }, 0, { 150, 40 } },
};

static const attention_case long_attention_cases[] = {
    { { .H = 4, .K = 2, .Dh = 128 }, 0, { 4096, 1000, 1, 3000 } },
    { { .H = 2, .K = 1, .Dh = 128, .window = 1500 }, 128, { 9001 } },
    { { .H = 4, .K = 1, .Dh = 64 }, 0, { 5000, 17, 2047, 1 } },
    { { .H = 2, .K = 2, .Dh = 256 }, 0, { 3000, 1500 } },
    { { .H = 2, .K = 1, .Dh = 256, .window = 1100, .softcap = 3 }, 0, { 3000, 17 } },
    { { .H = 5, .K = 5, .Dh = 128, .alibi = 1 }, 0, { 3000, 1000 } },
    { { .H = 7, .K = 1, .Dh = 128, .ldq = 9 * 128, .ldk = 9 * 128, .ldv = 9 * 128, .ld_d = 9 * 128 }, 0, { 517, 8203, 1 } },
    { { .H = 16, .K = 2, .Dh = 64 }, 8, { 8192, 40, 2111, 5000 } },
    { { .H = 4, .K = 4, .Dh = 64 }, 0, { 700, 9001 } },
    { { .H = 4, .K = 4, .Dh = 96 }, 0, { 5000, 17, 2111 } },
    { { .H = 4, .K = 2, .Dh = 192 }, 0, { 17, 5000, 2111 } },
    { { .H = 4, .K = 2, .Dh = 256, .softcap = 50 }, 0, { 4096, 1, 2500 } },
    { { .H = 4, .K = 2, .Dh = 128, .softcap = 3 }, 8, { 5000, 17, 2047 } },
    { { .H = 4, .K = 4, .Dh = 192, .Dv = 128 }, 0, { 4096, 1000, 1, 3000 } },
    { { .H = 16, .K = 2, .Dh = 64, .sinks = with_sinks }, 0, { 5000, 17, 2047 } },
    { { .H = 16, .K = 2, .Dh = 64, .window = 128, .sinks = with_sinks }, 0, { 5000, 17, 2047 } },
    { { .H = 5, .K = 1, .Dh = 128, .chunk = 2048 }, 0, { 5000, 17, 2049 } },
};

/* Of which the scores' gradients are more than 2 GiB, or have 2^31 elements in a launch of 4 GiB. */
static const attention_case huge_attention_cases[] = {
    { { .H = 28, .K = 4, .Dh = 128 }, 0, { 8192 } },
    { { .H = 2, .K = 1, .Dh = 64 }, 0, { 131072 } },
};

static const attention_case packed_attention_cases[] = {
    { { .H = 28, .K = 4, .Dh = 128 }, 0, { 200, 3, 70 } },
    { { .H = 14, .K = 2, .Dh = 64 }, 0, { 129, 1, 127, 128, 1, 300 } },
    { { .H = 16, .K = 8, .Dh = 96 }, 8, { 256, 1, 255, 257 } },
    { { .H = 32, .K = 8, .Dh = 128 }, 128, { 1, 1, 400 } },
    { { .H = 4, .K = 4, .Dh = 128 }, 0, { 385, 64, 63 } },
    { { .H = 3, .K = 3, .Dh = 64 }, 64, { 1, 1, 1, 1, 1 } },
    { { .H = 8, .K = 1, .Dh = 80 }, 16, { 90, 1, 11 } },
    { { .H = 4, .K = 2, .Dh = 64, .window = 17 }, 0, { 150, 40 } },
    { { .H = 7, .K = 1, .Dh = 128, .window = 64 }, 128, { 300, 1, 90 } },
    { { .H = 4, .K = 4, .Dh = 96, .window = 1 }, 0, { 37, 140 } },
    { { .H = 8, .K = 4, .Dh = 256 }, 0, { 140, 1, 66 } },
    { { .H = 2, .K = 1, .Dh = 256, .window = 9 }, 8, { 140 } },
    { { .H = 4, .K = 2, .Dh = 64 }, 0, { 1, 17, 5, 33, 2, 64, 9, 3, -25 } }, /* 200 documents */
    { { .H = 2, .K = 2, .Dh = 128 }, 0, { 7, 1, 30, -40 } },
    { { .H = 4, .K = 2, .Dh = 128 }, 0, { 1500, 1, 300 } },
    { { .H = 14, .K = 2, .Dh = 64, .ldq = 18 * 64, .ld_d = 18 * 64 }, 0, { 700, 1, 129, 33 } }, /* as in a row of q, k and v */
    { { .H = 28, .K = 4, .Dh = 128, .ldq = 36 * 128, .ldk = 36 * 128, .ldv = 36 * 128, .ld_d = 36 * 128 },
      0,
      { 600, 1, 90 } }, /* Qwen2.5-7B */
    { { .H = 16, .K = 8, .Dh = 128, .ldq = 24 * 128, .ldk = 24 * 128, .ldv = 32 * 128, .ld_d = 32 * 128 },
      0,
      { 600, 1, 90 } }, /* Qwen3: q and k apart from v */
    { { .H = 8, .K = 8, .Dh = 128, .ldq = 24 * 128, .ldk = 24 * 128, .ldv = 24 * 128, .ld_d = 24 * 128 },
      0,
      { 600, 1, 90 } }, /* no groups */
    { { .H = 8, .K = 4, .Dh = 256, .softcap = 50, .ldq = 16 * 256, .ldk = 16 * 256, .ldv = 16 * 256, .ld_d = 16 * 256 },
      0,
      { 600, 1, 90 } },                                                                  /* Gemma 2 2B */
    { { .H = 4, .K = 2, .Dh = 256, .softcap = 50, .scale = 0.5f }, 0, { 300, 129, 1 } }, /* scores of 8 to 30 */
    { { .H = 8, .K = 4, .Dh = 128, .softcap = 1, .scale = 0.5f },
      128,
      { 385, 1, 64, 63 } }, /* scores of 6, most of them at the cap */
    { { .H = 4, .K = 2, .Dh = 256, .softcap = 3, .window = 64 }, 8, { 300, 1, 90 } },
    { { .H = 4, .K = 2, .Dh = 128, .softcap = 3, .window = 600 }, 0, { 1100, 33 } },
    { { .H = 16, .K = 16, .Dh = 192, .Dv = 128 }, 0, { 300, 129, 1 } }, /* DeepSeek-V2-Lite */
    { { .H = 4, .K = 4, .Dh = 192, .Dv = 128, .ldq = 3648, .ldk = 768, .ldv = 1024, .ld_d = 5440 },
      0,
      { 600, 1, 90 } }, /* as in the rows of latent attention */
    { { .H = 64, .K = 8, .Dh = 64, .ldq = 80 * 64, .ldk = 80 * 64, .ldv = 80 * 64, .ld_d = 80 * 64, .sinks = with_sinks },
      0,
      { 600, 1, 90, 129 } }, /* GPT-OSS */
    { { .H = 64,
        .K = 8,
        .Dh = 64,
        .window = 128,
        .ldq = 80 * 64,
        .ldk = 80 * 64,
        .ldv = 80 * 64,
        .ld_d = 80 * 64,
        .sinks = with_sinks },
      0,
      { 600, 1, 90 } },
    { { .H = 4, .K = 4, .Dh = 128, .sinks = with_sinks }, 0, { 385, 1, 64, 63 } },
    { { .H = 5, .K = 1, .Dh = 128, .chunk = 128 }, 0, { 300, 128, 1, 129 } },
    { { .H = 5, .K = 1, .Dh = 128, .chunk = 400 }, 0, { 300, 128, 1, 129 } }, /* cuts nothing */
};

static void declare_attention_of(op_run *r, const attention_case *c)
{
    ARGS(mt_attention, c->a);
    const int64_t *docs = c->docs, gap = c->gap;
    a->t = r->how.t;
    needs(r, a->softcap != 0, MT_TRAIT(ATTENTION_SOFTCAP));
    needs(r, a->alibi != 0, MT_TRAIT(ALIBI));
    needs(r, a->chunk != 0, MT_TRAIT(CHUNKS));
    needs(r, a->sinks != NULL, MT_TRAIT(SINKS));
    int64_t listed = 0, times;
    while (listed < 8 && docs[listed] > 0) {
        a->N += docs[listed];
        a->longest = mt_max_i64(a->longest, docs[listed++]);
    }
    times = docs[listed] < 0 ? -docs[listed] : 1;
    a->N *= times;
    a->n_docs = listed * times;
    if (r->how.use) a->use = *r->how.use;
    const int64_t Dv = mt_value_width(a->Dh, a->Dv);
    a->ldo = a->H * Dv + gap;
    if (!a->ldq) a->ldq = a->H * a->Dh + gap;
    if (!a->ld_d) a->ld_d = a->H * mt_max_i64(a->Dh, Dv) + 3 * gap;
    if (!a->ldk) a->ldk = a->K * a->Dh + gap;
    if (!a->ldv) a->ldv = a->K * Dv + 2 * gap;
    if (a->scale == 0) a->scale = 1.0f / sqrtf((float)a->Dh);
    op_buf *starts = add_ints(r, &a->doc_start, "doc_start", a->n_docs + 1);
    for (int64_t d = 0, row = 0; d <= a->n_docs; row += docs[d++ % listed]) op_set(starts, 0, d, (double)row);
    a->host_start = (const int32_t *)(const void *)starts->init;
    op_buf *q = op_add(r, &a->q, "q", OP_INPUT, a->t, a->N, a->H * a->Dh, a->ldq);
    op_buf *k = op_add(r, &a->k, "k", OP_INPUT, a->t, a->N, a->K * a->Dh, a->ldk);
    op_buf *v = op_add(r, &a->v, "v", OP_INPUT, a->t, a->N, a->K * Dv, a->ldv);
    op_buf *o = op_add(r, &a->o, "o", OP_OUTPUT, a->t, a->N, a->H * Dv, a->ldo);
    op_buf *d_o = op_add(r, &a->d_o, "d_o", OP_INPUT, a->t, a->N, a->H * Dv, a->ldo);
    op_buf *dq = op_add(r, &a->dq, "dq", OP_OUTPUT, a->t, a->N, a->H * a->Dh, a->ld_d);
    op_buf *dk = op_add(r, &a->dk, "dk", OP_OUTPUT, a->t, a->N, a->K * a->Dh, a->ld_d);
    op_buf *dv = op_add(r, &a->dv, "dv", OP_OUTPUT, a->t, a->N, a->K * Dv, a->ld_d);
    op_buf *lse = op_add(r, &a->lse, "lse", OP_OUTPUT, MT_DTYPE_F32, a->N, a->H, 0);
    links(r, o, d_o);
    grows(r, q, dq);
    grows(r, k, dk);
    grows(r, v, dv);
    /* A row that sees only itself has none: what is left is o's rounding.  Of few numbers all may be small. */
    dq->floor = dk->floor = a->N * a->H * a->Dh <= 80 ? 0.3 : 0.1;
    lse->floor = 0.1;
    if (a->sinks)
        grows(r, op_add(r, &a->sinks, "sinks", OP_INPUT, MT_DTYPE_F32, 1, a->H, 0),
              op_add(r, &a->dsinks, "dsinks", OP_SUM, MT_DTYPE_F32, 1, a->H, 0));
    add_scratch(r, &a->scratch, mt_attention_scratch(a));
}

static void declare_attention(op_run *r, int c) { declare_attention_of(r, &attention_cases[c]); }
static void declare_long_attention(op_run *r, int c) { declare_attention_of(r, &long_attention_cases[c]); }
static void declare_huge_attention(op_run *r, int c) { declare_attention_of(r, &huge_attention_cases[c]); }

static void declare_packed_attention(op_run *r, int c) { declare_attention_of(r, &packed_attention_cases[c]); }

CHECKED_OP(attention, true, false, NULL)
const op_spec op_packed_attention = {
    "packed_attention", OP_ID_attention, (int)MT_COUNT(packed_attention_cases), true, false, declare_packed_attention, NULL
};
const op_spec op_long_attention = {
    "long_attention", OP_ID_attention, (int)MT_COUNT(long_attention_cases), true, false, declare_long_attention, NULL
};

const op_spec op_huge_attention = {
    "huge_attention", OP_ID_attention, (int)MT_COUNT(huge_attention_cases), true, false, declare_huge_attention, NULL
};

/* Sequences with `past` cached rows and `fresh` new ones; their caches are in the opposite order. */
typedef struct cache_attention_case {
    mt_cache_attention a;
    int64_t gap;
    struct {
        int64_t past, fresh;
    } docs[6]; /* up to the first without new rows */
} cache_attention_case;

static const cache_attention_case cache_attention_cases[] = {
    { { .H = 1, .K = 1, .Dh = 2 }, 0, { { 0, 1 } } },
    { { .H = 2, .K = 1, .Dh = 3 }, 0, { { 4, 1 }, { 0, 5 }, { 1, 2 } } },
    { { .H = 4, .K = 2, .Dh = 16 }, 8, { { 33, 1 }, { 0, 1 }, { 70, 1 } } },
    { { .H = 8, .K = 2, .Dh = 64 }, 64, { { 200, 1 }, { 64, 1 }, { 63, 1 }, { 0, 130 } } },
    { { .H = 4, .K = 4, .Dh = 128, .window = 17 }, 0, { { 150, 1 }, { 10, 20 }, { 16, 1 } } },
    { { .H = 7, .K = 1, .Dh = 128 }, 0, { { 513, 1 }, { 1, 65 } } },
    { { .H = 2, .K = 1, .Dh = 256, .window = 1 }, 8, { { 40, 3 } } },
    { { .H = 3, .K = 3, .Dh = 33, .window = 1000 }, 5, { { 129, 1 }, { 128, 2 } } },
    { { .H = 8, .K = 2, .Dh = 64, .softcap = 2 }, 64, { { 200, 1 }, { 64, 1 }, { 0, 130 } } },
    { { .H = 2, .K = 1, .Dh = 256, .window = 30, .softcap = 3 }, 8, { { 140, 1 }, { 20, 20 } } },
    { { .H = 5, .K = 5, .Dh = 33, .alibi = 1 }, 5, { { 129, 1 }, { 0, 40 }, { 63, 2 } } },
    { { .H = 8, .K = 2, .Dh = 128, .alibi = 0.125f }, 0, { { 513, 1 }, { 1, 65 } } },
    { { .H = 4, .K = 4, .Dh = 64, .window = 17, .alibi = 0.5f, .softcap = 2 }, 0, { { 150, 1 }, { 10, 20 } } },
    { { .H = 2, .K = 2, .Dh = 10, .Dv = 7 }, 3, { { 4, 1 }, { 0, 5 } } },
    { { .H = 4, .K = 4, .Dh = 192, .Dv = 128 }, 0, { { 200, 1 }, { 64, 1 }, { 0, 70 } } },
    { { .H = 2, .K = 1, .Dh = 64, .Dv = 128 }, 8, { { 33, 2 } } },
    { { .H = 8, .K = 2, .Dh = 64, .sinks = with_sinks }, 64, { { 200, 1 }, { 64, 1 }, { 0, 130 } } },
    { { .H = 3, .K = 1, .Dh = 33, .window = 9, .sinks = with_sinks }, 5, { { 129, 1 }, { 0, 40 }, { 63, 2 } } },
    { { .H = 4, .K = 2, .Dh = 128, .chunk = 32 }, 0, { { 150, 1 }, { 31, 2 }, { 32, 1 }, { 0, 100 } } },
    { { .H = 2, .K = 1, .Dh = 16, .chunk = 1, .sinks = with_sinks }, 0, { { 3, 4 } } },
    /* Values are the beginnings of keys, from here on: latents. */
    { { .H = 3, .K = 1, .Dh = 12, .Dv = 8 }, 3, { { 4, 1 }, { 0, 5 } } },
    { { .H = 16, .K = 1, .Dh = 576, .Dv = 512 }, 0, { { 200, 1 }, { 64, 1 }, { 0, 40 } } },
};
enum { N_LATENT_CACHES = 2 };

static void declare_cache_attention(op_run *r, int index)
{
    const cache_attention_case *c = &cache_attention_cases[index];
    ARGS(mt_cache_attention, c->a);
    a->t = r->how.t;
    needs(r, a->softcap != 0, MT_TRAIT(ATTENTION_SOFTCAP));
    needs(r, a->alibi != 0, MT_TRAIT(ALIBI));
    needs(r, a->chunk != 0, MT_TRAIT(CHUNKS));
    needs(r, a->sinks != NULL, MT_TRAIT(SINKS));
    for (; a->n_docs < 6 && c->docs[a->n_docs].fresh; a->n_docs++) {
        a->N += c->docs[a->n_docs].fresh;
        a->longest = mt_max_i64(a->longest, c->docs[a->n_docs].fresh);
        a->deepest = mt_max_i64(a->deepest, c->docs[a->n_docs].past + c->docs[a->n_docs].fresh);
    }
    const int64_t Dv = mt_value_width(a->Dh, a->Dv);
    a->ldq = a->H * a->Dh + c->gap;
    a->ldo = a->H * Dv + c->gap;
    a->ldk = a->K * a->Dh + c->gap;
    a->ldv = a->K * Dv + 2 * c->gap;
    a->scale = 1.0f / sqrtf((float)a->Dh);
    op_buf *starts = add_ints(r, &a->doc_start, "doc_start", a->n_docs + 1), *pos = add_ints(r, &a->pos, "pos", a->N);
    op_buf *rows = add_ints(r, &a->cache_row, "cache_row", a->n_docs);
    op_set(starts, 0, 0, 0);
    for (int64_t d = 0, row = 0; d < a->n_docs; d++) {
        for (int64_t i = 0; i < c->docs[d].fresh; i++, row++) op_set(pos, 0, row, (double)(c->docs[d].past + i));
        op_set(starts, 0, d + 1, (double)row);
        op_set(rows, 0, d, (double)((a->n_docs - 1 - d) * a->deepest));
    }
    op_add(r, &a->q, "q", OP_INPUT, a->t, a->N, a->H * a->Dh, a->ldq);
    op_add(r, &a->k, "k", OP_INPUT, a->t, a->N, a->K * a->Dh, a->ldk);
    const bool latents = index >= (int)MT_COUNT(cache_attention_cases) - N_LATENT_CACHES;
    if (!latents) op_add(r, &a->v, "v", OP_INPUT, a->t, a->N, a->K * Dv, a->ldv);
    op_add(r, &a->o, "o", OP_OUTPUT, a->t, a->N, a->H * Dv, a->ldo);
    op_add(r, &a->cache_k, "cache_k", OP_INOUT, a->t, a->n_docs * a->deepest, a->K * a->Dh, 0);
    if (!latents) op_add(r, &a->cache_v, "cache_v", OP_INOUT, a->t, a->n_docs * a->deepest, a->K * Dv, 0);
    if (a->sinks) op_add(r, &a->sinks, "sinks", OP_INPUT, MT_DTYPE_F32, 1, a->H, 0);
    add_scratch(r, &a->scratch, mt_cache_attention_scratch(a));
}

CHECKED_OP(cache_attention, false, false, NULL)

/* -- activation ------------------------------------------------------------------------------------------- */

static const mt_activation activation_cases[] = {
    { .act = MT_ACT_SILU, .N = 1, .F = 1 },
    { .act = MT_ACT_SILU, .N = 13, .F = 37 },
    { .act = MT_ACT_SILU, .N = 70, .F = 264 },
    { .act = MT_ACT_GELU_TANH, .N = 13, .F = 40 },
    { .act = MT_ACT_GELU_TANH, .N = 5, .F = 1027 },
    { .act = MT_ACT_GELU_ERF, .N = 33, .F = 64 },
    { .act = MT_ACT_SILU, .N = 0, .F = 64 },
    { .act = MT_ACT_RELU, .N = 13, .F = 37 },
    { .act = MT_ACT_RELU2, .N = 33, .F = 64 },
    { .act = MT_ACT_GELU_TANH, .plain = true, .N = 1, .F = 1 },
    { .act = MT_ACT_GELU_TANH, .plain = true, .N = 70, .F = 264 },
    { .act = MT_ACT_GELU_ERF, .plain = true, .N = 13, .F = 37 },
    { .act = MT_ACT_SILU, .plain = true, .N = 5, .F = 1027 },
    { .act = MT_ACT_RELU, .plain = true, .N = 33, .F = 65 },
    { .act = MT_ACT_RELU2, .plain = true, .N = 70, .F = 264 },
    { .act = MT_ACT_RELU2, .plain = true, .N = 0, .F = 64 },
    { .act = MT_ACT_XIELU, .plain = true, .N = 1, .F = 5 },
    { .act = MT_ACT_XIELU, .plain = true, .N = 70, .F = 264 },
    { .act = MT_ACT_XIELU, .plain = true, .N = 0, .F = 64 },
    { .act = MT_ACT_CLAMPED, .N = 13, .F = 37, .limit = 1.0f, .steep = 1.702f },
    { .act = MT_ACT_CLAMPED, .N = 70, .F = 264, .limit = 0.5f, .steep = 3.0f },
    { .act = MT_ACT_SILU, .N = 70, .F = 264 },
    { .act = MT_ACT_XIELU, .plain = true, .N = 131, .F = 37 },
    /* Packed rows of experts: the device alone knows how many; from the third on they have weights. */
    { .act = MT_ACT_SILU, .N = 33, .F = 40 },
    { .act = MT_ACT_SILU, .N = 0, .F = 16 },
    { .act = MT_ACT_SILU, .N = 21, .F = 1032 },
    { .act = MT_ACT_RELU2, .plain = true, .N = 70, .F = 37 },
    { .act = MT_ACT_GELU_TANH, .N = 5, .F = 3000 },
    { .act = MT_ACT_CLAMPED, .N = 33, .F = 40, .limit = 1.0f, .steep = 1.702f },
    { .act = MT_ACT_CLAMPED, .N = 5, .F = 3000, .limit = 7.0f, .steep = 1.702f },
    { .act = MT_ACT_SILU, .N = 33, .F = 40, .weigh_input = true },
    { .act = MT_ACT_GELU_ERF, .N = 21, .F = 1037, .weigh_input = true },
};
enum {
    ACTIVATION_KEPT = 21,
    ACTIVATION_PACKED = 23,
    ACTIVATION_WEIGHTED = 25
}; /* from ACTIVATION_KEPT on y was kept, so backward does not write it */

/* Differences across relu's corner say nothing about its slopes: keep the numbers away from it. */
static void avoid_zero(op_buf *b)
{
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->width; j++)
            if (fabs(op_get(b, b->init, i, j)) < 0.0625) op_set(b, i, j, j % 2 ? 0.125 : -0.125);
}

/* Likewise the corners of clamps. */
static void avoid_limits(op_buf *b, double limit)
{
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->width; j++)
            if (fabs(fabs(op_get(b, b->init, i, j)) - limit) < 0.0625) op_set(b, i, j, j % 2 ? limit + 0.125 : 0.125 - limit);
}

/* The case's rows are packed rows [7, 7 + n); their pairs are in the opposite order. */
static void pack_activation_rows(op_run *r, mt_activation *a, int c)
{
    enum { FIRST = 7 };
    int64_t n = a->N;
    op_set(add_ints(r, &a->first, "first", 1), 0, 0, FIRST);
    op_set(add_ints(r, &a->last, "last", 1), 0, 0, (double)(FIRST + n));
    a->N = 2 * n + 3; /* a bound */
    if (c < ACTIVATION_WEIGHTED) return;
    op_buf *order = add_ints(r, &a->order, "order", FIRST + n);
    for (int64_t i = 0; i < FIRST + n; i++) op_set(order, 0, i, i < FIRST ? -1.0 : (double)(FIRST + n - 1 - i));
    grows(r, op_add(r, &a->weights, "weights", OP_INPUT, MT_DTYPE_F32, 1, n, 0),
          op_add(r, &a->dweights, "dweights", OP_OUTPUT, MT_DTYPE_F32, 1, n, 0));
}

static void learn_xielu(op_run *r, mt_activation *a)
{
    needs(r, true, MT_TRAIT(XIELU));
    grows(r, op_add(r, &a->alpha_p, "alpha_p", OP_INPUT, MT_DTYPE_F32, 1, 1, 0),
          op_add(r, &a->dalpha_p, "dalpha_p", OP_SUM, MT_DTYPE_F32, 1, 1, 0));
    grows(r, op_add(r, &a->alpha_n, "alpha_n", OP_INPUT, MT_DTYPE_F32, 1, 1, 0),
          op_add(r, &a->dalpha_n, "dalpha_n", OP_SUM, MT_DTYPE_F32, 1, 1, 0));
    add_scratch(r, &a->scratch, mt_activation_scratch(a));
}

static void declare_activation(op_run *r, int c)
{
    ARGS(mt_activation, activation_cases[c]);
    a->t = r->how.t;
    int64_t width = a->plain ? a->F : 2 * a->F;
    bool relu = a->act == MT_ACT_RELU || a->act == MT_ACT_RELU2;
    needs(r, a->plain, MT_TRAIT(PLAIN_MLP));
    needs(r, relu, MT_TRAIT(RELU));
    op_buf *gu = op_add(r, &a->gu, "gu", OP_INPUT, a->t, a->N, width, 0),
           *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, a->F, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, a->F, 0),
           *again = c < ACTIVATION_KEPT || c >= ACTIVATION_WEIGHTED ? op_add(r, &a->y, "y_again", OP_OUTPUT, a->t, a->N, a->F, 0)
                                                                    : NULL;
    op_buf *dgu = op_add(r, &a->dgu, "dgu", OP_OUTPUT, a->t, a->N, width, 0);
    if (relu) avoid_zero(gu);
    needs(r, a->act == MT_ACT_CLAMPED, MT_TRAIT(CLAMPED));
    if (a->act == MT_ACT_CLAMPED) avoid_limits(gu, (double)a->limit);
    if (a->act == MT_ACT_XIELU) learn_xielu(r, a);
    y->phases = OP_FWD;
    if (again) again->phases = OP_BWD;
    links(r, y, dy);
    grows(r, gu, dgu);
    may_share(r, dgu, gu);
    if (again) may_share(r, again, dy);
    if (c >= ACTIVATION_PACKED) pack_activation_rows(r, a, c);
}

static const char *check_again(const op_run *r)
{
    const op_buf *y = op_named((op_run *)(uintptr_t)r, "y"), *again = op_named((op_run *)(uintptr_t)r, "y_again");
    return again && memcmp(y->result, again->result, op_bytes(y)) ? "y of backward differs from y of forward" : NULL;
}

CHECKED_OP(activation, true, false, check_again)

/* -- rows ------------------------------------------------------------------------------------------ */

static const mt_rows rows_cases[] = {
    { .N = 1, .n_picked = 1, .D = 1 },     { .N = 9, .n_picked = 0, .D = 5 },      { .N = 40, .n_picked = 17, .D = 24 },
    { .N = 211, .n_picked = 70, .D = 33 }, { .N = 50, .n_picked = 50, .D = 1024 },
};

static void declare_rows(op_run *r, int c)
{
    ARGS(mt_rows, rows_cases[c]);
    a->t = r->how.t;
    op_buf *index = add_ints(r, &a->index, "index", a->n_picked);
    for (int64_t i = 0; i < a->n_picked; i++) op_set(index, 0, i, (double)(i * a->N / a->n_picked));
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->N, a->D, 0),
           *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->n_picked, a->D, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->n_picked, a->D, 0),
           *dx = op_add(r, &a->dx, "dx", OP_OUTPUT, a->t, a->N, a->D, 0);
    links(r, y, dy);
    grows(r, x, dx);
}

CHECKED_OP(rows, true, false, NULL)

/* -- normhead -------------------------------------------------------------------------------------- */

static const mt_normhead normhead_cases[] = {
    { .N = 1, .V = 1, .D = 1 },     { .N = 3, .V = 7, .D = 5 },    { .N = 33, .V = 257, .D = 64 },
    { .N = 130, .V = 65, .D = 33 }, { .N = 5, .V = 31, .D = 130 }, { .N = 0, .V = 5, .D = 8 },
};

static void declare_normhead(op_run *r, int c)
{
    ARGS(mt_normhead, normhead_cases[c]);
    a->t = r->how.t;
    needs(r, true, MT_TRAIT(NORM_HEAD));
    op_buf *w = op_add(r, &a->w, "w", OP_INPUT, a->t, a->V, a->D, 0);
    op_scale(r, w, 0.5, a->D == 1 ? 2.0 : 0.0); /* 1/x has its own troubles near 0 */
    op_buf *logits = op_add(r, &a->logits, "logits", OP_INOUT, MT_DTYPE_F32, a->N, a->V, 0);
    op_buf *dlogits = op_add(r, &a->dlogits, "dlogits", OP_INOUT, a->t, a->N, a->V, 0);
    op_add(r, &a->rnorm, "rnorm", OP_OUTPUT, MT_DTYPE_F32, 1, a->V, 0);
    links(r, logits, dlogits);
    grows(r, logits, dlogits);
    if (c != 4) grows(r, w, op_add(r, &a->dw, "dw", OP_SUM, MT_DTYPE_F32, a->V, a->D, 0)); /* else it is frozen */
}

CHECKED_OP(normhead, true, false, NULL)

/* -- cross entropy --------------------------------------------------------------------------------- */

enum { LOSS_ONLY = 1, WEIGHTED = 2, GIVEN = 4 }; /* GIVEN: factors */

static const struct {
    mt_cross_entropy a;
    int with;
} cross_entropy_cases[] = {
    { { .N = 1, .V = 1, .dscale = 1 }, 0 },
    { { .N = 3, .V = 7, .dscale = 0.25f }, 0 },
    { { .N = 33, .V = 257, .dscale = 1.0f / 64 }, 0 },
    { { .N = 5, .V = 1031, .dscale = 0.5f }, LOSS_ONLY },
    { { .N = 300, .V = 40, .dscale = 0.01f }, 0 },
    { { .N = 4, .V = 32003, .dscale = 0.25f }, 0 },
    { { .N = 6, .V = 512, .dscale = 0.25f }, 0 },
    { { .N = 0, .V = 5, .dscale = 1 }, 0 },
    { { .N = 33, .V = 257, .dscale = 1.0f / 64, .softcap = 40 }, 0 },
    { { .N = 4, .V = 32003, .dscale = 0.25f, .softcap = 31 }, 0 },
    { { .N = 5, .V = 64, .dscale = 0.5f, .softcap = 40 }, LOSS_ONLY },
    { { .N = 3, .V = 20484, .dscale = 0.25f }, 0 }, /* a row in 2, 4 or 8 blocks, evenly or not */
    { { .N = 2, .V = 40964, .dscale = 0.25f }, 0 },
    { { .N = 2, .V = 151936, .dscale = 0.25f }, 0 },
    { { .N = 2, .V = 163844, .dscale = 0.5f, .softcap = 31 }, 0 },
    { { .N = 2, .V = 262144, .dscale = 0.5f }, 0 },
    { { .N = 2, .V = 262148, .dscale = 0.5f }, LOSS_ONLY }, /* too long a row */
    { { .N = 36, .V = 81924, .dscale = 0.25f }, 0 },        /* more rows than a GPU's processors hold at once: twice, and four
                                                          * times over */
    { { .N = 900, .V = 40, .dscale = 0.25f }, 0 },
    /* The terms of objectives.  Those whose gradient takes a factor for a constant come last: differences do not show that gradient. */
    { { .N = 33, .V = 257, .dscale = 1.0f / 64, .smoothing = 0.1f }, 0 },
    { { .N = 4, .V = 32004, .dscale = 0.25f, .z_loss = 1e-3f }, 0 },
    { { .N = 7, .V = 515, .dscale = 0.25f, .smoothing = 0.3f, .z_loss = 0.01f }, WEIGHTED },
    { { .N = 33, .V = 260, .dscale = 1.0f / 64, .softcap = 40, .smoothing = 0.2f, .z_loss = 0.02f }, GIVEN },
    { { .N = 1, .V = 1, .dscale = 1, .smoothing = 0.5f }, WEIGHTED },
    { { .N = 0, .V = 5, .dscale = 1, .smoothing = 0.5f }, 0 },
    { { .N = 5, .V = 1031, .dscale = 0.5f, .smoothing = 1 }, LOSS_ONLY | WEIGHTED | GIVEN },
    { { .N = 33, .V = 257, .dscale = 1.0f / 64, .by_probability = true }, 0 },
    { { .N = 5, .V = 151936, .dscale = 0.25f, .by_probability = true, .softcap = 31, .z_loss = 1e-3f }, WEIGHTED },
    { { .N = 9, .V = 64, .dscale = 0.25f, .by_probability = true, .smoothing = 0.1f }, WEIGHTED | GIVEN },
};

static int64_t random_target(const op_run *r, int64_t i)
{
    const mt_cross_entropy *a = (const mt_cross_entropy *)(const void *)r->args;
    return (int64_t)mt_rng_below(r->how.seed, 97, (uint64_t)i, (uint64_t)a->V);
}

static void declare_cross_entropy(op_run *r, int c)
{
    ARGS(mt_cross_entropy, cross_entropy_cases[c].a);
    a->t = r->how.t;
    needs(r, a->softcap != 0, MT_TRAIT(LOGIT_SOFTCAP));
    if (cross_entropy_cases[c].with & WEIGHTED)
        op_scale(r, op_add(r, &a->weights, "weights", OP_INPUT, MT_DTYPE_F32, 1, a->N, 0), 0.3, 1.0);
    if (cross_entropy_cases[c].with & GIVEN)
        op_scale(r, op_add(r, &a->factors, "factors", OP_INPUT, MT_DTYPE_F32, 1, a->N, 0), 0.3, 0.7);
    op_buf *logits = op_add(r, &a->logits, "logits", OP_INPUT, MT_DTYPE_F32, a->N, a->V, 0);
    op_scale(r, logits, 2.0, 1.0);
    set_ints(add_ints(r, &a->targets, "targets", a->N), a->N, random_target, r);
    for (int64_t i = 0; i < a->N; i += 3) op_set(logits, i, random_target(r, i), 30.0); /* some rows are right */
    op_buf *loss = op_add(r, &a->row_loss, "row_loss", OP_OUTPUT, MT_DTYPE_F32, 1, a->N, 0);
    op_buf *weight = op_add(r, NULL, "weight of a row", OP_INPUT, MT_DTYPE_F32, 1, a->N, 0);
    op_scale(r, weight, 0.0, (double)a->dscale);
    links(r, loss, weight);
    op_add(r, &a->row_correct, "row_correct", OP_OUTPUT, MT_DTYPE_I32, 1, a->N, 0);
    op_buf *sum = op_add(r, &a->sum, "sum", OP_INOUT, MT_DTYPE_U8, 1, (int64_t)sizeof(mt_loss_sum), 0);
    memcpy(sum->init, &(mt_loss_sum){ .loss = 3.25, .correct = 11 }, sizeof(mt_loss_sum));
    if (!(cross_entropy_cases[c].with & LOSS_ONLY)) {
        op_buf *dlogits = op_add(r, &a->dlogits, "dlogits", OP_OUTPUT, a->t, a->N, a->V, 0);
        dlogits->floor = a->V == 1 ? 1e-3 : 1e-9;
        if (!a->by_probability) grows(r, logits, dlogits);
    }
}

/* A row's loss and gradient in double, from the formula of row_terms.h: dz of [V] is filled in. */
static double reference_row(const mt_cross_entropy *a, const double *z, int64_t target, double w, double f, double *dz)
{
    const double V = (double)a->V, s = (double)a->smoothing, zl = (double)a->z_loss;
    double top = -INFINITY, sum = 0, mean = 0;
    for (int64_t j = 0; j < a->V; j++) top = fmax(top, z[j]);
    for (int64_t j = 0; j < a->V; j++) sum += exp(z[j] - top), mean += z[j] / V;
    const double l = top + log(sum), nll = l - z[target];
    if (a->by_probability) f *= exp(-nll);
    for (int64_t j = 0; j < a->V; j++) {
        const double p = exp(z[j] - l), smooth = (1 - s) * (j == target) + s / V;
        dz[j] = (double)a->dscale * w * (f * (p - smooth) + 2 * zl * l * p);
    }
    return w * (f * ((1 - s) * nll + s * (l - mean)) + zl * l * l);
}

/* Losses and gradients in fp32 are near the reference's: a row's within 1e-5 of its largest number, and of 14 roundings of a
 * probability near 1, which is all that a row leaves that is surely right.  A GPU joins the sums of 32 lanes and 16 warps one after
 * the other, and each of 20 joins with the sum that has the largest logit may lose half a rounding; the sum's inverse, the
 * exponential and their product have the rest. */
static const char *near_reference(op_run *r)
{
    const double roundings = 14 * ldexp(1, -24);
    const mt_cross_entropy *a = (const mt_cross_entropy *)(const void *)r->args;
    const op_buf *logits = op_named(r, "logits"), *loss = op_named(r, "row_loss"),
                 *dlogits = a->dlogits ? op_named(r, "dlogits") : NULL, *weights = a->weights ? op_named(r, "weights") : NULL,
                 *factors = a->factors ? op_named(r, "factors") : NULL;
    const char *wrong = NULL;
    double *z = mt_calloc((size_t)a->V, sizeof *z), *dz = mt_calloc((size_t)a->V, sizeof *dz);
    for (int64_t i = 0; i < a->N && z && dz; i++) {
        const double cap = (double)a->softcap, w = weights ? op_get(weights, weights->init, 0, i) : 1,
                     f = factors ? op_get(factors, factors->init, 0, i) : 1;
        double far = 0, size = (double)a->dscale * 1e-2;
        for (int64_t j = 0; j < a->V; j++) {
            z[j] = op_get(logits, logits->init, i, j);
            if (cap != 0) z[j] = cap * tanh(z[j] / cap);
        }
        const double want = reference_row(a, z, random_target(r, i), w, f, dz);
        if (fabs(op_get(loss, loss->result, 0, i) - want) > 1e-5 * fmax(fabs(want), 1))
            wrong = "a row's loss is not the reference's";
        for (int64_t j = 0; j < a->V && dlogits; j++) {
            if (cap != 0) dz[j] *= 1 - z[j] / cap * (z[j] / cap);
            far = fmax(far, fabs(op_get(dlogits, dlogits->result, i, j) - dz[j]));
            size = fmax(size, fabs(dz[j]));
        }
        const double allowed = 1e-5 * size + roundings * fabs((double)a->dscale * w * f);
        if (a->t == MT_DTYPE_F32 && far > allowed) {
            fprintf(stderr, "row %d of %d logits: %.2e from the reference, %.2e allowed\n", (int)i, (int)a->V, far, allowed);
            wrong = "a row's gradient is not the reference's";
        }
    }
    mt_free(z);
    mt_free(dz);
    return wrong;
}

/* The sum is what was there plus the rows in order, to the bit; the best logit is counted; and all is near a reference in double. */
static const char *check_cross_entropy(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const op_buf *loss = op_named(r, "row_loss"), *correct = op_named(r, "row_correct"), *sum = op_named(r, "sum");
    const op_buf *logits = op_named(r, "logits");
    mt_loss_sum want = { .loss = 3.25, .correct = 11 }, got;
    memcpy(&got, sum->result, sizeof got);
    for (int64_t i = 0; i < loss->width; i++) {
        int32_t is_best;
        memcpy(&is_best, correct->result + 4 * i, 4);
        int64_t best = 0;
        for (int64_t j = 1; j < logits->width; j++)
            if (op_get(logits, logits->init, i, j) > op_get(logits, logits->init, i, best)) best = j;
        if (is_best != (best == random_target(r, i))) return "row_correct is wrong";
        want.loss += op_get(loss, loss->result, 0, i);
        want.correct += is_best;
    }
    return want.loss != got.loss || want.correct != got.correct ? "sum is not the rows' sum in order" : near_reference(r);
}

CHECKED_OP(cross_entropy, false, false, check_cross_entropy)

/* -- factors from entropies ------------------------------------------------------------------------ */

static const mt_entropy_factor entropy_factor_cases[] = {
    { .N = 1, .V = 1, .alpha = 1 },
    { .N = 3, .V = 7, .alpha = 1 },
    { .N = 5, .V = 20, .alpha = 0.5f },
    { .N = 33, .V = 257, .alpha = 1 },
    { .N = 4, .V = 32003, .alpha = 2 },
    { .N = 9, .V = 515, .alpha = 0 },
    { .N = 2, .V = 151936, .alpha = 1, .softcap = 31 },
    { .N = 0, .V = 5, .alpha = 1 },
};

static void declare_entropy_factor(op_run *r, int c)
{
    ARGS(mt_entropy_factor, entropy_factor_cases[c]);
    op_buf *logits = op_add(r, &a->logits, "logits", OP_INPUT, MT_DTYPE_F32, a->N, a->V, 0);
    needs(r, a->softcap != 0, MT_TRAIT(LOGIT_SOFTCAP));
    op_scale(r, logits, 2.0, 1.0);
    for (int64_t i = 0; i < a->N; i += 2) /* equal ones, and the largest of all where a row ends */
        for (int64_t j = 0; j < a->V; j += 1 + a->V / 30) op_set(logits, i, a->V - 1 - j, 6.0);
    op_add(r, &a->factors, "factors", OP_OUTPUT, MT_DTYPE_F32, 1, a->N, 0);
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* In double, from a sorted row. */
static const char *check_entropy_factor(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const mt_entropy_factor *a = (const mt_entropy_factor *)(const void *)r->args;
    const op_buf *logits = op_named(r, "logits"), *factors = op_named(r, "factors");
    const double cap = (double)a->softcap;
    const char *wrong = NULL;
    double *z = mt_calloc((size_t)a->V, sizeof *z);
    for (int64_t i = 0; i < a->N && z; i++) {
        double sum = 0, entropy = 0;
        for (int64_t j = 0; j < a->V; j++) {
            z[j] = op_get(logits, logits->init, i, j);
            if (cap != 0) z[j] = cap * tanh(z[j] / cap);
        }
        qsort(z, (size_t)a->V, sizeof *z, descending);
        const int n = (int)mt_min_i64(a->V, 20);
        for (int k = 0; k < n; k++) sum += exp(z[k]);
        for (int k = 0; k < n; k++) entropy -= exp(z[k]) / sum * (z[k] - log(sum));
        const double want = pow(fmax(entropy, 0) / 3, (double)a->alpha);
        if (fabs(op_get(factors, factors->result, 0, i) - want) > 1e-5) wrong = "a factor is not the reference's";
    }
    mt_free(z);
    return wrong;
}

CHECKED_OP(entropy_factor, false, false, check_entropy_factor)

/* -- fold ------------------------------------------------------------------------------------------ */

static const mt_fold fold_cases[] = { { .n = 1 },
                                      { .n = 4097, .clear = true },
                                      { .n = 70001 },
                                      { .n = 65536, .clear = true },
                                      { .n = 4099, .bf16 = true },
                                      { .n = 65536, .bf16 = true, .clear = true } };

static void declare_fold(op_run *r, int c)
{
    ARGS(mt_fold, fold_cases[c]);
    op_buf *to = op_add(r, &a->to, "to", OP_INOUT, MT_DTYPE_F32, 1, a->n, 0);
    op_buf *part = op_add(r, &a->part, "part", a->clear ? OP_INOUT : OP_INPUT, MT_DTYPE_F32, 1, a->n, 0);
    if (a->n <= 8) return;
    const double pairs[][2] = {
        { -0.0, -0.0 },  { 0.0, -0.0 },           { -0.0, 0.0 },      { NAN, 1 },       { 1, NAN },
        { INFINITY, 1 }, { INFINITY, -INFINITY }, { 3.4e38, 3.4e38 }, { 1e-40, 1e-41 }, { 1, 5.9604644775e-8 },
        { 1, -1 }
    };
    for (size_t i = 0; i < MT_COUNT(pairs); i++) {
        op_set(to, 0, (int64_t)i, pairs[i][0]);
        op_set(part, 0, (int64_t)i, pairs[i][1]);
    }
}

/* One rounded addition an element, and nothing is left where that was asked for. */
static const char *check_fold(const op_run *run)
{
    op_run *r = (op_run *)(uintptr_t)run;
    const mt_fold *a = (const mt_fold *)r->args;
    const op_buf *to = op_named(r, "to"), *part = op_named(r, "part");
    for (int64_t i = 0; i < to->width; i++) {
        float add = (float)op_get(part, part->init, 0, i);
        if (a->bf16) add = mt_bf16_to_f32(mt_f32_to_bf16(add));
        const float want = (float)op_get(to, to->init, 0, i) + add, got = (float)op_get(to, to->result, 0, i);
        if (isnan(want) != isnan(got)) return "a NaN is lost, or made";
        if (!isnan(want) && memcmp(&want, &got, sizeof got) != 0) return "to is not the sum";
        if (a->clear && memcmp(part->result + 4 * i, &(float){ 0 }, 4) != 0) return "part is not cleared";
    }
    return NULL;
}

CHECKED_OP(fold, false, true, check_fold)

/* -- round_grad, grad_norm ------------------------------------------------------------------------- */

static const struct {
    mt_round_grad a;
    bool two;
} round_grad_cases[] = { { { .n = 1 }, true }, { { .n = 4097 }, false }, { { .n = 70001 }, true }, { { .n = 65536 }, false } };

static void declare_round_grad(op_run *r, int c)
{
    ARGS(mt_round_grad, round_grad_cases[c].a);
    a->t = r->how.t;
    op_buf *acc = op_add(r, &a->acc, "acc", OP_INPUT, MT_DTYPE_F32, 1, a->n, 0);
    if (a->n > 8) {
        op_set(acc, 0, 1, NAN);
        op_set(acc, 0, 2, -INFINITY);
        op_set(acc, 0, 3, 3.4e38); /* rounds to infinity in bf16 */
        op_set(acc, 0, 4, 1e-40);
        op_set(acc, 0, 5, 1.00390625); /* a tie */
    }
    if (round_grad_cases[c].two) op_add(r, &a->acc2, "acc2", OP_INPUT, MT_DTYPE_F32, 1, a->n, 0);
    op_add(r, &a->g, "g", OP_OUTPUT, a->t, 1, a->n, 0);
}

CHECKED_OP(round_grad, false, true, NULL)

static const mt_grad_norm grad_norm_cases[] = {
    { .n = 1 }, { .n = 255 }, { .n = 4096 }, { .n = 4097 }, { .n = 200003 }, { .n = 12288 }, { .n = 1100003 }
}; /* the last: lanes with several chunks */

static void declare_grad_norm(op_run *r, int c)
{
    ARGS(mt_grad_norm, grad_norm_cases[c]);
    a->t = r->how.t;
    op_buf *g = op_add(r, &a->g, "g", OP_INPUT, a->t, 1, a->n, 0);
    for (int64_t i = 0; i < a->n; i++) /* exponents apart: another order would show in the last bits */
        op_set(g, 0, i, ldexp(op_get(g, g->init, 0, i), (int)mt_rng_below(r->how.seed, 96, (uint64_t)i, 20) - 10));
    if (c == 5) op_set(g, 0, 5000, INFINITY);
    op_add(r, &a->sum, "sum", OP_OUTPUT, MT_DTYPE_F64, 1, 1, 0);
    add_scratch(r, &a->scratch, mt_grad_norm_scratch(a));
}

CHECKED_OP(grad_norm, false, true, NULL)

/* -- adamw, lion, join_halves ---------------------------------------------------------------------------- */

static const struct {
    mt_update a;
    int guard; /* 0: none, 1: finite, 2: infinite */
    bool bad;  /* some weights and gradients leave the range */
} update_cases[] = {
    { { .n = 1, .n_decay = 1 }, 0, false },
    { { .n = 1000, .n_decay = 333 }, 1, false },
    { { .n = 70007, .n_decay = 65000 }, 0, true },
    { { .n = 5000, .n_decay = 0 }, 2, false },
    { { .n = 200000, .n_decay = 200000 }, 1, false },
    { { .n = 1, .n_decay = 0, .moments = MT_MOMENTS_BF16 }, 0, false },
    { { .n = 70007, .n_decay = 65000, .moments = MT_MOMENTS_BF16 }, 0, true },
    { { .n = 100000, .n_decay = 99992, .moments = MT_MOMENTS_BF16 }, 1, false },
    { { .n = 5, .n_decay = 2, .moments = MT_MOMENTS_8BIT }, 0, false },
    { { .n = 70007, .n_decay = 65001, .moments = MT_MOMENTS_8BIT }, 0, true },
    { { .n = 5000, .n_decay = 0, .moments = MT_MOMENTS_8BIT }, 2, false },
    { { .n = 131072, .n_decay = 99999, .moments = MT_MOMENTS_8BIT }, 1, false },
};

static void set_halves(op_run *r, op_buf *hi, op_buf *lo, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float w =
            mt_rng_normal(r->how.seed, 95, (uint64_t)i) * ldexpf(1.0f, -(int)mt_rng_below(r->how.seed, 94, (uint64_t)i, 30));
        uint16_t h;
        int16_t l;
        mt_split(w, &h, &l);
        memcpy(hi->init + 2 * i, &h, 2);
        memcpy(lo->init + 2 * i, &l, 2);
    }
}

/* One more buffer of bytes for each moment, with numbers of the usual sizes in the form the case asks for. */
static void add_small_moments(op_run *r, mt_update *a, int n_arrays)
{
    float m32[MT_MOMENT_BLOCK], v32[MT_MOMENT_BLOCK];
    int64_t bytes = (int64_t)mt_moments_bytes(a->moments, (size_t)a->n);
    op_buf *m = op_add(r, &a->m, "m", OP_INOUT, MT_DTYPE_U8, 1, bytes, 0),
           *v = n_arrays > 1 ? op_add(r, &a->v, "v", OP_INOUT, MT_DTYPE_U8, 1, bytes, 0) : NULL;
    for (int64_t at = 0; at < a->n; at += MT_MOMENT_BLOCK) {
        int64_t n = a->n - at < MT_MOMENT_BLOCK ? a->n - at : MT_MOMENT_BLOCK;
        for (int64_t i = 0; i < n; i++) {
            float x = mt_rng_normal(r->how.seed, 93, (uint64_t)(at + i)) *
                      ldexpf(0.01f, -(int)mt_rng_below(r->how.seed, 92, (uint64_t)(at + i), 20));
            m32[i] = x, v32[i] = i % 7 == 3 ? 0 : x * x;
        }
        mt_moments_store(&(mt_moments_chunk){ .form = a->moments,
                                              .m = m->init,
                                              .v = v ? v->init : NULL,
                                              .n_all = (size_t)a->n,
                                              .at = (size_t)at,
                                              .n = (size_t)n,
                                              .m32 = m32,
                                              .v32 = v32 });
    }
    a->key = r->how.seed * 0x9e3779b97f4a7c15u;
}

static void add_f32_moments(op_run *r, mt_update *a, int n_arrays)
{
    op_scale(r, op_add(r, &a->m, "m", OP_INOUT, MT_DTYPE_F32, 1, a->n, 0), 0.01, 0);
    if (n_arrays == 1) return;
    op_buf *v = op_add(r, &a->v, "v", OP_INOUT, MT_DTYPE_F32, 1, a->n, 0);
    for (int64_t i = 0; i < a->n; i++) op_set(v, 0, i, i % 7 == 3 ? 0.0 : fabs(op_get(v, v->init, 0, i)) * 1e-4);
}

static void declare_update(op_run *r, mt_update *a, int c, const mt_optimizer *optimizer)
{
    a->t = r->how.t;
    op_buf *hi = op_add(r, &a->hi, "hi", OP_INOUT, MT_DTYPE_U16, 1, a->n, 0),
           *lo = op_add(r, &a->lo, "lo", OP_INOUT, MT_DTYPE_I16, 1, a->n, 0);
    set_halves(r, hi, lo, a->n);
    if (a->moments == MT_MOMENTS_F32)
        add_f32_moments(r, a, optimizer->n_arrays);
    else
        add_small_moments(r, a, optimizer->n_arrays);
    op_buf *g = op_add(r, &a->g, "g", OP_INPUT, a->t, 1, a->n, 0);
    if (update_cases[c].bad) {
        op_set(g, 0, 10, INFINITY);
        op_set(g, 0, 20, 1e-38);
        op_set(g, 0, 30, 3e30);
        memcpy(hi->init + 2 * 40, &(uint16_t){ 0x7f7f }, 2);
    }
    op_buf *n_bad = op_add(r, &a->n_bad, "n_bad", OP_INOUT, MT_DTYPE_I64, 1, 1, 0);
    memcpy(n_bad->init, &(int64_t){ 5 }, 8);
    if (update_cases[c].guard)
        op_set(op_add(r, &a->guard, "guard", OP_INPUT, MT_DTYPE_F64, 1, 1, 0), 0, 0, update_cases[c].guard == 1 ? 2.5 : INFINITY);
    mt_update_step step = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 0.37, .t = 3
    };
    a->coef = optimizer->coef(&step);
    step.weight_decay = 0;
    a->coef_no_decay = optimizer->coef(&step);
}

static void declare_adamw(op_run *r, int c)
{
    ARGS(mt_adamw, update_cases[c].a);
    declare_update(r, a, c, &mt_optimizer_adamw);
}

static void declare_lion(op_run *r, int c)
{
    ARGS(mt_lion, update_cases[c].a);
    declare_update(r, a, c, &mt_optimizer_lion);
}

#define adamw_cases update_cases
#define lion_cases  update_cases
CHECKED_OP(adamw, false, true, NULL)
CHECKED_OP(lion, false, true, NULL)

static const mt_join_halves join_halves_cases[] = { { .n = 1 }, { .n = 4099 }, { .n = 131072 } };

static void declare_join_halves(op_run *r, int c)
{
    ARGS(mt_join_halves, join_halves_cases[c]);
    op_buf *hi = op_add(r, &a->hi, "hi", OP_INPUT, MT_DTYPE_U16, 1, a->n, 0),
           *lo = op_add(r, &a->lo, "lo", OP_INPUT, MT_DTYPE_I16, 1, a->n, 0);
    set_halves(r, hi, lo, a->n);
    op_add(r, &a->w, "w", OP_OUTPUT, MT_DTYPE_F32, 1, a->n, 0);
}

CHECKED_OP(join_halves, false, true, NULL)

/* -- expand ---------------------------------------------------------------------------------------- */

static const mt_packing expand_cases[] = {
    { MT_FORM_F8_E4M3, 1, 1, 128, 128, false },  { MT_FORM_F8_E4M3, 130, 392, 128, 128, false }, /* blocks that are cut off */
    { MT_FORM_F8_E4M3, 7, 37, 37, 1, false },                                                    /* a scale a row, an odd width */
    { MT_FORM_F8_E5M2, 5, 96, 96, 5, false },                                                    /* one scale */
    { MT_FORM_F8_E5M2, 9, 40, 12, 4, false }, /* blocks that end within 8 columns */
    { MT_FORM_MXFP4, 3, 32, 32, 1, false },      { MT_FORM_MXFP4, 67, 2880, 32, 1, false },
    { MT_FORM_NF4, 5, 64, 64, 1, false },        { MT_FORM_NF4, 13, 384, 128, 1, false },
    { MT_FORM_NF4_NESTED, 3, 64, 64, 1, false }, { MT_FORM_NF4_NESTED, 261, 192, 64, 1, false },
    { MT_FORM_INT4, 4, 32, 32, 1, false },       { MT_FORM_INT4, 33, 264, 128, 1, false }, /* a last group that is shorter */
    { MT_FORM_INT4, 11, 256, 64, 1, true },      { MT_FORM_Q8_0, 1, 32, 32, 1, false },
    { MT_FORM_Q8_0, 51, 352, 32, 1, false },     { MT_FORM_Q4_K, 1, 256, 256, 1, false },
    { MT_FORM_Q4_K, 37, 768, 256, 1, false },
};

static uint32_t random_bits(const op_run *r, uint64_t i) { return (uint32_t)mt_rng_below(r->how.seed, 91, i, UINT64_C(1) << 32); }

/* Scales of the usual sizes, also negative ones, small ones and zero. */
static uint16_t random_half(const op_run *r, uint64_t i)
{
    const uint32_t bits = random_bits(r, i);
    return bits % 17 == 0 ? 0 : (uint16_t)((bits & 0x8000) | (bits >> 16 & 0x3fff));
}

static void fill_floats(const op_run *r, unsigned char *to, size_t bytes, uint64_t stream)
{
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        const float x = mt_rng_normal(r->how.seed, stream, i) * ldexpf(1, (int)(random_bits(r, i) % 20) - 15);
        memcpy(to + i * sizeof x, &x, sizeof x);
    }
}

/* All codes are numbers in every form but E4M3's NaN and E5M2's top exponent. */
static uint8_t number_code(mt_form form, uint32_t bits)
{
    uint8_t code = (uint8_t)bits;
    if (form == MT_FORM_F8_E4M3 && (code & 127) == 127) code ^= 1;
    if (form == MT_FORM_F8_E5M2 && (code & 124) == 124) code ^= 64;
    return code;
}

static void fill_blocks(const op_run *r, const mt_packing *p, unsigned char *to)
{
    const bool q8 = p->form == MT_FORM_Q8_0;
    const size_t each = q8 ? MT_Q8_0_BYTES : MT_Q4_K_BYTES, n = (size_t)(p->rows * p->columns / (q8 ? 32 : 256));
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < (q8 ? 1 : 2); k++) {
            const uint16_t h = random_half(r, 2 * i + (size_t)k);
            memcpy(to + i * each + 2 * (size_t)k, &h, sizeof h);
        }
}

static void fill_packed(const op_run *r, const mt_packing *p, unsigned char *to)
{
    const mt_packed_places at = mt_packing_places(p);
    for (size_t i = 0; i < at.bytes; i++) to[i] = number_code(p->form, random_bits(r, i));
    for (size_t i = at.scales; p->form == MT_FORM_MXFP4 && i < at.more; i++) to[i] = (uint8_t)(random_bits(r, i) % 250);
    if (p->form == MT_FORM_F8_E4M3 || p->form == MT_FORM_F8_E5M2 || p->form == MT_FORM_NF4)
        fill_floats(r, to + at.scales, at.more - at.scales, 90);
    if (p->form == MT_FORM_NF4_NESTED) {
        fill_floats(r, to + at.more, at.extra - at.more, 89);
        fill_floats(r, to + at.extra, offsetof(mt_form_nested, first), 88);
        memcpy(to + at.extra + offsetof(mt_form_nested, first), &(int32_t){ 200 }, sizeof(int32_t));
    }
    if (p->form == MT_FORM_Q8_0 || p->form == MT_FORM_Q4_K) fill_blocks(r, p, to);
    if (p->form != MT_FORM_INT4) return;
    for (size_t i = 0; i < (size_t)(p->rows * at.blocks); i++) {
        const uint16_t h = random_half(r, i);
        memcpy(to + at.scales + 2 * i, &h, sizeof h);
        to[at.more + i] = (uint8_t)(random_bits(r, i) % 17);
    }
    for (int64_t i = 0; p->ordered && i < p->columns; i++) {
        const int32_t block = (int32_t)(random_bits(r, (uint64_t)i) % (uint32_t)at.blocks);
        memcpy(to + at.extra + (size_t)i * sizeof block, &block, sizeof block);
    }
}

static void declare_expand(op_run *r, int c)
{
    ARGS(mt_expand, ((mt_expand){ .t = r->how.t, .as = expand_cases[c] }));
    assert(mt_packing_is_possible(&a->as));
    op_buf *packed = op_add(r, &a->packed, "packed", OP_INPUT, MT_DTYPE_U8, 1, (int64_t)mt_packing_bytes(&a->as), 0);
    fill_packed(r, &a->as, packed->init);
    op_add(r, &a->w, "w", OP_OUTPUT, a->t, a->as.rows, a->as.columns, 0);
}

CHECKED_OP(expand, false, true, NULL)

/* -- conv, delta_rule and the same for rows that continue sequences ------------------------------------ */

enum { MOST_DOCS = 9 };

/* The documents of a list of lengths: up to the first 0; below 0: the lengths so far come that many times. */
typedef struct doc_list {
    int64_t N, n_docs, n_listed;
    const int64_t *listed;
} doc_list;

static doc_list docs_of(const int64_t *docs)
{
    doc_list l = { .listed = docs };
    while (l.n_listed < MOST_DOCS - 1 && docs[l.n_listed] > 0) l.N += docs[l.n_listed++];
    int64_t times = docs[l.n_listed] < 0 ? -docs[l.n_listed] : 1;
    l.N *= times;
    l.n_docs = l.n_listed * times;
    return l;
}

static void add_docs(op_run *r, const void *field, const doc_list *l)
{
    op_buf *starts = add_ints(r, field, "doc_start", l->n_docs + 1);
    int64_t row = 0;
    for (int64_t d = 0; d < l->n_docs; row += l->listed[d++ % l->n_listed]) op_set(starts, 0, d, (double)row);
    op_set(starts, 0, l->n_docs, (double)row);
}

static const struct {
    mt_conv a;
    int64_t gap; /* leading dimensions: elements past the packed row */
    bool frozen;
    int64_t docs[MOST_DOCS];
} conv_cases[] = {
    { { .C = 1, .width = 2 }, 0, false, { 1 } },
    { { .C = 3, .width = 4 }, 0, false, { 5, 1, 2, 7 } },
    { { .C = 40, .width = 4 }, 8, false, { 1, 63, 64, 65, 130 } },
    { { .C = 72, .width = 3 }, 0, false, { 130, 1, 1, 1, 33 } },
    { { .C = 33, .width = 8 }, 5, false, { 9, 3, 70, 8 } },
    { { .C = 264, .width = 4 }, 0, true, { 67 } },
    { { .C = 16, .width = 5 }, 0, false, { 1, 2, 3, 4, 5, -30 } },
    { { .C = 24, .width = 6 }, 0, false, { 1, -150 } },
    { { .C = 130, .width = 7 }, 2, false, { 40, 41 } },
    { { .C = 8, .width = 4 }, 0, false, { 0 } },
};

static void declare_conv(op_run *r, int c)
{
    ARGS(mt_conv, conv_cases[c].a);
    doc_list docs = docs_of(conv_cases[c].docs);
    a->t = r->how.t;
    a->N = docs.N;
    a->n_docs = docs.n_docs;
    a->ldx = a->C + conv_cases[c].gap;
    a->ldy = a->C + 2 * conv_cases[c].gap;
    a->ld_dx = a->C + 3 * conv_cases[c].gap;
    add_docs(r, &a->doc_start, &docs);
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->N, a->C, a->ldx);
    op_buf *w = op_add(r, &a->w, "w", OP_INPUT, a->t, a->C, a->width, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, a->C, a->ldy);
    op_buf *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, a->C, a->ldy);
    op_buf *dx = op_add(r, &a->dx, "dx", OP_OUTPUT, a->t, a->N, a->C, a->ld_dx);
    links(r, y, dy);
    grows(r, x, dx);
    if (!conv_cases[c].frozen) grows(r, w, op_add(r, &a->dw, "dw", OP_SUM, MT_DTYPE_F32, a->C, a->width, 0));
    add_scratch(r, &a->scratch, mt_conv_scratch(a));
}

CHECKED_OP(conv, true, false, NULL)

/* log_decay: the mean of A_log; 0 makes a row keep about half of the state, 4 next to nothing, -10 all but 3e-5. */
static const struct {
    mt_delta_rule a;
    int64_t gap;
    double log_decay;
    bool frozen;
    int64_t docs[MOST_DOCS];
} delta_rule_cases[] = {
    { { .H = 1, .K = 1, .Dk = 1, .Dv = 1 }, 0, 0, false, { 1 } },
    { { .H = 2, .K = 1, .Dk = 3, .Dv = 5 }, 0, 0, false, { 5, 1, 7 } },
    { { .H = 1, .K = 1, .Dk = 16, .Dv = 16 }, 0, -3, false, { 1, 63, 64, 65, 130 } },
    { { .H = 2, .K = 2, .Dk = 8, .Dv = 24 }, 8, -2, false, { 200 } },
    { { .H = 6, .K = 2, .Dk = 24, .Dv = 40 }, 8, -1, false, { 65, 1, 2, 64 } },
    { { .H = 4, .K = 2, .Dk = 64, .Dv = 64 }, 0, -3, false, { 70, 130, 1 } },
    { { .H = 2, .K = 1, .Dk = 128, .Dv = 128 }, 0, -4, false, { 150, 33 } },
    { { .H = 1, .K = 1, .Dk = 96, .Dv = 128 }, 0, -3, false, { 64, 128 } },
    { { .H = 3, .K = 3, .Dk = 33, .Dv = 17 }, 3, -3, false, { 100, 66 } },
    { { .H = 2, .K = 2, .Dk = 32, .Dv = 32 }, 0, 4, false, { 130, 20 } },
    { { .H = 2, .K = 1, .Dk = 32, .Dv = 32 }, 0, -10, false, { 130, 64 } },
    { { .H = 2, .K = 2, .Dk = 16, .Dv = 8 }, 0, -2, false, { 1, 2, 3, 66, -6 } },
    { { .H = 2, .K = 2, .Dk = 16, .Dv = 8 }, 0, 0, false, { 1, -150 } },
    { { .H = 3, .K = 1, .Dk = 128, .Dv = 64 }, 0, -3, true, { 90, 65 } },
    { { .H = 2, .K = 1, .Dk = 8, .Dv = 144 }, 0, -3, false, { 90, 65 } }, /* wider than the tensor-core kernels go */
    { { .H = 2, .K = 2, .Dk = 16, .Dv = 16 }, 0, 0, false, { 0 } },
};

static void grow_gates(op_run *r, mt_delta_rule *a)
{
    op_buf *dA_log = op_add(r, &a->dA_log, "dA_log", OP_SUM, MT_DTYPE_F32, 1, a->H, 0),
           *ddt_bias = op_add(r, &a->ddt_bias, "ddt_bias", OP_SUM, MT_DTYPE_F32, 1, a->H, 0);
    grows(r, op_named(r, "A_log"), dA_log);
    grows(r, op_named(r, "dt_bias"), ddt_bias);
    /* Sums of many rows that cancel; with little decay below what differences of the output show. */
    dA_log->floor = ddt_bias->floor = 1.0;
}

/* Shapes, and what forward reads and writes. */
static void declare_delta_forward(op_run *r, mt_delta_rule *a, const doc_list *docs, int64_t gap, double log_decay)
{
    a->t = r->how.t;
    a->N = docs->N;
    a->n_docs = docs->n_docs;
    a->ldq = a->ldk = a->K * a->Dk + gap;
    a->ldv = a->H * a->Dv + gap;
    a->ldo = a->H * a->Dv + 2 * gap;
    a->ld_ab = a->H + gap;
    a->ld_d = a->ldo + a->ldk;
    a->ld_dab = a->H + 3 * gap;
    add_docs(r, &a->doc_start, docs);
    op_add(r, &a->q, "q", OP_INPUT, a->t, a->N, a->K * a->Dk, a->ldq);
    op_add(r, &a->k, "k", OP_INPUT, a->t, a->N, a->K * a->Dk, a->ldk);
    op_add(r, &a->v, "v", OP_INPUT, a->t, a->N, a->H * a->Dv, a->ldv);
    op_add(r, &a->a, "a", OP_INPUT, a->t, a->N, a->H, a->ld_ab);
    op_add(r, &a->b, "b", OP_INPUT, a->t, a->N, a->H, a->ld_ab);
    op_scale(r, op_add(r, &a->A_log, "A_log", OP_INPUT, MT_DTYPE_F32, 1, a->H, 0), 0.5, log_decay);
    op_add(r, &a->dt_bias, "dt_bias", OP_INPUT, MT_DTYPE_F32, 1, a->H, 0);
    op_add(r, &a->o, "o", OP_OUTPUT, a->t, a->N, a->H * a->Dv, a->ldo);
}

static void declare_delta_rule(op_run *r, int c)
{
    ARGS(mt_delta_rule, delta_rule_cases[c].a);
    doc_list docs = docs_of(delta_rule_cases[c].docs);
    declare_delta_forward(r, a, &docs, delta_rule_cases[c].gap, delta_rule_cases[c].log_decay);
    op_buf *d_o = op_add(r, &a->d_o, "d_o", OP_INPUT, a->t, a->N, a->H * a->Dv, a->ldo);
    op_buf *dq = op_add(r, &a->dq, "dq", OP_OUTPUT, a->t, a->N, a->K * a->Dk, a->ld_d);
    op_buf *dk = op_add(r, &a->dk, "dk", OP_OUTPUT, a->t, a->N, a->K * a->Dk, a->ld_d);
    op_buf *dv = op_add(r, &a->dv, "dv", OP_OUTPUT, a->t, a->N, a->H * a->Dv, a->ld_d);
    op_buf *da = op_add(r, &a->da, "da", OP_OUTPUT, a->t, a->N, a->H, a->ld_dab);
    op_buf *db = op_add(r, &a->db, "db", OP_OUTPUT, a->t, a->N, a->H, a->ld_dab);
    links(r, op_named(r, "o"), d_o);
    grows(r, op_named(r, "q"), dq);
    grows(r, op_named(r, "k"), dk);
    grows(r, op_named(r, "v"), dv);
    grows(r, op_named(r, "a"), da);
    grows(r, op_named(r, "b"), db);
    if (!delta_rule_cases[c].frozen) grow_gates(r, a);
    /* Gradients along the decay cancel: with documents of one row there are none at all, and 60 rows back next to none. */
    dq->floor = dk->floor = a->Dk == 1 ? 0.1 : 0.01;
    da->floor = 0.02;
    add_scratch(r, &a->scratch, mt_delta_rule_scratch(a));
}

CHECKED_OP(delta_rule, true, false, NULL)

/* Sequences with `past` earlier rows and `fresh` new ones; their slots are in the opposite order. */
typedef struct past_case {
    int64_t past[MOST_DOCS], fresh[MOST_DOCS];
} past_case;

static void add_past(op_run *r, const void *pos_field, const void *slot_field, const past_case *p, const doc_list *l)
{
    op_buf *pos = add_ints(r, pos_field, "pos", l->N), *slot = add_ints(r, slot_field, "slot", l->n_docs);
    for (int64_t d = 0, row = 0; d < l->n_docs; d++) {
        for (int64_t i = 0; i < l->listed[d]; i++, row++) op_set(pos, 0, row, (double)(p->past[d] + i));
        op_set(slot, 0, d, (double)(l->n_docs - 1 - d));
    }
}

static const struct {
    mt_conv c;
    int64_t gap;
    past_case rows;
} cache_conv_cases[] = {
    { { .C = 1, .width = 2 }, 0, { { 0 }, { 1 } } },
    { { .C = 5, .width = 4 }, 3, { { 0, 1, 2, 3, 70 }, { 1, 1, 1, 1, 1 } } },
    { { .C = 40, .width = 4 }, 8, { { 0, 9, 1, 2 }, { 5, 2, 2, 130 } } },
    { { .C = 264, .width = 3 }, 0, { { 4, 0 }, { 1, 65 } } },
    { { .C = 33, .width = 8 }, 0, { { 3, 100, 0 }, { 2, 20, 3 } } },
};

static void declare_cache_conv(op_run *r, int c)
{
    ARGS(mt_cache_conv, ((mt_cache_conv){ .c = cache_conv_cases[c].c }));
    doc_list docs = docs_of(cache_conv_cases[c].rows.fresh);
    a->c.t = r->how.t;
    a->c.N = docs.N;
    a->c.n_docs = docs.n_docs;
    a->c.ldx = a->c.C + cache_conv_cases[c].gap;
    a->c.ldy = a->c.C + 2 * cache_conv_cases[c].gap;
    add_docs(r, &a->c.doc_start, &docs);
    add_past(r, &a->pos, &a->slot, &cache_conv_cases[c].rows, &docs);
    op_add(r, &a->c.x, "x", OP_INPUT, a->c.t, a->c.N, a->c.C, a->c.ldx);
    op_add(r, &a->c.w, "w", OP_INPUT, a->c.t, a->c.C, a->c.width, 0);
    op_add(r, &a->c.y, "y", OP_OUTPUT, a->c.t, a->c.N, a->c.C, a->c.ldy);
    op_add(r, &a->state, "state", OP_INOUT, a->c.t, docs.n_docs * (a->c.width - 1), a->c.C, 0);
}

CHECKED_OP(cache_conv, false, false, NULL)

static const struct {
    mt_delta_rule d;
    int64_t gap;
    past_case rows;
} cache_delta_cases[] = {
    { { .H = 1, .K = 1, .Dk = 1, .Dv = 1 }, 0, { { 0 }, { 1 } } },
    { { .H = 2, .K = 1, .Dk = 3, .Dv = 5 }, 0, { { 4, 0, 1 }, { 1, 5, 2 } } },
    { { .H = 4, .K = 2, .Dk = 128, .Dv = 128 }, 0, { { 200, 0, 64, 63 }, { 1, 1, 1, 1 } } },
    { { .H = 2, .K = 2, .Dk = 24, .Dv = 40 }, 8, { { 9, 0 }, { 66, 130 } } },
    { { .H = 3, .K = 1, .Dk = 64, .Dv = 33 }, 1, { { 1, 1, 0 }, { 3, 1, 17 } } },
    { { .H = 1, .K = 1, .Dk = 256, .Dv = 72 }, 0, { { 1, 0 }, { 3, 9 } } },
};

static void declare_cache_delta(op_run *r, int c)
{
    ARGS(mt_cache_delta, ((mt_cache_delta){ .d = cache_delta_cases[c].d }));
    doc_list docs = docs_of(cache_delta_cases[c].rows.fresh);
    declare_delta_forward(r, &a->d, &docs, cache_delta_cases[c].gap, -2);
    add_past(r, &a->pos, &a->slot, &cache_delta_cases[c].rows, &docs);
    op_add(r, &a->state, "state", OP_INOUT, MT_DTYPE_F32, docs.n_docs * a->d.H * a->d.Dk, a->d.Dv, 0);
}

CHECKED_OP(cache_delta, false, false, NULL)

/* -- gated_norm and gate --------------------------------------------------------------------------- */

static const struct {
    mt_gated_norm a;
    int64_t gap;       /* x, y and the gate have this many elements past the packed row */
    bool frozen, kept; /* y was kept, so backward does not write it */
} gated_norm_cases[] = {
    { { .N = 1, .H = 1, .D = 1, .eps = 0.5f }, 0, false, false },
    { { .N = 7, .H = 3, .D = 5, .eps = 1e-5f }, 3, false, false },
    { { .N = 65, .H = 4, .D = 128, .eps = 1e-6f }, 0, false, false },
    { { .N = 33, .H = 2, .D = 128, .eps = 1e-6f }, 64, true, false },
    { { .N = 130, .H = 3, .D = 40, .eps = 1e-6f }, 8, false, true },
    { { .N = 9, .H = 1, .D = 1030, .eps = 1e-6f }, 0, false, false },
    { { .N = 521, .H = 2, .D = 16, .eps = 1e-5f }, 0, false, false },
    { { .N = 0, .H = 2, .D = 16, .eps = 1e-5f }, 0, false, false },
};

static void declare_gated_norm(op_run *r, int c)
{
    ARGS(mt_gated_norm, gated_norm_cases[c].a);
    int64_t width = a->H * a->D;
    a->t = r->how.t;
    a->ldx = a->ldy = a->ld_gate = a->ld_dx = a->ld_dgate = width + gated_norm_cases[c].gap;
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->N, width, a->ldx);
    op_buf *gate = op_add(r, &a->gate, "gate", OP_INPUT, a->t, a->N, width, a->ld_gate);
    op_buf *w = op_add(r, &a->w, "w", OP_INPUT, a->t, 1, a->D, 0);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, width, a->ldy);
    op_buf *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, width, a->ldy);
    op_buf *dx = op_add(r, &a->dx, "dx", OP_OUTPUT, a->t, a->N, width, a->ld_dx);
    op_buf *dgate = op_add(r, &a->dgate, "dgate", OP_OUTPUT, a->t, a->N, width, a->ld_dgate);
    links(r, y, dy);
    grows(r, x, dx);
    grows(r, gate, dgate);
    may_share(r, dx, dy);
    may_share(r, dgate, gate);
    y->phases = OP_FWD;
    if (!gated_norm_cases[c].kept) {
        op_buf *again = op_add(r, &a->y, "y_again", OP_OUTPUT, a->t, a->N, width, a->ldy);
        again->phases = OP_BWD;
        may_share(r, again, x);
    }
    if (!gated_norm_cases[c].frozen) grows(r, w, op_add(r, &a->dw, "dw", OP_SUM, MT_DTYPE_F32, 1, a->D, 0));
    if (a->D == 1) dx->floor = 0.1; /* x / |x| barely moves: all cancellation */
    add_scratch(r, &a->scratch, mt_gated_norm_scratch(a));
}

CHECKED_OP(gated_norm, true, false, check_again)

static const struct {
    mt_gate a;
    int64_t gap;
    bool kept;
} gate_cases[] = {
    { { .N = 1, .D = 1 }, 0, false },    { { .N = 13, .D = 37 }, 3, false }, { { .N = 70, .D = 264 }, 8, false },
    { { .N = 33, .D = 2048 }, 0, true }, { { .N = 0, .D = 64 }, 0, false },
};

static void declare_gate(op_run *r, int c)
{
    ARGS(mt_gate, gate_cases[c].a);
    a->t = r->how.t;
    a->ldx = a->ldy = a->ld_gate = a->ld_dx = a->ld_dgate = a->D + gate_cases[c].gap;
    op_buf *x = op_add(r, &a->x, "x", OP_INPUT, a->t, a->N, a->D, a->ldx);
    op_buf *gate = op_add(r, &a->gate, "gate", OP_INPUT, a->t, a->N, a->D, a->ld_gate);
    op_buf *y = op_add(r, &a->y, "y", OP_OUTPUT, a->t, a->N, a->D, a->ldy);
    op_buf *dy = op_add(r, &a->dy, "dy", OP_INPUT, a->t, a->N, a->D, a->ldy);
    op_buf *dx = op_add(r, &a->dx, "dx", OP_OUTPUT, a->t, a->N, a->D, a->ld_dx);
    op_buf *dgate = op_add(r, &a->dgate, "dgate", OP_OUTPUT, a->t, a->N, a->D, a->ld_dgate);
    links(r, y, dy);
    grows(r, x, dx);
    grows(r, gate, dgate);
    may_share(r, dx, dy);
    may_share(r, dgate, gate);
    y->phases = OP_FWD;
    if (!gate_cases[c].kept) {
        op_buf *again = op_add(r, &a->y, "y_again", OP_OUTPUT, a->t, a->N, a->D, a->ldy);
        again->phases = OP_BWD;
        may_share(r, again, x);
    }
}

CHECKED_OP(gate, true, false, check_again)

const op_spec *const op_specs[OP_COUNT] = {
#define MT_OP(n)  [OP_ID_##n] = &spec_##n,
#define MT_OP1(n) [OP_ID_##n] = &spec_##n,
#include "ops/ops.def"
};

/* -- bound ----------------------------------------------------------------------------------------- */

static const mt_bound bound_cases[] = {
    { .N = 1, .D = 1, .limit = 0.75f },
    { .N = 13, .D = 37, .ldx = 40, .ld_dx = 41, .limit = 0.75f },
    { .N = 70, .D = 264, .ldx = 272, .ld_dx = 264, .limit = 1.3f },
    { .N = 0, .D = 64, .limit = 1 },
};

static void declare_bound(op_run *r, int c)
{
    ARGS(mt_bound, bound_cases[c]);
    a->t = r->how.t;
    needs(r, true, MT_TRAIT(BOUND));
    if (!a->ldx) a->ldx = a->ld_dx = a->D;
    op_buf *x = op_add(r, &a->x, "x", OP_INOUT, a->t, a->N, a->D, a->ldx);
    op_buf *dx = op_add(r, &a->dx, "dx", OP_INOUT, a->t, a->N, a->D, a->ld_dx);
    for (int64_t i = 0; i < a->N; i++)
        for (int64_t d = 0; d < a->D; d++) /* differences across the corner say nothing */
            if (fabs(fabs(op_get(x, x->init, i, d)) - (double)a->limit) < 0.0625) op_set(x, i, d, d % 2 ? 2.0 : -0.25);
    links(r, x, dx);
    grows(r, x, dx);
}

static const char *check_bound(const op_run *r)
{
    const mt_bound *a = &bound_cases[r->case_index];
    const op_buf *x = op_named((op_run *)(uintptr_t)r, "x");
    for (int64_t i = 0; i < a->N; i++)
        for (int64_t d = 0; d < a->D; d++)
            if (fabs(op_get(x, x->result, i, d)) > (double)a->limit * 1.01) return "a number is beyond the limit";
    return NULL;
}

CHECKED_OP(bound, true, false, check_bound)
