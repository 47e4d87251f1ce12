/* bench_ops.c - how fast a device runs each op at the shapes of a layer of Qwen2.5, or of models with experts.
 *
 *     bench_ops [DEVICE] [ROWS] [products | attention | long | capped | sinks | latent | delta | experts | rest | tune] [DOCS] [7b | 3b | 0.5b | 32b | 123b]
 *     default:  cuda 16384, all, 0, 7b
 *
 * experts: not part of all; ROWS are tokens, each goes to the model's number of experts; DOCS: only the model of this number, from 1 on.
 * DOCS: attention is set up for this many documents, as in a run whose steps have them; 0: as many as there are.  With long: only
 * documents of this many rows.  delta: the ops of gated delta nets at the shapes of Qwen3.5 and Qwen3-Next, in documents of DOCS
 * rows, or of 1024 rows and all in one.
 * Random data; the best of a few batches, each timed from an idle device to an idle device. */
#include "base/mem.h"
#include "base/rng.h"
#include "device/device.h"
#include "optim/adamw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEAD_ROWS = 2048, REPEATS = 3 };

static int64_t D = 3584, H = 28, K = 4, DH = 128, F = 18944, V = 152064;

static const struct {
    const char *name;
    int64_t D, H, K, Dh, F, V;
} models[] = { { "7b", 3584, 28, 4, 128, 18944, 152064 },
               { "3b", 2048, 16, 2, 128, 11008, 151936 },
               { "0.5b", 896, 14, 2, 64, 4864, 151936 },
               { "32b", 5120, 40, 8, 128, 27648, 152064 },
               { "123b", 12288, 96, 8, 128, 28672, 32768 } };

static mt_device *dev;
static const mt_ops *ops;
static mt_stream *stream;
static mt_event *done;
static mt_err err;
static char *noise; /* pinned, random bf16 (and passable fp32) */
static const size_t NOISE = (size_t)64 << 20;

static void must(mt_rc rc)
{
    if (!rc) return;
    fprintf(stderr, "error: %s\n", err.msg);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_idle(void)
{
    must(mt_record(stream, done, &err));
    must(mt_sync(done, &err));
}

static void *filled(size_t bytes)
{
    void *p;
    must(mt_device_alloc(dev, &p, bytes, "a tensor", &err));
    for (size_t at = 0; at < bytes; at += NOISE)
        must(mt_copy(stream, (char *)p + at, noise, bytes - at < NOISE ? bytes - at : NOISE, MT_COPY_IN, &err));
    return p;
}

static void *ints(const int32_t *values, size_t n)
{
    void *p;
    must(mt_device_alloc(dev, &p, n * 4, "numbers", &err));
    must(mt_copy(stream, p, values, n * 4, MT_COPY_IN, &err));
    wait_idle();
    return p;
}

typedef mt_rc (*call)(const void *args);

static double seconds_of(call fn, const void *args)
{
    double best = INFINITY;
    must(fn(args));
    must(fn(args));
    wait_idle();
    double start = now();
    must(fn(args));
    wait_idle();
    int n = (int)(0.02 / (now() - start)) + 1;
    for (int r = 0; r < REPEATS; r++) {
        start = now();
        for (int i = 0; i < n; i++) must(fn(args));
        wait_idle();
        double each = (now() - start) / n;
        if (each < best) best = each;
    }
    return best;
}

static void say(const char *name, double seconds, double flops, double bytes)
{
    printf("%-34s %9.1f us", name, 1e6 * seconds);
    if (flops > 0) printf("  %7.1f TFLOP/s", flops / seconds / 1e12);
    if (bytes > 0) printf("  %7.0f GB/s", bytes / seconds / 1e9);
    printf("\n");
    fflush(stdout);
}

#define CALL(name, op, type)                                                                                                     \
    static mt_rc name(const void *a) { return ops->op(stream, (const type *)a, &err); }
CALL(linear_fwd, linear_fwd, mt_linear)
CALL(linear_bwd, linear_bwd, mt_linear)
CALL(norm_fwd, norm_fwd, mt_norm)
CALL(norm_bwd, norm_bwd, mt_norm)
CALL(qk_prepare_fwd, qk_prepare_fwd, mt_qk_prepare)
CALL(qk_prepare_bwd, qk_prepare_bwd, mt_qk_prepare)
CALL(activation_fwd, activation_fwd, mt_activation)
CALL(activation_bwd, activation_bwd, mt_activation)
CALL(attention_fwd, attention_fwd, mt_attention)
CALL(attention_bwd, attention_bwd, mt_attention)
CALL(conv_fwd, conv_fwd, mt_conv)
CALL(conv_bwd, conv_bwd, mt_conv)
CALL(delta_fwd, delta_rule_fwd, mt_delta_rule)
CALL(delta_bwd, delta_rule_bwd, mt_delta_rule)
CALL(delta_step, cache_delta, mt_cache_delta)
CALL(gated_norm_fwd, gated_norm_fwd, mt_gated_norm)
CALL(gated_norm_bwd, gated_norm_bwd, mt_gated_norm)
CALL(gate_fwd, gate_fwd, mt_gate)
CALL(gate_bwd, gate_bwd, mt_gate)
CALL(embed_fwd, embed_fwd, mt_embed)
CALL(embed_bwd, embed_bwd, mt_embed)
CALL(cross_entropy, cross_entropy, mt_cross_entropy)
CALL(round_grad, round_grad, mt_round_grad)
CALL(grad_norm, grad_norm, mt_grad_norm)
CALL(adamw, adamw, mt_adamw)
CALL(route_fwd, route_fwd, mt_route)
CALL(route_bwd, route_bwd, mt_route)
CALL(expert_sort, expert_sort, mt_expert_sort)
CALL(grouped_fwd, grouped_linear_fwd, mt_grouped_linear)
CALL(grouped_bwd, grouped_linear_bwd, mt_grouped_linear)
CALL(combine, combine, mt_combine)

static void products(int64_t M)
{
    const struct {
        const char *name;
        int64_t N, K;
    } shapes[] = { { "qkv", (H + 2 * K) * DH, D }, { "o", D, H * DH }, { "gate_up", 2 * F, D }, { "down", D, F } };
    char name[64];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t n = shapes[i].N, k = shapes[i].K;
        double flops = 2.0 * (double)M * (double)n * (double)k;
        mt_linear a = {
            .t = MT_DTYPE_BF16, .M = M, .N = n, .K = k, .x = filled((size_t)(M * k) * 2), .w = filled((size_t)(n * k) * 2)
        };
        void *y = filled((size_t)(M * n) * 2), *dx = filled((size_t)(M * k) * 2), *dw = filled((size_t)(n * k) * 4),
             *add = filled((size_t)(M * n) * 2);
        mt_linear fwd = a, plus = a, through = a, weights = a, biases = a;
        fwd.y = plus.y = y;
        plus.add = add;
        plus.b = a.w;
        through.dy = weights.dy = biases.dy = y;
        through.dx = dx;
        weights.dw = dw;
        biases.db = dw;
        biases.scratch = filled(mt_linear_scratch(&biases));
        snprintf(name, sizeof name, "%s forward", shapes[i].name);
        say(name, seconds_of(linear_fwd, &fwd), flops, 0);
        snprintf(name, sizeof name, "%s forward + bias + residual", shapes[i].name);
        say(name, seconds_of(linear_fwd, &plus), flops, 0);
        snprintf(name, sizeof name, "%s dx", shapes[i].name);
        say(name, seconds_of(linear_bwd, &through), flops, 0);
        snprintf(name, sizeof name, "%s dw (fp32, accumulated)", shapes[i].name);
        say(name, seconds_of(linear_bwd, &weights), flops, 0);
        snprintf(name, sizeof name, "%s db", shapes[i].name);
        say(name, seconds_of(linear_bwd, &biases), 0, 2.0 * (double)(M * n));
        void *all[] = { (void *)(uintptr_t)a.x, (void *)(uintptr_t)a.w, y, dx, dw, add, biases.scratch };
        for (size_t p = 0; p < sizeof all / sizeof *all; p++) dev->api->free(dev, all[p]);
    }
}

/* Attention over documents of `length` rows each or, if negative, of many lengths up to -length, a quarter of it on average. */
typedef struct attention_shape {
    const char *name; /* NULL: attention */
    int64_t length, heads, kv, dh;
    int64_t dv; /* as in latent attention, where q, k and v are separate matrices; 0: dh, side by side in a row */
    int64_t window;
    float softcap;
    bool sinks;
} attention_shape;

/* Cuts N rows into documents.  Returns how many pairs of a row and a row that it sees there are: the causal half or the window. */
static double cut_documents(const attention_shape *s, int64_t N, int32_t *starts, mt_attention *a)
{
    double pairs = 0, window = (double)s->window;
    for (int64_t row = 0; row < N; a->n_docs++) {
        int64_t n = s->length > 0
                        ? s->length
                        : (int64_t)(-0.215 * (double)s->length * exp(0.8 * (double)mt_rng_normal(5, 6, (uint64_t)a->n_docs))) + 1;
        n = mt_min_i64(n, mt_min_i64(N - row, s->length > 0 ? s->length : -s->length));
        pairs += (double)n * (s->window && s->window < n ? window - window * window / (2.0 * (double)n) : (double)n / 2);
        a->longest = mt_max_i64(a->longest, n);
        row += n;
        starts[a->n_docs + 1] = (int32_t)row;
    }
    return pairs;
}

static void attention(mt_attention_use use, int64_t N, attention_shape s)
{
    static int32_t starts[70000];
    const int64_t dv = s.dv ? s.dv : s.dh, q = s.heads * s.dh, k = s.kv * s.dh, v = s.kv * dv, ld = q + k + v;
    const int64_t apart = s.dv ? N : 1; /* rows before the next matrix begins */
    char name[64], *qkv = filled((size_t)(N * ld) * 2), *dqkv = filled((size_t)(N * ld) * 2);
    mt_attention a = { .t = MT_DTYPE_BF16,
                       .N = N,
                       .H = s.heads,
                       .K = s.kv,
                       .Dh = s.dh,
                       .Dv = s.dv,
                       .ldq = s.dv ? q : ld,
                       .ldk = s.dv ? k : ld,
                       .ldv = s.dv ? v : ld,
                       .ldo = s.heads * dv,
                       .host_start = starts,
                       .scale = 1.0f / sqrtf((float)s.dh),
                       .window = s.window,
                       .softcap = s.softcap,
                       .sinks = s.sinks ? filled((size_t)s.heads * 4) : NULL,
                       .dsinks = s.sinks ? filled((size_t)s.heads * 4) : NULL,
                       .q = qkv,
                       .k = qkv + apart * q * 2,
                       .v = qkv + apart * (q + k) * 2,
                       .o = filled((size_t)(N * s.heads * dv) * 2),
                       .lse = filled((size_t)(N * s.heads) * 4),
                       .d_o = filled((size_t)(N * s.heads * dv) * 2),
                       .dq = dqkv,
                       .dk = dqkv + q * 2,
                       .dv = dqkv + (q + k) * 2,
                       .ld_d = ld,
                       .use = use };
    double pairs = cut_documents(&s, N, starts, &a) * 2.0 * (double)s.heads;
    a.doc_start = ints(starts, (size_t)a.n_docs + 1);
    a.scratch = filled(mt_attention_scratch(&a));
    snprintf(name, sizeof name, "%s %lldx%lld Dh %lld w %lld%s", s.name ? s.name : "attention", (long long)a.n_docs,
             (long long)s.length, (long long)s.dh, (long long)s.window, s.sinks ? " sinks" : "");
    printf("%-11s", mt_attention_way_name(mt_attention_choose(&a, false)));
    say(name, seconds_of(attention_fwd, &a), pairs * (double)(s.dh + dv), 0);
    printf("%-11s", mt_attention_way_name(mt_attention_choose(&a, true)));
    /* Five products: scores, dq and dk are dh deep or wide, dv and the scores' gradients dv. */
    say("                     backward", seconds_of(attention_bwd, &a), pairs * (double)(3 * s.dh + 2 * dv), 0);
    void *all[] = { qkv,       dqkv,     (void *)(uintptr_t)a.doc_start, a.o, a.lse, (void *)(uintptr_t)a.d_o,
                    a.scratch, a.dsinks, (void *)(uintptr_t)a.sinks };
    for (size_t p = 0; p < sizeof all / sizeof *all; p++) dev->api->free(dev, all[p]);
}

/* Documents are no longer than all rows. */
static attention_shape shortened(attention_shape s, int64_t rows)
{
    s.length = mt_min_i64(s.length, rows);
    return s;
}

/* Every way the device has, where it serves: the fast one also where the table would not take it. */
static void attentions(int64_t rows, int64_t most_docs)
{
    const attention_shape shapes[] = { { .length = -1024, .heads = H, .kv = K, .dh = DH },
                                       { .length = 256, .heads = H, .kv = K, .dh = DH },
                                       { .length = 1024, .heads = H, .kv = K, .dh = DH },
                                       { .length = 4096, .heads = H, .kv = K, .dh = DH },
                                       { .length = 16384, .heads = H, .kv = K, .dh = DH },
                                       { .length = 4096, .heads = H, .kv = K, .dh = DH, .window = 128 },
                                       { .length = 16384, .heads = H, .kv = K, .dh = DH, .window = 1024 },
                                       { .length = 1024, .heads = 14, .kv = 2, .dh = 64 },
                                       { .length = 1024, .heads = 16, .kv = 2, .dh = 128 },
                                       { .length = 1024, .heads = 16, .kv = 8, .dh = 96 },
                                       { .length = 1024, .heads = 8, .kv = 4, .dh = 256 } };
    static const mt_attention_way ways[] = { MT_ATTENTION_FLASH, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST };
    mt_attention_use has = mt_attention_use_of(dev, false, false, (size_t)128 << 30);
    has.docs = most_docs;
    mt_attention_use use = has;
    for (size_t w = 0; w < MT_COUNT(ways); w++) {
        use.ways = 1u << ways[w] | 1u << MT_ATTENTION_FLASH;
        if (!(has.ways >> ways[w] & 1)) continue;
        for (size_t i = 0; i < MT_COUNT(shapes); i++) attention(use, rows, shortened(shapes[i], rows));
    }
}

/* Documents of up to this many rows, or only those of one length, by every kernel: a workspace of 2 and of 4 GiB for the one that
 * needs it. */
static void long_documents(int64_t rows, int64_t only)
{
    static const struct {
        int64_t length, heads, kv, dh;
    } shapes[] = { { -32768, 28, 4, 128 }, { -8192, 28, 4, 128 }, { -32768, 14, 2, 64 },  { 16384, 32, 8, 128 },
                   { 16384, 32, 32, 128 }, { 16384, 16, 8, 96 },  { 16384, 8, 4, 256 },   { 8192, 28, 4, 128 },
                   { 16384, 28, 4, 128 },  { 32768, 28, 4, 128 }, { 8192, 14, 2, 64 },    { 16384, 14, 2, 64 },
                   { 32768, 14, 2, 64 },   { 65536, 28, 4, 128 }, { 131072, 28, 4, 128 }, { 65536, 14, 2, 64 } };
    static const struct {
        mt_attention_way way;
        uint64_t workspace;
    } asks[] = { { MT_ATTENTION_FLASH, 0 },
                 { MT_ATTENTION_CUDNN, (uint64_t)4 << 30 },
                 { MT_ATTENTION_CUDNN_FAST, 0 },
                 { MT_ATTENTION_CUDNN, (uint64_t)2 << 30 } };
    mt_attention_use use = mt_attention_use_of(dev, false, false, (size_t)128 << 30);
    use.parts = true;
    for (size_t i = 0; i < MT_COUNT(shapes); i++)
        for (size_t w = 0; w < MT_COUNT(asks); w++) {
            int64_t length = mt_min_i64(shapes[i].length, rows);
            if (only && shapes[i].length != only) continue;
            use.ways = 1u << asks[w].way | 1u << MT_ATTENTION_FLASH;
            use.workspace = asks[w].workspace;
            printf("%lld GiB ", (long long)(asks[w].workspace >> 30));
            attention(use, length > 0 ? length : rows,
                      (attention_shape){ .length = length, .heads = shapes[i].heads, .kv = shapes[i].kv, .dh = shapes[i].dh });
        }
}

/* Scores under a soft cap, heads as in Gemma 2's 2B and 27B. */
static void capped_attentions(int64_t rows)
{
    static const attention_shape shapes[] = { { .length = 1024, .heads = 8, .kv = 4, .dh = 256, .softcap = 50 },
                                              { .length = 4096, .heads = 8, .kv = 4, .dh = 256, .softcap = 50 },
                                              { .length = 16384, .heads = 8, .kv = 4, .dh = 256, .softcap = 50 },
                                              { .length = 16384, .heads = 8, .kv = 4, .dh = 256, .window = 4096, .softcap = 50 },
                                              { .length = 4096, .heads = 32, .kv = 16, .dh = 128, .softcap = 50 } };
    static const mt_attention_way ways[] = { MT_ATTENTION_FLASH, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST };
    mt_attention_use use = mt_attention_use_of(dev, false, false, (size_t)128 << 30);
    for (size_t i = 0; i < MT_COUNT(shapes); i++)
        for (size_t w = 0; w < MT_COUNT(ways); w++) {
            use.ways = 1u << ways[w] | 1u << MT_ATTENTION_FLASH;
            attention(use, rows, shortened(shapes[i], rows));
        }
}

/* Heads of GPT-OSS, with its sinks and without them. */
static void sink_attentions(int64_t rows)
{
    static const attention_shape shapes[] = {
        { .length = 1024 }, { .length = 1024, .window = 128 }, { .length = 4096 },  { .length = 4096, .window = 128 },
        { .length = 8192 }, { .length = 8192, .window = 128 }, { .length = 16384 }, { .length = 16384, .window = 128 },
    };
    const mt_attention_use use = mt_attention_use_of(dev, true, false, (size_t)128 << 30);
    for (size_t i = 0; i < MT_COUNT(shapes); i++)
        for (int sinks = 0; sinks < 2; sinks++) {
            attention_shape s = shortened(shapes[i], rows);
            s.name = sinks ? "GPT-OSS" : NULL;
            s.heads = 64, s.kv = 8, s.dh = 64, s.sinks = sinks;
            attention(use, rows, s);
        }
}

/* Latent attention, each followed by plain heads of 128 with the same FLOPs forward (backward has 4% more with scores of 192 and values
 * of 128), as a run with equal bits makes them and by the fastest kernels. */
static void latent_attentions(int64_t rows)
{
    static const attention_shape shapes[] = { { .name = "V2-Lite", .heads = 16, .kv = 16, .dh = 192, .dv = 128 },
                                              { .name = "20 heads", .heads = 20, .kv = 20, .dh = 128 },
                                              { .name = "V3", .heads = 128, .kv = 128, .dh = 192, .dv = 128 },
                                              { .name = "160 heads", .heads = 160, .kv = 160, .dh = 128 },
                                              { .name = "GLM-Flash", .heads = 20, .kv = 20, .dh = 256, .dv = 256 },
                                              { .name = "40 heads", .heads = 40, .kv = 40, .dh = 128 } };
    static const int64_t lengths[] = { 1024, 4096, 8192 };
    for (int equal = 1; equal >= 0; equal--)
        for (size_t i = 0; i < MT_COUNT(shapes) * MT_COUNT(lengths); i++) {
            attention_shape s = shapes[i % MT_COUNT(shapes)];
            s.length = lengths[i / MT_COUNT(shapes)];
            attention(mt_attention_use_of(dev, equal, false, (size_t)128 << 30), rows, shortened(s, rows));
        }
}

/* A gated delta net's heads, and the width of the full attention beside it. */
static const struct {
    const char *name;
    int64_t K, H, D, attention;
} delta_shapes[] = { { "Qwen3.5-2B", 16, 16, 128, 2048 },
                     { "Qwen3.5-9B", 16, 32, 128, 4096 },
                     { "Qwen3.5-27B", 16, 48, 128, 6144 },
                     { "Qwen3-Next-80B", 16, 32, 128, 4096 } };

/* Documents of `length` rows, the last one shorter: their starts on the device. */
static void *documents(int64_t N, int64_t length, int64_t *n_docs)
{
    int32_t *starts = malloc((size_t)(N + 1) * sizeof *starts);
    if (!starts) exit(1);
    *n_docs = 0;
    starts[0] = 0;
    for (int64_t row = 0; row < N; starts[++*n_docs] = (int32_t)row) row += mt_min_i64(length, N - row);
    void *p = ints(starts, (size_t)*n_docs + 1);
    free(starts);
    return p;
}

/* FLOPs of a row and value head: the products of delta_rule.cu, backward with the states made again. */
static double delta_flops(int64_t dh, bool back)
{
    double square = (double)(dh * dh), chunk = (double)(MT_DELTA_ROWS * dh);
    return back ? 2 * (8 * square + 12 * chunk) : 2 * (3 * square + 5 * chunk);
}

static void delta_rule(size_t shape, int64_t N, int64_t length)
{
    int64_t K_ = delta_shapes[shape].K, heads = delta_shapes[shape].H, dh = delta_shapes[shape].D, ld = (2 * K_ + heads) * dh;
    char *qkv = filled((size_t)(N * ld) * 2), *dqkv = filled((size_t)(N * ld) * 2), *ab = filled((size_t)(N * 2 * heads) * 2),
         *dab = filled((size_t)(N * 2 * heads) * 2), name[64];
    mt_delta_rule a = { .t = MT_DTYPE_BF16,
                        .N = N,
                        .H = heads,
                        .K = K_,
                        .Dk = dh,
                        .Dv = dh,
                        .ldq = ld,
                        .ldk = ld,
                        .ldv = ld,
                        .ldo = heads * dh,
                        .ld_ab = 2 * heads,
                        .ld_d = ld,
                        .ld_dab = 2 * heads,
                        .q = qkv,
                        .k = qkv + K_ * dh * 2,
                        .v = qkv + 2 * K_ * dh * 2,
                        .a = ab,
                        .b = ab + heads * 2,
                        .A_log = filled((size_t)heads * 4),
                        .dt_bias = filled((size_t)heads * 4),
                        .o = filled((size_t)(N * heads * dh) * 2),
                        .d_o = filled((size_t)(N * heads * dh) * 2),
                        .dq = dqkv,
                        .dk = dqkv + K_ * dh * 2,
                        .dv = dqkv + 2 * K_ * dh * 2,
                        .da = dab,
                        .db = dab + heads * 2,
                        .dA_log = filled((size_t)heads * 4),
                        .ddt_bias = filled((size_t)heads * 4) };
    a.doc_start = documents(N, length, &a.n_docs);
    size_t bytes = mt_delta_rule_scratch(&a);
    a.scratch = filled(bytes);
    double rows = (double)(N * heads);
    snprintf(name, sizeof name, "delta rule %lldx%lld forward", (long long)a.n_docs, (long long)length);
    say(name, seconds_of(delta_fwd, &a), rows * delta_flops(dh, false), 0);
    snprintf(name, sizeof name, "delta rule %lldx%lld backward", (long long)a.n_docs, (long long)length);
    say(name, seconds_of(delta_bwd, &a), rows * delta_flops(dh, true), 0);
    printf("%-34s %9.1f MiB\n", "delta rule scratch", (double)bytes / (1 << 20));
    void *all[] = { qkv,
                    dqkv,
                    ab,
                    dab,
                    (void *)(uintptr_t)a.A_log,
                    (void *)(uintptr_t)a.dt_bias,
                    a.o,
                    (void *)(uintptr_t)a.d_o,
                    a.dA_log,
                    a.ddt_bias,
                    (void *)(uintptr_t)a.doc_start,
                    a.scratch };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

/* One row of each of `n` sequences. */
static void delta_steps(size_t shape, int64_t n)
{
    int64_t K_ = delta_shapes[shape].K, heads = delta_shapes[shape].H, dh = delta_shapes[shape].D, ld = (2 * K_ + heads) * dh;
    int32_t numbers[64];
    char name[64], *qkv = filled((size_t)(n * ld) * 2);
    for (int i = 0; i < 64; i++) numbers[i] = i + 1;
    mt_cache_delta c = { .d = { .t = MT_DTYPE_BF16,
                                .N = n,
                                .H = heads,
                                .K = K_,
                                .Dk = dh,
                                .Dv = dh,
                                .ldq = ld,
                                .ldk = ld,
                                .ldv = ld,
                                .ldo = heads * dh,
                                .ld_ab = heads,
                                .q = qkv,
                                .k = qkv + K_ * dh * 2,
                                .v = qkv + 2 * K_ * dh * 2,
                                .a = filled((size_t)(n * heads) * 2),
                                .b = filled((size_t)(n * heads) * 2),
                                .A_log = filled((size_t)heads * 4),
                                .dt_bias = filled((size_t)heads * 4),
                                .o = filled((size_t)(n * heads * dh) * 2) },
                         .pos = ints(numbers, 64),
                         .state = filled((size_t)((n + 1) * heads * dh * dh) * 4) };
    c.slot = c.pos;
    c.d.doc_start = documents(n, 1, &c.d.n_docs);
    snprintf(name, sizeof name, "delta rule, %lld sequences, a row", (long long)n);
    say(name, seconds_of(delta_step, &c), 0, 8.0 * (double)(n * heads * dh * dh));
    void *all[] = { qkv,
                    (void *)(uintptr_t)c.d.a,
                    (void *)(uintptr_t)c.d.b,
                    (void *)(uintptr_t)c.d.A_log,
                    (void *)(uintptr_t)c.d.dt_bias,
                    c.d.o,
                    (void *)(uintptr_t)c.pos,
                    c.state,
                    (void *)(uintptr_t)c.d.doc_start };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

static void delta_elementwise(size_t shape, int64_t N, int64_t length)
{
    int64_t heads = delta_shapes[shape].H, dh = delta_shapes[shape].D, C = (2 * delta_shapes[shape].K + heads) * dh,
            wide = delta_shapes[shape].attention;
    size_t bytes = (size_t)(N * mt_max_i64(C, wide)) * 2;
    double each = (double)N * 2;
    void *m[5];
    for (int i = 0; i < 5; i++) m[i] = filled(bytes);
    void *w = filled((size_t)(C * 4) * 2), *dw = filled((size_t)(C * 4) * 4);
    mt_conv conv = { .t = MT_DTYPE_BF16,
                     .N = N,
                     .C = C,
                     .width = 4,
                     .ldx = C,
                     .ldy = C,
                     .ld_dx = C,
                     .x = m[0],
                     .w = w,
                     .y = m[1],
                     .dy = m[1],
                     .dx = m[2],
                     .dw = dw };
    conv.doc_start = documents(N, length, &conv.n_docs);
    conv.scratch = filled(mt_conv_scratch(&conv));
    say("conv forward", seconds_of(conv_fwd, &conv), 0, 2 * each * (double)C);
    say("conv backward", seconds_of(conv_bwd, &conv), 0, 3 * each * (double)C);
    int64_t V_ = heads * dh;
    mt_gated_norm norm = { .t = MT_DTYPE_BF16,
                           .N = N,
                           .H = heads,
                           .D = dh,
                           .ldx = V_,
                           .ld_gate = V_,
                           .ldy = V_,
                           .ld_dx = V_,
                           .ld_dgate = V_,
                           .eps = 1e-6f,
                           .x = m[0],
                           .gate = m[1],
                           .w = w,
                           .y = m[2],
                           .dy = m[2],
                           .dx = m[3],
                           .dgate = m[4],
                           .dw = dw };
    norm.scratch = filled(mt_gated_norm_scratch(&norm));
    say("gated norm forward", seconds_of(gated_norm_fwd, &norm), 0, 3 * each * (double)V_);
    norm.y = NULL;
    say("gated norm backward", seconds_of(gated_norm_bwd, &norm), 0, 5 * each * (double)V_);
    mt_gate gate = { .t = MT_DTYPE_BF16,
                     .N = N,
                     .D = wide,
                     .ldx = wide,
                     .ld_gate = wide,
                     .ldy = wide,
                     .ld_dx = wide,
                     .ld_dgate = wide,
                     .x = m[0],
                     .gate = m[1],
                     .y = m[2],
                     .dy = m[2],
                     .dx = m[3],
                     .dgate = m[4] };
    say("attention gate forward", seconds_of(gate_fwd, &gate), 0, 3 * each * (double)wide);
    gate.y = NULL;
    say("attention gate backward", seconds_of(gate_bwd, &gate), 0, 5 * each * (double)wide);
    void *all[] = { m[0], m[1], m[2], m[3], m[4], w, dw, (void *)(uintptr_t)conv.doc_start, conv.scratch, norm.scratch };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

static void delta_nets(int64_t rows, int64_t length)
{
    for (size_t i = 0; i < MT_COUNT(delta_shapes); i++) {
        printf("%s\n", delta_shapes[i].name);
        delta_elementwise(i, rows, length ? length : 1024);
        delta_rule(i, rows, length ? length : 1024);
        if (!length) delta_rule(i, rows, rows);
        delta_steps(i, 1);
        delta_steps(i, 32);
    }
}

static void elementwise(int64_t N)
{
    double rows = (double)(N * D) * 2;
    mt_norm norm = { .t = MT_DTYPE_BF16,
                     .N = N,
                     .D = D,
                     .eps = 1e-6f,
                     .dx_add = true,
                     .y = filled((size_t)(N * D) * 2),
                     .rstd = filled((size_t)N * 4),
                     .x = filled((size_t)(N * D) * 2),
                     .w = filled((size_t)D * 2),
                     .dy = filled((size_t)(N * D) * 2),
                     .dx = filled((size_t)(N * D) * 2),
                     .dw = filled((size_t)D * 4) };
    norm.scratch = filled(mt_norm_scratch(&norm));
    say("rmsnorm forward", seconds_of(norm_fwd, &norm), 0, 2 * rows);
    say("norm backward", seconds_of(norm_bwd, &norm), 0, 4 * rows);

    int32_t *pos = malloc((size_t)N * 4);
    if (!pos) exit(1);
    for (int64_t i = 0; i < N; i++) pos[i] = (int32_t)(i % 1024);
    int64_t ld = (H + 2 * K) * DH;
    mt_qk_prepare rope = { .t = MT_DTYPE_BF16,
                           .style = MT_ROPE_HALF,
                           .N = N,
                           .H = H,
                           .K = K,
                           .Dh = DH,
                           .dr = DH,
                           .ld_qkv = ld,
                           .ld_qk = ld,
                           .ld_dqkv = ld,
                           .pos = ints(pos, (size_t)N),
                           .cos = filled((size_t)(1024 * DH / 2) * 4),
                           .sin = filled((size_t)(1024 * DH / 2) * 4),
                           .qkv = filled((size_t)(N * ld) * 2),
                           .dqkv = filled((size_t)(N * ld) * 2),
                           .eps = 1e-6f };
    rope.qk = (void *)(uintptr_t)rope.qkv;
    double heads = 2.0 * 2 * (double)(N * (H + K) * DH);
    say("rope forward", seconds_of(qk_prepare_fwd, &rope), 0, heads);
    rope.qk = filled((size_t)(N * ld) * 2);
    rope.wq = rope.wk = filled((size_t)DH * 2);
    rope.dwq = filled((size_t)DH * 4), rope.dwk = filled((size_t)DH * 4);
    rope.scratch = filled(mt_qk_prepare_scratch(&rope));
    say("rope forward with head norm", seconds_of(qk_prepare_fwd, &rope), 0, heads);
    say("rope backward with head norm", seconds_of(qk_prepare_bwd, &rope), 0, 1.5 * heads);
    rope.whole = true;
    rope.wq = rope.wk = filled((size_t)(H * DH) * 2);
    rope.dwq = filled((size_t)(H * DH) * 4), rope.dwk = filled((size_t)(K * DH) * 4);
    rope.scratch = filled(mt_qk_prepare_scratch(&rope));
    say("rope forward with norms of all heads", seconds_of(qk_prepare_fwd, &rope), 0, heads);
    say("rope backward with norms of all heads", seconds_of(qk_prepare_bwd, &rope), 0, 1.5 * heads);

    mt_activation activation = { .t = MT_DTYPE_BF16,
                                 .act = MT_ACT_SILU,
                                 .N = N,
                                 .F = F,
                                 .gu = filled((size_t)(N * F) * 4),
                                 .y = filled((size_t)(N * F) * 2) };
    say("silu activation forward", seconds_of(activation_fwd, &activation), 0, 6.0 * (double)(N * F));
    activation.dgu = (void *)(uintptr_t)activation.gu;
    activation.dy = activation.y;
    say("silu activation backward in place", seconds_of(activation_bwd, &activation), 0, 12.0 * (double)(N * F));

    int32_t *ids = malloc((size_t)N * 4), *by_id = malloc((size_t)N * 4);
    if (!ids || !by_id) exit(1);
    for (int64_t i = 0; i < N; i++) ids[i] = (int32_t)(i * 9 / 10), by_id[i] = (int32_t)i; /* mostly distinct */
    /* One id that is everywhere. */
    for (int64_t i = N - N / 32; i < N; i++) ids[i] = (int32_t)V - 1;
    mt_embed embed = { .t = MT_DTYPE_BF16,
                       .N = N,
                       .D = D,
                       .V = V,
                       .ids = ints(ids, (size_t)N),
                       .rows_by_id = ints(by_id, (size_t)N),
                       .y = norm.y,
                       .w = filled((size_t)(V * D) * 2),
                       .dy = norm.dy,
                       .dw = filled((size_t)(V * D) * 4),
                       .scale = 1,
                       .pad_id = -1 };
    say("embed forward", seconds_of(embed_fwd, &embed), 0, 2 * rows);
    say("embed backward", seconds_of(embed_bwd, &embed), 0, 5 * rows);

    int32_t *targets = malloc(HEAD_ROWS * 4);
    if (!targets) exit(1);
    for (int i = 0; i < HEAD_ROWS; i++) targets[i] = i * 7;
    mt_cross_entropy ce = { .t = MT_DTYPE_BF16,
                            .N = HEAD_ROWS,
                            .V = V,
                            .logits = filled((size_t)(HEAD_ROWS * V) * 4),
                            .targets = ints(targets, HEAD_ROWS),
                            .dlogits = filled((size_t)(HEAD_ROWS * V) * 2),
                            .dscale = 1e-4f,
                            .row_loss = filled(HEAD_ROWS * 4),
                            .row_correct = filled(HEAD_ROWS * 4),
                            .sum = filled(sizeof(mt_loss_sum)) };
    say("cross entropy, 2048 rows", seconds_of(cross_entropy, &ce), 0, 6.0 * (double)(HEAD_ROWS * V));
    free(pos), free(ids), free(by_id), free(targets);
}

static void update(void)
{
    int64_t n = 233057792; /* a layer of the 7B */
    mt_adamw a = { .t = MT_DTYPE_BF16,
                   .n = n,
                   .n_decay = n - 100,
                   .hi = filled((size_t)n * 2),
                   .lo = filled((size_t)n * 2),
                   .m = filled((size_t)n * 4),
                   .v = filled((size_t)n * 4),
                   .g = filled((size_t)n * 2),
                   .n_bad = filled(8) };
    must(mt_fill(stream, a.v, 0x3c, (size_t)n * 4, &err)); /* 0.0115: a sum of squares is not negative */
    mt_update_step step = {
        .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .grad_scale = 1, .t = 10
    };
    a.coef = mt_adamw_coef_of(&step);
    a.coef_no_decay = a.coef;
    mt_round_grad r = { .t = MT_DTYPE_BF16, .n = n, .acc = a.m, .g = (void *)(uintptr_t)a.g };
    mt_grad_norm norm = { .t = MT_DTYPE_BF16, .n = n, .g = a.g, .sum = filled(8) };
    norm.scratch = filled(mt_grad_norm_scratch(&norm));
    double s = seconds_of(adamw, &a);
    say("adamw, 233M parameters", s, 0, 26.0 * (double)n);
    printf("%-34s %9.1f Gparam/s\n", "", (double)n / s / 1e9);
    say("round_grad", seconds_of(round_grad, &r), 0, 6.0 * (double)n);
    say("grad_norm", seconds_of(grad_norm, &norm), 0, 2.0 * (double)n);
}

/* -- experts --------------------------------------------------------------------------------------- */

typedef struct expert_shape {
    const char *name;
    int64_t E, T, D, I;
} expert_shape;

static const expert_shape expert_shapes[] = { { "OLMoE", 64, 8, 2048, 1024 },
                                              { "Qwen3-30B", 128, 8, 2048, 768 },
                                              { "GPT-OSS 20B", 32, 4, 2880, 2880 },
                                              { "Mixtral 8x7B", 8, 2, 4096, 14336 },
                                              { "Qwen3-Next", 512, 10, 2048, 512 } };

/* Logits with which some experts get several times as many rows as others. */
static float *uneven_logits(int64_t N, int64_t E)
{
    float *host = malloc((size_t)(N * E) * sizeof *host);
    if (!host) exit(1);
    for (int64_t i = 0; i < N * E; i++)
        host[i] = mt_rng_normal(7, 8, (uint64_t)i) + 0.5f * mt_rng_normal(9, 10, (uint64_t)(i % E));
    float *logits = ints((const int32_t *)(const void *)host, (size_t)(N * E));
    free(host);
    return logits;
}

/* A product of all experts three ways, x or dy by tokens: forward, dx, dw. */
static void expert_products(const expert_shape *m, const char *name, mt_grouped_linear a, int64_t tokens, bool gather_x)
{
    char line[64];
    double flops = 2.0 * (double)a.M * (double)a.N * (double)a.K;
    int64_t x_rows = gather_x ? tokens : a.M, dy_rows = gather_x ? a.M : tokens;
    void *x = filled((size_t)(x_rows * a.K) * 2), *dy = filled((size_t)(dy_rows * a.N) * 2);
    void *w = filled((size_t)(m->E * a.N * a.K) * 2), *y = filled((size_t)(a.M * a.N) * 2), *dx = filled((size_t)(a.M * a.K) * 2);
    float *dw = filled((size_t)(m->E * a.N * a.K) * 4);
    a.x = x, a.w = w, a.gather_x = gather_x, a.gather_dy = !gather_x;
    mt_grouped_linear fwd = a, through = a, weights = a;
    fwd.y = y;
    through.dy = weights.dy = dy;
    through.dx = dx;
    weights.dw = dw;
    snprintf(line, sizeof line, "%s %s forward", m->name, name);
    say(line, seconds_of(grouped_fwd, &fwd), flops, 0);
    snprintf(line, sizeof line, "%s %s dx", m->name, name);
    say(line, seconds_of(grouped_bwd, &through), flops, 0);
    snprintf(line, sizeof line, "%s %s dw (fp32, accumulated)", m->name, name);
    say(line, seconds_of(grouped_bwd, &weights), flops, 0);
    mt_linear dense = { .t = MT_DTYPE_BF16, .M = a.M, .N = a.N, .K = a.K, .x = gather_x ? dx : x, .w = w, .y = y };
    snprintf(line, sizeof line, "%s %s one dense product", m->name, name);
    say(line, seconds_of(linear_fwd, &dense), flops, 0);
    void *all[] = { x, dy, w, y, dx, dw };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

/* Sums and activations of packed rows. */
static void expert_rows(const expert_shape *m, const mt_route *route, const mt_expert_sort *sort)
{
    char line[64];
    int64_t N = sort->N, rows = N * m->T;
    mt_combine sum = { .t = MT_DTYPE_BF16,
                       .N = N,
                       .D = m->D,
                       .T = m->T,
                       .c = m->E,
                       .start = true,
                       .experts = sort->experts,
                       .place = sort->place,
                       .offsets = sort->offsets,
                       .weights = route->weights,
                       .y = filled((size_t)(rows * m->D) * 2),
                       .out = filled((size_t)(N * m->D) * 2) };
    snprintf(line, sizeof line, "%s combine", m->name);
    say(line, seconds_of(combine, &sum), 0, 2.0 * (double)((rows + N) * m->D));
    mt_activation activation = { .t = MT_DTYPE_BF16,
                                 .act = MT_ACT_SILU,
                                 .N = rows,
                                 .F = m->I,
                                 .gu = filled((size_t)(rows * m->I) * 4),
                                 .y = filled((size_t)(rows * m->I) * 2),
                                 .first = sort->offsets,
                                 .last = sort->offsets + m->E };
    snprintf(line, sizeof line, "%s activation of packed rows", m->name);
    say(line, seconds_of(activation_fwd, &activation), 0, 6.0 * (double)(rows * m->I));
    activation.dgu = (void *)(uintptr_t)activation.gu, activation.dy = activation.y, activation.order = sort->order,
    activation.weights = route->weights;
    activation.dweights = filled((size_t)rows * 4);
    snprintf(line, sizeof line, "%s activation backward with weights", m->name);
    say(line, seconds_of(activation_bwd, &activation), 0, 12.0 * (double)(rows * m->I));
    void *all[] = { (void *)(uintptr_t)sum.y, sum.out, (void *)(uintptr_t)activation.gu, activation.y, activation.dweights };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

static void experts(const expert_shape *m, int64_t N)
{
    char line[64];
    size_t pairs = (size_t)(N * m->T) * 4;
    mt_route route = { .t = MT_DTYPE_BF16,
                       .kind = MT_ROUTE_SOFTMAX,
                       .N = N,
                       .E = m->E,
                       .T = m->T,
                       .norm = true,
                       .logits = uneven_logits(N, m->E),
                       .experts = filled(pairs),
                       .weights = filled(pairs),
                       .dweights = filled(pairs),
                       .dlogits = filled((size_t)(N * m->E) * 2) };
    mt_expert_sort sort = { .N = N,
                            .T = m->T,
                            .E = m->E,
                            .experts = route.experts,
                            .offsets = filled((size_t)(m->E + 1) * 4),
                            .order = filled(pairs),
                            .rows = filled(pairs),
                            .place = filled(pairs) };
    sort.scratch = filled(mt_expert_sort_scratch(&sort));
    snprintf(line, sizeof line, "%s route", m->name);
    say(line, seconds_of(route_fwd, &route), 0, 4.0 * (double)(N * (m->E + 2 * m->T)));
    snprintf(line, sizeof line, "%s route backward", m->name);
    say(line, seconds_of(route_bwd, &route), 0, (double)(N * (6 * m->E + 8 * m->T)));
    snprintf(line, sizeof line, "%s sort", m->name);
    say(line, seconds_of(expert_sort, &sort), 0, 20.0 * (double)(N * m->T));
    mt_grouped_linear a = {
        .t = MT_DTYPE_BF16, .M = N * m->T, .N = 2 * m->I, .K = m->D, .c = m->E, .offsets = sort.offsets, .rows = sort.rows
    };
    expert_products(m, "gate_up", a, N, true);
    a.N = m->D, a.K = m->I;
    expert_products(m, "down", a, N, false);
    expert_rows(m, &route, &sort);
    void *all[] = { (void *)(uintptr_t)route.logits,
                    route.experts,
                    route.weights,
                    (void *)(uintptr_t)route.dweights,
                    route.dlogits,
                    sort.offsets,
                    sort.order,
                    sort.rows,
                    sort.place,
                    sort.scratch };
    for (size_t p = 0; p < MT_COUNT(all); p++) dev->api->free(dev, all[p]);
}

int main(int argc, char **argv)
{
    int64_t rows = argc > 2 ? atoi(argv[2]) : 16384;
    const char *what = argc > 3 ? argv[3] : "all";
    mt_device_options o = { .tune = strcmp(what, "tune") == 0 ? "" : NULL };
    bool all = strcmp(what, "all") == 0;
    for (size_t i = 0; argc > 5 && i < MT_COUNT(models); i++)
        if (strcmp(argv[5], models[i].name) == 0)
            D = models[i].D, H = models[i].H, K = models[i].K, DH = models[i].Dh, F = models[i].F, V = models[i].V;
    must(mt_device_open(&dev, argc > 1 ? argv[1] : "cuda", &o, &err));
    ops = mt_ops_of(dev);
    must(dev->api->stream_create(dev, &stream, "compute", &err));
    must(dev->api->event_create(dev, &done, &err));
    must(dev->api->host_alloc(dev, (void **)&noise, NOISE, "noise", &err));
    for (size_t i = 0; i < NOISE / 2; i++) ((uint16_t *)(void *)noise)[i] = (uint16_t)((mt_rng_u64(1, 2, i) & 0x80ff) | 0x3f00);
    printf("%lld rows%s\n", (long long)rows, o.tune ? ", products chosen by timing" : "");
    if (all || o.tune || strcmp(what, "products") == 0) products(rows);
    if (all || strcmp(what, "attention") == 0) attentions(rows, argc > 4 ? atoi(argv[4]) : 0);
    if (strcmp(what, "long") == 0) long_documents(rows, argc > 4 ? atoi(argv[4]) : 0);
    if (strcmp(what, "capped") == 0) capped_attentions(rows);
    if (strcmp(what, "sinks") == 0) sink_attentions(rows);
    if (strcmp(what, "latent") == 0) latent_attentions(rows);
    if (strcmp(what, "delta") == 0) delta_nets(rows, argc > 4 ? atoi(argv[4]) : 0);
    for (size_t i = 0; strcmp(what, "experts") == 0 && i < MT_COUNT(expert_shapes); i++)
        if (argc < 5 || atoi(argv[4]) == 0 || (size_t)atoi(argv[4]) == i + 1) experts(&expert_shapes[i], rows);
    if (all || strcmp(what, "rest") == 0) {
        elementwise(rows);
        update();
    }
    dev->api->event_free(done);
    dev->api->stream_free(stream);
    mt_device_close(dev);
    return 0;
}
