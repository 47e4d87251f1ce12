/* attention_cudnn.c - the two graphs, and the plans made of them.
 *
 *     S = scale q k', masked;  m = max S;  e = exp(S - m);  z = sum e;  lse = m + log z;  o = (e / z) v
 *     delta = sum(o * do);  P = exp(S - lse);  dv = P' do;  dS = P (do v' - delta) scale;  dk = dS' q;  dq = dS k
 *     under a soft cap:  t = tanh(scale q k' / cap);  S = cap t, masked;  dS also times 1 - t^2
 *
 * cuDNN knows this pattern node by node and fuses it; the order of nodes, their types and the virtual tensors are part of the
 * pattern.  With a causal mask no mask for the ends of documents is needed: the lengths bound the products.  Gradients of grouped
 * heads are made for every query head (dkf, dvf) and summed.  The repeatable backward keeps dS in the workspace and makes dq of
 * it by one more product; the fast one adds to an fp32 accumulator with atomics.
 *
 * If dS does not fit, a launch makes a part of it (mt_cudnn_size).  A few heads: one of each group, at their places in memory, so
 * that cuDNN sees no groups.  A few keys: with the queries from the first of them on, so that the mask does not change; their dq
 * is a summand. */
#include "ops/attention_cudnn.h"

#include "base/mem.h"
#include "ops/cudnn_graph.h"

#include <math.h>
#include <string.h>

/* clang-format off */
enum tensor_id {
    ID_NONE, /* virtual */
    ID_Q, ID_K, ID_V, ID_O, ID_LSE, ID_DO, ID_DQ, ID_DK, ID_DV, ID_DELTA, ID_ACC, ID_DKF, ID_DVF,
    ID_LEN_Q, ID_LEN_KV,
    ID_SCALE, ID_NEVER, ID_ONE, ID_WINDOW, ID_CAP, ID_TO_CAP, ID_LARGE,
    ID_OFFSETS, /* and the MT_OFFSETS - 1 after it */
};
/* clang-format on */

/* The shape for which a plan is made. */
typedef struct plan_key {
    int64_t backward, way; /* way: 0 in forward */
    int64_t docs, longest, keys, H, K, Dh, Dv, ldq, ldk, ldv, ldo, ld_lse, ld_dkv, ld_dq, windowed, capped;
    int64_t apart, dq_apart; /* a launch's query heads, in heads of memory: 1, or H / K where it has one of each group; of dq */
} plan_key;

enum { MAX_PLANS = 256, MOST_KEYS = 2 * MT_CUDNN_SIZES + 1, GRADIENTS_FROM = 91900 };
_Static_assert((int)MOST_KEYS <= (int)MAX_PLANS, "room for all of a shape");

typedef struct made_plan {
    plan_key key;
    mt_cudnn_plan *plan; /* NULL: cuDNN has no suitable one, and is not tried again */
    bool lacks_memory;   /* or had no memory for it */
} made_plan;

struct mt_cudnn_attention {
    mt_cudnn *lib;
    plan_key expected; /* the shape whose plans were last made ahead of time */
    mt_err refused;    /* why the first plan that cuDNN does not have could not be made */
    int n_plans;
    made_plan plans[MAX_PLANS];
};

/* Bytes of workspace that mt_cudnn_layout has for launches like this: no plan may use more. */
static size_t counted(const plan_key *k)
{
    bool squares = k->backward && k->way == MT_ATTENTION_CUDNN;
    return MT_CUDNN_SMALL_WORKSPACE + (squares ? (size_t)(k->docs * k->H) * (size_t)k->longest * (size_t)k->keys * 2 : 0);
}

/* -- tensors --------------------------------------------------------------------------------------- */

typedef struct builder {
    mt_cudnn_graph *g;
    const plan_key *k;
    mt_node len_q, len_kv, scale, never, one, offsets[MT_OFFSETS];
    mt_node t; /* of a soft cap */
} builder;

static mt_node offsets(builder *b, mt_cudnn_offset which)
{
    if (!b->offsets[which])
        b->offsets[which] = mt_cudnn_tensor(b->g, &(mt_cudnn_tensor_spec){ .id = ID_OFFSETS + which,
                                                                           .type = CUDNN_DATA_INT64,
                                                                           .dims = { b->k->docs + 1, 1, 1, 1 },
                                                                           .strides = { 1, 1, 1, 1 } });
    return b->offsets[which];
}

/* [docs, heads, n, width] of rows ld apart. */
static mt_node rows_of(builder *b, int64_t id, cudnnDataType_t type, int64_t heads, int64_t apart, int64_t n, int64_t width,
                       int64_t ld, mt_cudnn_offset at)
{
    return mt_cudnn_tensor(b->g, &(mt_cudnn_tensor_spec){ .id = id,
                                                          .type = type,
                                                          .dims = { b->k->docs, heads, n, width },
                                                          .strides = { n * ld, apart * width, ld, 1 },
                                                          .ragged = offsets(b, at) });
}

/* Of heads `width` wide: Dh, or Dv of outputs and values. */
static mt_node query_rows(builder *b, int64_t id, int64_t width, int64_t ld, mt_cudnn_offset at)
{
    return rows_of(b, id, CUDNN_DATA_BFLOAT16, b->k->H, b->k->apart, b->k->longest, width, ld, at);
}

static mt_node key_rows(builder *b, int64_t id, int64_t width, int64_t ld, mt_cudnn_offset at)
{
    return rows_of(b, id, CUDNN_DATA_BFLOAT16, b->k->K, 1, b->k->keys, width, ld, at);
}
/* As keys, for every query head. */
static mt_node full_rows(builder *b, int64_t id, int64_t width, int64_t ld, mt_cudnn_offset at)
{
    return rows_of(b, id, CUDNN_DATA_BFLOAT16, b->k->H, b->k->apart, b->k->keys, width, ld, at);
}

/* A number for each row and query head, from any row and head on. */
static mt_node numbers(builder *b, int64_t id)
{
    int64_t S = b->k->longest, ld = b->k->ld_lse;
    return mt_cudnn_tensor(b->g, &(mt_cudnn_tensor_spec){ .id = id,
                                                          .type = CUDNN_DATA_FLOAT,
                                                          .dims = { b->k->docs, b->k->H, S, 1 },
                                                          .strides = { S * ld, b->k->apart, ld, 1 },
                                                          .ragged = offsets(b, MT_OFF_LSE),
                                                          .aligned = b->k->H == ld && ld % 4 == 0 ? 16 : 4 });
}

/* Keys or values with rows as columns. */
static mt_node key_columns(builder *b, int64_t id, int64_t width, int64_t ld, mt_cudnn_offset at)
{
    int64_t n = b->k->keys;
    return mt_cudnn_tensor(b->g, &(mt_cudnn_tensor_spec){ .id = id,
                                                          .type = CUDNN_DATA_BFLOAT16,
                                                          .dims = { b->k->docs, b->k->K, width, n },
                                                          .strides = { n * ld, width, 1, ld },
                                                          .ragged = offsets(b, at) });
}

/* [docs, H, longest, keys]; turned: the same memory as [docs, H, keys, longest]. */
static mt_node square(builder *b, cudnnDataType_t type, bool turned)
{
    int64_t q = b->k->longest, k = b->k->keys, H = b->k->H;
    mt_cudnn_tensor_spec s = { .type = type, .dims = { b->k->docs, H, turned ? k : q, turned ? q : k } };
    if (turned) memcpy(s.strides, (int64_t[4]){ H * q * k, q * k, 1, k }, sizeof s.strides);
    return mt_cudnn_tensor(b->g, &s);
}

static mt_node scalar(builder *b, int64_t id)
{
    return mt_cudnn_tensor(
        b->g, &(mt_cudnn_tensor_spec){ .id = id, .type = CUDNN_DATA_FLOAT, .dims = { 1, 1, 1, 1 }, .by_value = true });
}

static mt_node lengths(builder *b, int64_t id)
{
    return mt_cudnn_tensor(b->g,
                           &(mt_cudnn_tensor_spec){
                               .id = id, .type = CUDNN_DATA_INT32, .dims = { b->k->docs, 1, 1, 1 }, .strides = { 1, 1, 1, 1 } });
}

static builder attention_cudnn_begin(mt_cudnn *lib, const plan_key *k)
{
    builder b = { .g = mt_cudnn_graph_create(lib), .k = k };
    b.len_q = lengths(&b, ID_LEN_Q);
    b.len_kv = lengths(&b, ID_LEN_KV);
    b.scale = scalar(&b, ID_SCALE);
    b.never = scalar(&b, ID_NEVER);
    b.one = scalar(&b, ID_ONE);
    return b;
}

/* -- the graphs ------------------------------------------------------------------------------------ */

static mt_node apply(builder *b, cudnnPointwiseMode_t mode, mt_node x, mt_node y)
{
    return mt_cudnn_pointwise(b->g, mode, x, y, NULL);
}

/* tanh(x / 2).  cuDNN's own is an instruction of the GPU that is up to 5e-4 off, of which a soft cap of 50 makes 0.02 of a
 * score.  Past ID_LARGE this one is 1, and the exponentials would be infinite. */
static mt_node tanh_of_half(builder *b, mt_node x)
{
    mt_node e = apply(b, CUDNN_POINTWISE_EXP, apply(b, CUDNN_POINTWISE_MIN, x, scalar(b, ID_LARGE)), NULL);
    return apply(b, CUDNN_POINTWISE_DIV, apply(b, CUDNN_POINTWISE_SUB, e, b->one), apply(b, CUDNN_POINTWISE_ADD, e, b->one));
}

static mt_node scores(builder *b, mt_node q, mt_node kt)
{
    mt_node s = square(b, CUDNN_DATA_FLOAT, false);
    mt_cudnn_matmul_to(b->g, q, kt, s, b->len_q, b->len_kv, NULL);
    if (!b->k->capped) return apply(b, CUDNN_POINTWISE_MUL, s, b->scale);
    b->t = tanh_of_half(b, apply(b, CUDNN_POINTWISE_MUL, s, scalar(b, ID_TO_CAP)));
    return apply(b, CUDNN_POINTWISE_MUL, b->t, scalar(b, ID_CAP));
}

/* Of q k', from that of scores(): ds (1 - t^2) scale. */
static mt_node gradient_of_product(builder *b, mt_node ds)
{
    if (b->k->capped)
        ds = apply(b, CUDNN_POINTWISE_SUB, ds, apply(b, CUDNN_POINTWISE_MUL, apply(b, CUDNN_POINTWISE_MUL, ds, b->t), b->t));
    return apply(b, CUDNN_POINTWISE_MUL, ds, b->scale);
}

/* Row i sees column j if i >= j, and in a window if j + window > i. */
static mt_node masked(builder *b, mt_node s)
{
    mt_node row = mt_cudnn_index(b->g, s, 2), column = mt_cudnn_index(b->g, s, 3);
    mt_node sees = mt_cudnn_pointwise_typed(b->g, CUDNN_POINTWISE_CMP_GE, row, column, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
    s = mt_cudnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, s, b->never, sees);
    if (!b->k->windowed) return s;
    row = mt_cudnn_index(b->g, s, 2);
    column = mt_cudnn_index(b->g, s, 3);
    mt_node end =
        mt_cudnn_pointwise_typed(b->g, CUDNN_POINTWISE_ADD, column, scalar(b, ID_WINDOW), CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
    sees = mt_cudnn_pointwise_typed(b->g, CUDNN_POINTWISE_CMP_GT, end, row, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
    return mt_cudnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, s, b->never, sees);
}

static mt_rc build_forward(mt_cudnn *lib, const plan_key *k, mt_cudnn_plan **out, mt_err *err)
{
    builder b = attention_cudnn_begin(lib, k);
    mt_cudnn_graph *g = b.g;
    mt_node q = query_rows(&b, ID_Q, k->Dh, k->ldq, MT_OFF_Q);
    mt_node kt = key_columns(&b, ID_K, k->Dh, k->ldk, MT_OFF_K);
    mt_node v = key_rows(&b, ID_V, k->Dv, k->ldv, MT_OFF_V);
    mt_node o = query_rows(&b, ID_O, k->Dv, k->ldo, MT_OFF_O);
    mt_node lse = numbers(&b, ID_LSE);

    mt_node s = masked(&b, scores(&b, q, kt));
    mt_node m = mt_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s);
    mt_node e = mt_cudnn_pointwise(g, CUDNN_POINTWISE_EXP, mt_cudnn_pointwise(g, CUDNN_POINTWISE_SUB, s, m, NULL), NULL, NULL);
    mt_node z = mt_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e);
    mt_cudnn_pointwise_to(g, CUDNN_POINTWISE_ADD, m, mt_cudnn_pointwise(g, CUDNN_POINTWISE_LOG, z, NULL, NULL), lse);
    mt_node p = square(&b, CUDNN_DATA_BFLOAT16, false);
    mt_cudnn_pointwise_to(g, CUDNN_POINTWISE_DIV, e, z, p);
    mt_cudnn_matmul_to(g, p, v, o, b.len_q, NULL, b.len_kv);
    return mt_cudnn_plan_create(out, g, counted(k), err);
}

/* A gradient of keys or values: (dS or P)' times rows of queries.  Grouped heads: for every query head, then summed.  cuDNN
 * derives the start of the rows of all heads from that of the summed ones, times H / K: right only if both are packed. */
static void gradient_of_kv(builder *b, mt_node square_turned, mt_node x, int64_t width, int64_t id, int64_t id_full)
{
    const plan_key *k = b->k;
    if (k->H == k->K) {
        mt_node d = full_rows(b, id, width, k->ld_dkv, MT_OFF_D);
        mt_cudnn_matmul_to(b->g, square_turned, x, d, b->len_kv, NULL, b->len_q);
        return;
    }
    mt_node d = key_rows(b, id, width, k->K * width, MT_OFF_KV);
    mt_node full = full_rows(b, id_full, width, k->H * width, MT_OFF_KV);
    mt_cudnn_matmul_to(b->g, square_turned, x, full, b->len_kv, NULL, b->len_q);
    mt_cudnn_reduce_to(b->g, CUDNN_REDUCE_TENSOR_ADD, full, d);
}

static mt_node turned(builder *b, mt_node s)
{
    mt_node t = square(b, CUDNN_DATA_BFLOAT16, true);
    mt_cudnn_reshape_to(b->g, s, t);
    return t;
}

static mt_rc build_backward(mt_cudnn *lib, const plan_key *k, mt_cudnn_plan **out, mt_err *err)
{
    builder b = attention_cudnn_begin(lib, k);
    mt_cudnn_graph *g = b.g;
    mt_node q = query_rows(&b, ID_Q, k->Dh, k->ldq, MT_OFF_Q);
    mt_node kt = key_columns(&b, ID_K, k->Dh, k->ldk, MT_OFF_K);
    mt_node vt = key_columns(&b, ID_V, k->Dv, k->ldv, MT_OFF_V);
    mt_node o = query_rows(&b, ID_O, k->Dv, k->ldo, MT_OFF_O);
    mt_node d_o = query_rows(&b, ID_DO, k->Dv, k->ldo, MT_OFF_O);
    mt_node lse = numbers(&b, ID_LSE);
    mt_node delta = numbers(&b, ID_DELTA);

    mt_node sum = mt_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, mt_cudnn_pointwise(g, CUDNN_POINTWISE_MUL, d_o, o, NULL));
    mt_cudnn_pointwise_to(g, CUDNN_POINTWISE_MUL, sum, b.one, delta);
    mt_node s = mt_cudnn_pointwise(g, CUDNN_POINTWISE_SUB, scores(&b, q, kt), lse, NULL);
    mt_node p = mt_cudnn_pointwise(g, CUDNN_POINTWISE_EXP, masked(&b, s), NULL, NULL);
    gradient_of_kv(&b, turned(&b, p), d_o, k->Dv, ID_DV, ID_DVF);

    mt_node dp = square(&b, CUDNN_DATA_FLOAT, false);
    mt_cudnn_matmul_to(g, d_o, vt, dp, b.len_q, b.len_kv, NULL);
    mt_node ds = mt_cudnn_pointwise(g, CUDNN_POINTWISE_MUL, mt_cudnn_pointwise(g, CUDNN_POINTWISE_SUB, dp, delta, NULL), p, NULL);
    ds = gradient_of_product(&b, ds);
    gradient_of_kv(&b, turned(&b, ds), q, k->Dh, ID_DK, ID_DKF);

    mt_node keys = key_rows(&b, ID_NONE, k->Dh, k->ldk, MT_OFF_K);
    mt_cudnn_reshape_to(g, kt, keys);
    mt_node dq = rows_of(&b, ID_DQ, CUDNN_DATA_BFLOAT16, k->H, k->dq_apart, k->longest, k->Dh, k->ld_dq, MT_OFF_DQ);
    if (k->way == MT_ATTENTION_CUDNN) {
        mt_cudnn_matmul_to(g, ds, keys, dq, b.len_q, NULL, b.len_kv);
    } else {
        /* As dq, or it is wrong. */
        mt_node acc = rows_of(&b, ID_ACC, CUDNN_DATA_FLOAT, k->H, k->dq_apart, k->longest, k->Dh, k->ld_dq, MT_OFF_DQ);
        mt_cudnn_matmul_to(g, ds, keys, acc, b.len_q, NULL, b.len_kv);
        mt_cudnn_pointwise_to(g, CUDNN_POINTWISE_IDENTITY, acc, NULL, dq);
    }
    return mt_cudnn_plan_create(out, g, counted(k), err);
}

/* -- plans ----------------------------------------------------------------------------------------- */

mt_rc mt_cudnn_attention_open(mt_cudnn_attention **out, const char *device, mt_err *err)
{
    *out = NULL;
    mt_cudnn_attention *c = mt_calloc(1, sizeof *c);
    if (!c) return mt_no_memory(err, "cuDNN");
    mt_rc rc = mt_cudnn_open(&c->lib, device, err);
    if (rc)
        mt_cudnn_attention_close(c);
    else
        *out = c;
    return rc;
}

void mt_cudnn_attention_close(mt_cudnn_attention *c)
{
    if (!c) return;
    while (c->n_plans) mt_cudnn_plan_free(c->plans[--c->n_plans].plan);
    mt_cudnn_close(c->lib);
    mt_free(c);
}

/* 9.14 writes gradients of keys to the places of the keys' own rows, and drops those of heads wider than 128; 9.19 is right. */
int32_t mt_cudnn_attention_head(const mt_cudnn_attention *c) { return mt_cudnn_version(c->lib) >= GRADIENTS_FROM ? 256 : 0; }

/* Does the graph mask a window?  The same for all calls of a run, however long their documents; the repeatable backward is asked
 * only where the window hides nothing. */
static bool masks_window(const mt_attention *a, bool backward, mt_attention_way way)
{
    return a->window && a->window < mt_cudnn_longest(a) && !(backward && way == MT_ATTENTION_CUDNN);
}

/* Rows of gradients of keys and values that cuDNN does not sum: at their place, or parts for each query head. */
static int64_t ld_dkv(const mt_attention *a, bool by_heads) { return by_heads && a->H != a->K ? a->H * a->Dh : a->ld_d; }

/* Rows of gradients of queries: where mt_cudnn_ld_dq says, or packed, of a piece of the keys. */
static int64_t ld_dq(const mt_attention *a, mt_attention_way way, mt_cudnn_size size)
{
    return size.keys == size.longest ? mt_cudnn_ld_dq(a, way) : size.heads * a->Dh;
}

static plan_key key_of(const mt_attention *a, mt_cudnn_size size, bool backward, mt_attention_way way)
{
    bool by_heads = size.heads != a->H;
    return (plan_key){ .backward = backward,
                       .way = backward ? (int64_t)way : 0,
                       .docs = size.docs,
                       .longest = size.longest,
                       .keys = size.keys,
                       .H = size.heads,
                       .K = by_heads ? size.heads : a->K,
                       .Dh = a->Dh,
                       .Dv = mt_value_width(a->Dh, a->Dv),
                       .ldq = a->ldq,
                       .ldk = a->ldk,
                       .ldv = a->ldv,
                       .ldo = a->ldo,
                       .ld_lse = a->H,
                       .ld_dkv = backward ? ld_dkv(a, by_heads) : 0,
                       .ld_dq = backward ? ld_dq(a, way, size) : 0,
                       .windowed = masks_window(a, backward, way),
                       .capped = a->softcap != 0,
                       .apart = by_heads ? a->H / a->K : 1,
                       .dq_apart = by_heads && size.keys == size.longest ? a->H / a->K : 1 };
}

static const made_plan *attention_cudnn_find(const mt_cudnn_attention *c, const plan_key *key)
{
    for (int i = 0; i < c->n_plans; i++)
        if (memcmp(&c->plans[i].key, key, sizeof *key) == 0) return &c->plans[i];
    return NULL;
}

static void add_plan(mt_cudnn_attention *c, const plan_key *key)
{
    mt_err why;
    made_plan *made = &c->plans[c->n_plans++];
    made->key = *key;
    mt_rc rc = (key->backward ? build_backward : build_forward)(c->lib, key, &made->plan, &why);
    made->lacks_memory = rc == MT_ENOMEM;
    if (rc && (!c->refused.rc || made->lacks_memory)) c->refused = why;
}

/* Whatever calls of this shape may come to want in a run, however long their documents: kernels are compiled in the first step,
 * or never. */
static int keys_of(const mt_attention *a, bool backward, plan_key out[MOST_KEYS])
{
    static const mt_attention_way ways[] = { MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST };
    mt_cudnn_size sizes[MT_CUDNN_SIZES];
    int n_keys = 0;
    if (!a->use.docs && !a->use.longest) return 0; /* a call by itself */
    for (int w = 0; w < (backward ? 2 : 1); w++) {
        if (backward && !(a->use.ways >> ways[w] & 1)) continue;
        for (int i = 0, n = mt_cudnn_sizes(a, backward && ways[w] == MT_ATTENTION_CUDNN, sizes); i < n; i++) {
            mt_attention like = *a;
            like.longest = sizes[i].longest;
            mt_attention_way chosen = backward ? mt_attention_choose(&like, true) : MT_ATTENTION_CUDNN;
            /* In parcels, even if it would fit alone. */
            bool beside_longer = a->use.parts && ways[w] == MT_ATTENTION_CUDNN && chosen != MT_ATTENTION_CUDNN_FAST;
            if (chosen == ways[w] || beside_longer) out[n_keys++] = key_of(a, sizes[i], backward, ways[w]);
        }
    }
    return n_keys;
}

/* For n more.  Those of another run go, when their last work is done; this run's come back. */
static void make_room(mt_cudnn_attention *c, int n)
{
    if (c->n_plans + n <= MAX_PLANS) return;
    (void)cudaDeviceSynchronize();
    while (c->n_plans) mt_cudnn_plan_free(c->plans[--c->n_plans].plan);
    c->expected = (plan_key){ 0 };
}

static void add_plans(mt_cudnn_attention *c, const plan_key *keys, int n)
{
    make_room(c, n);
    for (int i = 0; i < n; i++)
        if (!attention_cudnn_find(c, &keys[i])) add_plan(c, &keys[i]);
}

void mt_cudnn_attention_expect(mt_cudnn_attention *c, const mt_attention *a)
{
    plan_key keys[MOST_KEYS],
        shape = key_of(a, (mt_cudnn_size){ a->use.docs, a->use.longest, a->H, a->use.longest }, true, MT_ATTENTION_CUDNN);
    if (memcmp(&shape, &c->expected, sizeof shape) == 0) return;
    add_plans(c, keys, keys_of(a, true, keys));
    c->expected = shape; /* not before: making room forgets it */
}

int mt_cudnn_attention_plans(const mt_cudnn_attention *c) { return c->n_plans; }

/* The plan of this call; MT_EUNSUPPORTED: there is none.  A new shape gets all its plans, so that later calls find theirs. */
static mt_rc plan_for(mt_cudnn_attention *c, const mt_attention *a, const mt_cudnn_layout *l, bool backward, mt_attention_way way,
                      mt_cudnn_plan **out, mt_err *err)
{
    plan_key keys[MOST_KEYS], wanted = key_of(a, l->size, backward, way);
    const made_plan *made = attention_cudnn_find(c, &wanted);
    if (!made) {
        int n = keys_of(a, backward, keys);
        keys[n++] = wanted;
        add_plans(c, keys, n);
        made = attention_cudnn_find(c, &wanted);
    }
    *out = made->plan;
    /* Another kernel would give other bits, and other lanes may have had the memory. */
    if (made->lacks_memory) return mt_fail(err, MT_ENOMEM, "%s; leave the GPU and the host more memory", c->refused.msg);
    if (!made->plan) return mt_fail(err, MT_EUNSUPPORTED, "%s", c->refused.msg);
    if (mt_cudnn_plan_workspace(made->plan) <= l->workspace_bytes) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "cuDNN needs more workspace than was planned"); /* counted() is wrong */
}

mt_rc mt_cudnn_attention_prepare(mt_cudnn_attention *c, const mt_attention *a, bool backward, mt_attention_way way,
                                 size_t *workspace, mt_err *err)
{
    mt_cudnn_layout l = mt_cudnn_layout_of(a, way, backward);
    mt_cudnn_plan *plan;
    *workspace = 0;
    MT_TRY(plan_for(c, a, &l, backward, way, &plan, err));
    *workspace = mt_cudnn_plan_workspace(plan);
    return MT_OK;
}

/* -- running --------------------------------------------------------------------------------------- */

void mt_cudnn_offset_lds(const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, int64_t ld[MT_OFFSETS])
{
    const int64_t all[MT_OFFSETS] = { [MT_OFF_Q] = a->ldq,
                                      [MT_OFF_K] = a->ldk,
                                      [MT_OFF_V] = a->ldv,
                                      [MT_OFF_O] = a->ldo,
                                      [MT_OFF_LSE] = a->H,
                                      [MT_OFF_D] = ld_dkv(a, l->size.heads != a->H),
                                      [MT_OFF_DQ] = ld_dq(a, way, l->size),
                                      [MT_OFF_KV] = a->K * a->Dh };
    memcpy(ld, all, sizeof all);
}

typedef struct values {
    mt_cudnn_value at[MT_CUDNN_MAX_VALUES];
    int n;
} values;

static void attention_cudnn_put(values *v, int64_t id, const void *p) { v->at[v->n++] = (mt_cudnn_value){ id, p }; }

static const void *heads_from(const void *rows, int64_t head, int64_t width) { return (const char *)rows + head * width * 2; }

static int64_t value_width(const mt_attention *a) { return mt_value_width(a->Dh, a->Dv); }

/* Tensors that both directions have. */
static void put_common(values *v, const mt_attention *a, const mt_cudnn_layout *l, mt_cudnn_launch at, const uint32_t used[],
                       int n_used)
{
    const char *scratch = a->scratch;
    attention_cudnn_put(v, ID_Q, heads_from(a->q, at.head, a->Dh));
    attention_cudnn_put(v, ID_K, heads_from(a->k, at.kv, a->Dh));
    attention_cudnn_put(v, ID_V, heads_from(a->v, at.kv, value_width(a)));
    attention_cudnn_put(v, ID_O, heads_from(a->o, at.head, value_width(a)));
    attention_cudnn_put(v, ID_LSE, a->lse + at.head);
    const int32_t *len = (const int32_t *)(const void *)(scratch + l->lengths) + at.chunk * 2 * l->lengths_ld;
    attention_cudnn_put(v, ID_LEN_Q, len);
    attention_cudnn_put(v, ID_LEN_KV, len + l->lengths_ld);
    const int64_t *off = (const int64_t *)(const void *)(scratch + l->offsets) + at.chunk * MT_OFFSETS * l->offsets_ld;
    for (int i = 0; i < n_used; i++) attention_cudnn_put(v, ID_OFFSETS + used[i], off + used[i] * l->offsets_ld);
}

static const float never = -INFINITY, one = 1.0f, large = 80.0f;

static mt_rc attention_cudnn_run(mt_cudnn_plan *plan, void *stream, const mt_attention *a, const mt_cudnn_layout *l,
                                 bool backward, mt_attention_way way, values *v, mt_err *err)
{
    float window = (float)a->window, to_cap = a->softcap != 0 ? 2 * a->scale / a->softcap : 0;
    if (backward || a->softcap == 0) attention_cudnn_put(v, ID_SCALE, &a->scale);
    if (backward || a->softcap != 0) attention_cudnn_put(v, ID_ONE, &one);
    attention_cudnn_put(v, ID_NEVER, &never);
    if (masks_window(a, backward, way)) attention_cudnn_put(v, ID_WINDOW, &window);
    if (a->softcap != 0) {
        attention_cudnn_put(v, ID_CAP, &a->softcap);
        attention_cudnn_put(v, ID_TO_CAP, &to_cap);
        attention_cudnn_put(v, ID_LARGE, &large);
    }
    return mt_cudnn_run(plan, stream, v->at, v->n, (char *)a->scratch + l->workspace, err);
}

mt_rc mt_cudnn_attention_fwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_err *err)
{
    static const uint32_t used[] = { MT_OFF_Q, MT_OFF_K, MT_OFF_V, MT_OFF_O, MT_OFF_LSE };
    mt_cudnn_layout l = mt_cudnn_layout_of(a, MT_ATTENTION_CUDNN, false);
    mt_cudnn_plan *plan;
    MT_TRY(plan_for(c, a, &l, false, MT_ATTENTION_CUDNN, &plan, err));
    for (int64_t chunk = 0; chunk < l.n_chunks; chunk++) {
        values v = { .n = 0 };
        put_common(&v, a, &l, (mt_cudnn_launch){ chunk, 0, 0 }, used, (int)MT_COUNT(used));
        MT_TRY(attention_cudnn_run(plan, stream, a, &l, false, MT_ATTENTION_CUDNN, &v, err));
    }
    return MT_OK;
}

/* Gradients of grouped keys and values: summed by cuDNN and packed, or parts in the layout of query heads. */
static void put_dkv(values *v, const mt_attention *a, const mt_cudnn_layout *l, mt_cudnn_launch at)
{
    char *scratch = a->scratch;
    bool grouped = a->H != a->K, parts = grouped && l->size.heads != a->H, summed = grouped && !parts;
    const void *dk = scratch + l->dk, *dv = scratch + l->dv;
    if (!grouped) {
        dk = heads_from(a->dk, at.kv, a->Dh);
        dv = heads_from(a->dv, at.kv, value_width(a));
    } else if (parts) {
        dk = heads_from(scratch + l->dkf, at.head, a->Dh);
        dv = heads_from(scratch + l->dvf, at.head, a->Dh);
    }
    attention_cudnn_put(v, ID_DK, dk);
    attention_cudnn_put(v, ID_DV, dv);
    if (summed) attention_cudnn_put(v, ID_DKF, scratch + l->dkf);
    if (summed) attention_cudnn_put(v, ID_DVF, scratch + l->dvf);
}

static const void *place_of_dq(const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, mt_cudnn_launch at)
{
    const char *scratch = (const char *)a->scratch + l->dq;
    if (l->size.keys != l->size.longest) return scratch + at.chunk * l->size.longest * l->size.heads * a->Dh * 2;
    return mt_cudnn_ld_dq(a, way) == a->ld_d ? heads_from(a->dq, at.head, a->Dh) : scratch;
}

mt_rc mt_cudnn_attention_bwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_attention_way way,
                             const mt_cudnn_layout *l, mt_cudnn_launch at, mt_err *err)
{
    const uint32_t used[] = { MT_OFF_Q,
                              MT_OFF_K,
                              MT_OFF_V,
                              MT_OFF_O,
                              MT_OFF_LSE,
                              MT_OFF_DQ,
                              a->H != a->K && l->size.heads == a->H ? MT_OFF_KV : MT_OFF_D };
    char *scratch = a->scratch;
    values v = { .n = 0 };
    mt_cudnn_plan *plan;
    MT_TRY(plan_for(c, a, l, true, way, &plan, err));
    put_common(&v, a, l, at, used, (int)MT_COUNT(used));
    attention_cudnn_put(&v, ID_DO, heads_from(a->d_o, at.head, value_width(a)));
    attention_cudnn_put(&v, ID_DQ, place_of_dq(a, way, l, at));
    attention_cudnn_put(&v, ID_DELTA, (float *)(void *)(scratch + l->delta) + at.head);
    if (way == MT_ATTENTION_CUDNN_FAST) attention_cudnn_put(&v, ID_ACC, scratch + l->acc);
    put_dkv(&v, a, l, at);
    return attention_cudnn_run(plan, stream, a, l, true, way, &v, err);
}
