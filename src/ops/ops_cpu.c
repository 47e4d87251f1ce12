/* ops_cpu.c - the CPU's table: each entry queues the plain function of the same name. */
#include "ops/ops_cpu.h"

#include "device/device_cpu.h"

/* Copying the arguments into the queue needs functions of one type. */
#define QUEUED(fn, type)                                                                                                         \
    _Static_assert(sizeof(type) <= MT_CPU_TASK_BYTES, "raise MT_CPU_TASK_BYTES");                                                \
    static mt_rc task_##fn(mt_pool *pool, const void *args, mt_err *err) { return mt__##fn##_run(pool, args, err); }             \
    static mt_rc queue_##fn(mt_stream *s, const type *a, mt_err *err) { return mt_cpu_enqueue(s, task_##fn, a, sizeof *a, err); }

#define MT_OP(n)                                                                                                                 \
    QUEUED(n##_fwd, mt_##n)                                                                                                      \
    QUEUED(n##_bwd, mt_##n)
#define MT_OP1(n) QUEUED(n, mt_##n)
#include "ops/ops.def"

static void attention_use(mt_device *dev, mt_attention_use *use)
{
    (void)dev;
    use->ways = 1u << MT_ATTENTION_PLAIN;
}

const mt_ops mt_ops_cpu = {
#define MT_OP(n)  .n##_fwd = queue_##n##_fwd, .n##_bwd = queue_##n##_bwd,
#define MT_OP1(n) .n = queue_##n,
#include "ops/ops.def"
    .traits = MT_TRAITS_ALL,
    .attention_use = attention_use,
};

extern const mt_ops mt_ops_cuda __attribute__((weak));

const mt_ops *mt_ops_of(const mt_device *dev) { return dev->api->kind == MT_DEVICE_CPU ? &mt_ops_cpu : &mt_ops_cuda; }

float mt_dot(const float *a, const float *b, int64_t n)
{
    float lane[16] = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += a[i] * b[i];
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

void mt_rotate(float *x, mt_rope_style style, int64_t dr, const float *cos_row, const float *sin_row, float direction)
{
    const int64_t half = dr / 2;
    if (style == MT_ROPE_NONE) return;
    for (int64_t j = 0; j < half; j++) {
        float *p = style == MT_ROPE_HALF ? &x[j] : &x[2 * j];
        float *q = style == MT_ROPE_HALF ? &x[j + half] : &x[2 * j + 1];
        float c = cos_row[j], s = direction * sin_row[j], u = *p, v = *q;
        *p = u * c - v * s;
        *q = v * c + u * s;
    }
}

void mt_axpy(float *y, float alpha, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += alpha * x[i];
}
