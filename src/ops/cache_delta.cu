/* cache_delta.cu - the gated delta rule for rows that continue sequences, row by row as ops.h defines it.
 *
 * Shapes: state [slots, H, Dk, Dv] fp32, read once and written once; the rest as in delta_rule.  Bytes moved for one row of a
 * sequence: 8 H Dk Dv.  A block has a sequence, a value head and COLUMNS columns of its state.  Columns do not depend on each
 * other.  LANES threads share a column, each with every LANES-th of its Dk numbers in registers. */
#include "ops/delta_rule.cuh"

enum { COLUMNS = 16, LANES = 16, THREADS = COLUMNS * LANES };

/* Sum over the LANES threads of a column. */
__device__ __forceinline__ float column_sum(float x)
{
#pragma unroll
    for (int half = LANES / 2; half; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}

/* q and k of a row, divided by their lengths, into shared memory by warps 0 and 1. */
template <typename T>
__device__ __forceinline__ void read_keys(const mt_delta_rule &a, int64_t row, int64_t key, float *q, float *k)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp > 1) return;
    const T *x = warp ? (const T *)a.k + row * a.ldk + key * a.Dk : (const T *)a.q + row * a.ldq + key * a.Dk;
    float sum = 0, *y = warp ? k : q;
    for (int64_t i = lane; i < a.Dk; i += 32) sum += to_f32(x[i]) * to_f32(x[i]);
    float r = rsqrtf(warp_sum(sum) + 1e-6f) * (warp ? 1.0f : rsqrtf((float)a.Dk));
    for (int64_t i = lane; i < a.Dk; i += 32) y[i] = to_f32(x[i]) * r;
}

/* EACH: numbers of a column a thread holds, at most. */
template <typename T, int EACH> __global__ void __launch_bounds__(THREADS) step_kernel(mt_cache_delta c)
{
    __shared__ float q[EACH * LANES], k[EACH * LANES];
    const mt_delta_rule &a = c.d;
    int64_t h = blockIdx.y, d = blockIdx.x, from = a.doc_start[d], to = a.doc_start[d + 1];
    int64_t col = (int64_t)blockIdx.z * COLUMNS + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (from == to) return;
    bool mine = col<a.Dv, old = c.pos[from]> 0;
    float *state = c.state + ((int64_t)c.slot[d] * a.H + h) * a.Dk * a.Dv + col, S[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int64_t i = n * LANES + lane;
        S[n] = mine && old && i < a.Dk ? state[i * a.Dv] : 0.0f;
    }
    for (int i = threadIdx.x; i < EACH * LANES; i += THREADS) q[i] = k[i] = 0;
    for (int64_t t = from; t < to; t++) {
        __syncthreads(); /* the last row's q and k were read */
        read_keys<T>(a, t, h / (a.H / a.K), q, k);
        __syncthreads();
        float x = to_f32(((const T *)a.a)[t * a.ld_ab + h]) + a.dt_bias[h], decay = expf(-expf(a.A_log[h]) * delta_softplus(x));
        float beta = 1.0f / (1.0f + expf(-to_f32(((const T *)a.b)[t * a.ld_ab + h])));
        float v = mine ? to_f32(((const T *)a.v)[t * a.ldv + h * a.Dv + col]) : 0.0f, seen = 0, o = 0;
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            S[n] *= decay;
            seen += S[n] * k[n * LANES + lane];
        }
        float delta = beta * (v - column_sum(seen));
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            S[n] += k[n * LANES + lane] * delta;
            o += S[n] * q[n * LANES + lane];
        }
        o = column_sum(o);
        if (mine && lane == 0) ((T *)a.o)[t * a.ldo + h * a.Dv + col] = from_f32<T>(o);
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int64_t i = n * LANES + lane;
        if (mine && i < a.Dk) state[i * a.Dv] = S[n];
    }
}

enum { WIDEST = 512 };

template <typename T> static void step(mt_stream *s, const mt_cache_delta *a)
{
    dim3 grid((unsigned)a->d.n_docs, (unsigned)a->d.H, (unsigned)div_up(a->d.Dv, COLUMNS));
    void (*kernel)(mt_cache_delta) = a->d.Dk <= 8 * LANES ? step_kernel<T, 8> : step_kernel<T, WIDEST / LANES>;
    kernel<<<grid, THREADS, 0, mt_cuda_raw(s)>>>(*a);
}

mt_rc mt__cache_delta_cuda(mt_stream *s, const mt_cache_delta *a, mt_err *err)
{
    if (a->d.Dk > WIDEST)
        return mt_fail(err, MT_EINTERNAL, "linear attention with key heads of %lld: at most %d are supported on the GPU",
                       (long long)a->d.Dk, WIDEST);
    if (a->d.N == 0) return MT_OK;
    if (a->d.t == MT_DTYPE_BF16)
        step<bf16>(s, a);
    else
        step<float>(s, a);
    return mt__cuda_launched(s, "a step of the delta rule", err);
}
