/* gated_norm.cu - y = w * xh * silu(z), xh = x * r, r = 1 / sqrt(mean(x^2) + eps), per row and head.
 * Backward, with u = dy * silu(z) and v = w * u:  dx = r * (v - xh * mean(v * xh)),  dw += sum over rows and heads of u * xh,
 * dz = dy * w * xh * silu'(z).
 *
 * Shapes: x, z, y, dy, dx, dz [N, H, D]; w, dw [D].  Bytes moved: every row once (backward finds r again).
 * A warp has a row of a head and walks over it V elements at a time; heads are narrow, so what it reads twice is in the cache.
 * In backward a block has ITEMS of them; its warps' shares of dw are added in order, then the blocks' by a second kernel. */
#include "ops/ops_cuda.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, ITEMS = 64 }; /* ITEMS: as many as the scratch counts with */

struct item {
    int64_t x, z, y, dx, dz; /* where its elements start */
};

__device__ __forceinline__ item item_at(const mt_gated_norm &a, int64_t at)
{
    int64_t i = at / a.H, head = at % a.H * a.D;
    return { i * a.ldx + head, i * a.ld_gate + head, i * a.ldy + head, i * a.ld_dx + head, i * a.ld_dgate + head };
}

__device__ __forceinline__ float silu(float z, float *slope)
{
    float s = 1.0f / (1.0f + expf(-z));
    *slope = s * (1.0f + z * (1.0f - s));
    return z * s;
}

template <typename T, int V> __device__ __forceinline__ float rstd_of(const mt_gated_norm &a, int64_t base, int lane)
{
    float sum = 0;
    for (int64_t d = lane * V; d < a.D; d += 32 * V) {
        vec<T, V> x = load<T, V>((const T *)a.x + base + d);
#pragma unroll
        for (int e = 0; e < V; e++) sum += to_f32(x.at[e]) * to_f32(x.at[e]);
    }
    return rsqrtf(warp_sum(sum) / (float)a.D + a.eps);
}

/* The same bits in both directions: no product is fused with another sum here. */
__device__ __forceinline__ float product(float x, float r, float w, float act)
{
    return __fmul_rn(__fmul_rn(__fmul_rn(x, r), w), act);
}

template <typename T, int V> __global__ void __launch_bounds__(THREADS) forward_kernel(mt_gated_norm a)
{
    int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (at >= a.N * a.H) return;
    item p = item_at(a, at);
    float r = rstd_of<T, V>(a, p.x, lane), slope;
    for (int64_t d = lane * V; d < a.D; d += 32 * V) {
        vec<T, V> x = load<T, V>((const T *)a.x + p.x + d), z = load<T, V>((const T *)a.gate + p.z + d),
                  w = load<T, V>((const T *)a.w + d), y;
#pragma unroll
        for (int e = 0; e < V; e++)
            y.at[e] = from_f32<T>(product(to_f32(x.at[e]), r, to_f32(w.at[e]), silu(to_f32(z.at[e]), &slope)));
        store<T, V>((T *)a.y + p.y + d, y);
    }
}

/* dw: this warp's sums, [D] in shared memory; a lane adds to its own columns alone. */
template <typename T, int V>
__device__ __forceinline__ void backward_item(const mt_gated_norm &a, int64_t at, int lane, float *dw)
{
    item p = item_at(a, at);
    float r = rstd_of<T, V>(a, p.x, lane), slope, sum = 0;
    for (int64_t d = lane * V; d < a.D; d += 32 * V) {
        vec<T, V> x = load<T, V>((const T *)a.x + p.x + d), z = load<T, V>((const T *)a.gate + p.z + d),
                  w = load<T, V>((const T *)a.w + d), dy = load<T, V>((const T *)a.dy + p.y + d);
#pragma unroll
        for (int e = 0; e < V; e++) {
            float uxh = to_f32(dy.at[e]) * silu(to_f32(z.at[e]), &slope) * (to_f32(x.at[e]) * r);
            sum += to_f32(w.at[e]) * uxh;
            dw[d + e] += uxh;
        }
    }
    float mean = warp_sum(sum) / (float)a.D;
    for (int64_t d = lane * V; d < a.D; d += 32 * V) {
        vec<T, V> x = load<T, V>((const T *)a.x + p.x + d), z = load<T, V>((const T *)a.gate + p.z + d),
                  w = load<T, V>((const T *)a.w + d), dy = load<T, V>((const T *)a.dy + p.y + d), dx, dz, y;
#pragma unroll
        for (int e = 0; e < V; e++) {
            float in = to_f32(x.at[e]), xh = in * r, weight = to_f32(w.at[e]), g = to_f32(dy.at[e]),
                  act = silu(to_f32(z.at[e]), &slope);
            dx.at[e] = from_f32<T>(r * (weight * g * act - xh * mean));
            dz.at[e] = from_f32<T>(g * weight * xh * slope);
            y.at[e] = from_f32<T>(product(in, r, weight, act));
        }
        store<T, V>((T *)a.dx + p.dx + d, dx);
        store<T, V>((T *)a.dgate + p.dz + d, dz);
        if (a.y) store<T, V>((T *)a.y + p.y + d, y);
    }
}

template <typename T, int V> __global__ void __launch_bounds__(THREADS) backward_kernel(mt_gated_norm a)
{
    extern __shared__ float shares[]; /* [WARPS][D] */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t from = (int64_t)blockIdx.x * ITEMS, to = from + ITEMS < a.N * a.H ? from + ITEMS : a.N * a.H;
    for (int64_t k = threadIdx.x; k < WARPS * a.D; k += THREADS) shares[k] = 0;
    __syncthreads();
    for (int64_t at = from + warp; at < to; at += WARPS) backward_item<T, V>(a, at, lane, shares + warp * a.D);
    __syncthreads();
    for (int64_t d = threadIdx.x; d < a.D; d += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += shares[w * a.D + d];
        ((float *)a.scratch)[(int64_t)blockIdx.x * a.D + d] = sum;
    }
}

template <typename T, int V> static void launch(mt_stream *s, const mt_gated_norm *a, bool back)
{
    int64_t items = a->N * a->H;
    size_t shared = (size_t)(WARPS * a->D) * sizeof(float);
    if (!back) {
        forward_kernel<T, V><<<(unsigned)div_up(items, WARPS), THREADS, 0, mt_cuda_raw(s)>>>(*a);
        return;
    }
    if (shared > 48 << 10)
        cudaFuncSetAttribute((const void *)backward_kernel<T, V>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    backward_kernel<T, V><<<(unsigned)div_up(items, ITEMS), THREADS, shared, mt_cuda_raw(s)>>>(*a);
}

enum { WIDE = 4 }; /* elements a lane takes at once where everything is aligned: 32 lanes take a head of 128 */

template <typename T> static bool is_whole(const mt_gated_norm *a, bool back)
{
    const size_t bytes = WIDE * sizeof(T);
    bool ok = a->D % WIDE == 0 && a->ldx % WIDE == 0 && a->ld_gate % WIDE == 0 && a->ldy % WIDE == 0 && is_aligned(a->x, bytes) &&
              is_aligned(a->gate, bytes) && is_aligned(a->w, bytes) && is_aligned(a->y, bytes);
    return ok && (!back || (a->ld_dx % WIDE == 0 && a->ld_dgate % WIDE == 0 && is_aligned(a->dy, bytes) &&
                            is_aligned(a->dx, bytes) && is_aligned(a->dgate, bytes)));
}

template <typename T> static void by_alignment(mt_stream *s, const mt_gated_norm *a, bool back)
{
    if (is_whole<T>(a, back))
        launch<T, WIDE>(s, a, back);
    else
        launch<T, 1>(s, a, back);
}

static mt_rc run(mt_stream *s, const mt_gated_norm *a, bool back, mt_err *err)
{
    if (a->N == 0) return MT_OK;
    if (a->t == MT_DTYPE_BF16)
        by_alignment<bf16>(s, a, back);
    else
        by_alignment<float>(s, a, back);
    return mt__cuda_launched(s, back ? "gated norm backward" : "gated norm", err);
}

mt_rc mt__gated_norm_fwd_cuda(mt_stream *s, const mt_gated_norm *a, mt_err *err) { return run(s, a, false, err); }

mt_rc mt__gated_norm_bwd_cuda(mt_stream *s, const mt_gated_norm *a, mt_err *err)
{
    MT_TRY(run(s, a, true, err));
    if (!a->dw || a->N == 0) return MT_OK;
    return mt__sum_rows_cuda(s, a->dw, (const float *)a->scratch, div_up(a->N * a->H, ITEMS), a->D, a->D, err);
}
