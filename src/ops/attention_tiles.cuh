/* attention_tiles.cuh - tiles of rows in shared memory and the two products of attention, on the GPU's tensor cores.
 *
 * A *team* owns rows of the result: a warp 16 (mma.sync m16n8k16, every GPU from sm_80 on), or on Hopper a warpgroup 64
 * (wgmma m64nNk16, which reads its operands from shared memory itself, at twice the rate).  Both leave results in
 * registers the same way: lane l of a warp holds, of the warp's 16 rows, rows l/4 and l/4 + 8, columns 2(l%4) and the next
 * of every 8.  So the kernels above this are the same for both.
 *
 * Tiles for a warp have rows 8 elements longer than the head, so that the 8 rows of an ldmatrix are in different banks.  Tiles
 * for a warpgroup are columns of 64 elements, 128 bytes a row, in which 16-byte pieces swap places by the row's last three bits:
 * wgmma's 128-byte swizzle. */
#ifndef MT_OPS_ATTENTION_TILES_CUH
#define MT_OPS_ATTENTION_TILES_CUH

#include "ops/ops_cuda.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

/* Rows of a team: known to device code only, since it depends on what that is compiled for. */
template <int DH> __device__ constexpr int team(void) { return HAS_WGMMA && DH % 64 == 0 ? 64 : 16; }
template <int DH> __device__ constexpr int tile_elements(int rows) { return rows * (team<DH>() == 64 ? DH : DH + 8); }
/* Bytes of this many rows of tiles, in either layout; and what kernels request besides: wgmma's alignment. */
static constexpr size_t shared_for(int rows, int DH) { return (size_t)rows * (DH + 8) * sizeof(bf16); }
enum { SHARED_ALIGN = 1024 };

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Dynamic shared memory from the first address wgmma can swizzle. */
__device__ __forceinline__ bf16 *aligned_shared(unsigned char *p)
{
    return (bf16 *)(p + (1024 - shared_address(p) % 1024) % 1024);
}

/* -- bringing tiles in ----------------------------------------------------------------------------- */

/* 16 bytes (or 4) from global to shared memory, in the background; zeros if not wanted. */
__device__ __forceinline__ void copy16(void *dst, const void *src, bool wanted)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(wanted ? 16 : 0));
}
__device__ __forceinline__ void copy4(void *dst, const void *src, bool wanted)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(wanted ? 4 : 0));
}
__device__ __forceinline__ void copies_commit(void) { asm volatile("cp.async.commit_group;"); }

/* All copies but those of the LATER groups committed last have arrived, for every thread of the block and for the tensor
 * cores; and every team has done what it did before. */
template <int LATER> __device__ __forceinline__ void copies_arrive(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER));
#if HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;");
#endif
    __syncthreads();
}

/* The place of element (r, c) of a tile, c a multiple of 8. */
template <int ROWS, int DH> __device__ __forceinline__ bf16 *piece_of(bf16 *tile, int r, int c)
{
    if (team<DH>() == 16) return tile + r * (DH + 8) + c;
    return tile + c / 64 * ROWS * 64 + r * 64 + (c / 8 % 8 ^ r % 8) * 8;
}

/* A tile of rows [row0, row0 + ROWS) of one head, zeros past row N and past the head's width. */
template <int ROWS, int DH, int THREADS>
__device__ __forceinline__ void fetch_tile(bf16 *tile, const bf16 *head, int64_t ld, int row0, int N, int Dh)
{
    enum { PER_ROW = DH / 8 };
#pragma unroll
    for (int at = threadIdx.x; at < ROWS * PER_ROW; at += THREADS) {
        int r = at / PER_ROW, c = at % PER_ROW * 8;
        bool wanted = row0 + r < N && c < Dh;
        copy16(piece_of<ROWS, DH>(tile, r, c), wanted ? head + (int64_t)(row0 + r) * ld + c : head, wanted);
    }
}

/* -- a warp's products ----------------------------------------------------------------------------- */

__device__ __forceinline__ void ldmatrix(uint32_t r[4], const bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
__device__ __forceinline__ void ldmatrix_trans(uint32_t r[4], const bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

/* c [16, 8] += a [16, 16] b [16, 8] */
__device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pack(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
}

/* Results in registers, N columns of them, as the left operand of the next product. */
template <int N> __device__ __forceinline__ void as_operand(uint32_t a[][4], const float p[][4])
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const float *c0 = p[2 * k], *c1 = p[2 * k + 1];
        a[k][0] = pack(c0[0], c0[1]), a[k][1] = pack(c0[2], c0[3]);
        a[k][2] = pack(c1[0], c1[1]), a[k][3] = pack(c1[2], c1[3]);
    }
}

template <int N> __device__ __forceinline__ void clear(float acc[][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
}

/* Where a lane points ldmatrix at: rows of a left operand (and of a transposed right one), rows of a right operand. */
template <int LD> __device__ __forceinline__ const bf16 *a_rows(const bf16 *tile, int lane)
{
    return tile + (lane % 16) * LD + lane / 16 * 8;
}
template <int LD> __device__ __forceinline__ const bf16 *b_rows(const bf16 *tile, int lane)
{
    return tile + (lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8;
}

template <int NCOLS, int DH>
__device__ __forceinline__ void warp_times_transposed(float acc[][4], const bf16 *a, const bf16 *b, int lane)
{
    enum { LD = DH + 8 };
    const bf16 *pa = a_rows<LD>(a, lane), *pb = b_rows<LD>(b, lane);
    clear<NCOLS / 8>(acc);
#pragma unroll
    for (int k = 0; k < DH; k += 16) {
        uint32_t ra[4], rb[4];
        ldmatrix(ra, pa + k);
#pragma unroll
        for (int n = 0; n < NCOLS; n += 16) {
            ldmatrix(rb, pb + n * LD + k);
            mma(acc[n / 8], ra, rb[0], rb[1]);
            mma(acc[n / 8 + 1], ra, rb[2], rb[3]);
        }
    }
}

template <int NROWS, int DH>
__device__ __forceinline__ void warp_times(float acc[][4], const uint32_t a[][4], const bf16 *b, int lane)
{
    enum { LD = DH + 8 };
    const bf16 *pb = a_rows<LD>(b, lane);
#pragma unroll
    for (int k = 0; k < NROWS; k += 16) {
        uint32_t rb[4];
#pragma unroll
        for (int n = 0; n < DH; n += 16) {
            ldmatrix_trans(rb, pb + k * LD + n);
            mma(acc[n / 8], a[k / 16], rb[0], rb[1]);
            mma(acc[n / 8 + 1], a[k / 16], rb[2], rb[3]);
        }
    }
}

/* -- a warpgroup's products ------------------------------------------------------------------------ */

#if HAS_WGMMA

/* What wgmma needs to know of a tile: where, bytes to the next column of 64 elements, bytes to the next 8 rows, the swizzle. */
__device__ __forceinline__ uint64_t describe(const bf16 *p, int column_bytes)
{
    return (uint64_t)((shared_address(p) & 0x3ffff) >> 4) | (uint64_t)(column_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define REGS_15 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REGS_31 REGS_15 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_63                                                                                                                  \
    REGS_31 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "   \
            "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_95                                                                                                                  \
    REGS_63                                                                                                                      \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "      \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_127                                                                                                                 \
    REGS_63                                                                                                                      \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "      \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "          \
    "%108, "                                                                                                                     \
    "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ACC_1(d, i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define ACC_4(d, i)  ACC_1(d, i), ACC_1(d, i + 1), ACC_1(d, i + 2), ACC_1(d, i + 3)
#define ACC_8(d, i)  ACC_4(d, i), ACC_4(d, i + 4)
#define ACC_16(d, i) ACC_8(d, i), ACC_8(d, i + 8)
#define ACC_24(d, i) ACC_16(d, i), ACC_8(d, i + 16)
#define ACC_32(d, i) ACC_16(d, i), ACC_16(d, i + 16)

/* d [64, N] = (or +=) a [64, 16] b', both in shared memory row by row. */
#define WGMMA_BOTH(n, regs, acc, p0, p1, p2)                                                                                     \
    asm volatile("{ .reg .pred more; setp.ne.b32 more, " p2 ", 0;"                                                               \
                 " wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" regs "}, " p0 ", " p1 ", more, 1, 1, 0, 0; }"      \
                 : acc                                                                                                           \
                 : "l"(a), "l"(b), "r"((int)more))

template <int N> __device__ __forceinline__ void wgmma_both(float d[][4], uint64_t a, uint64_t b, bool more)
{
    if constexpr (N == 32) WGMMA_BOTH("32", REGS_15, ACC_4(d, 0), "%16", "%17", "%18");
    if constexpr (N == 64) WGMMA_BOTH("64", REGS_31, ACC_8(d, 0), "%32", "%33", "%34");
    if constexpr (N == 128) WGMMA_BOTH("128", REGS_63, ACC_16(d, 0), "%64", "%65", "%66");
}

/* d [64, N] += a [64, 16], in registers, times b [16, N], row by row in shared memory. */
#define WGMMA_LEFT(n, regs, acc, p0, p1, p2, p3, p4)                                                                             \
    asm volatile("{ .reg .pred more; setp.ne.b32 more, 1, 0;"                                                                    \
                 " wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" regs "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4    \
                 ", more, 1, 1, 1; }"                                                                                            \
                 : acc                                                                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <int N> __device__ __forceinline__ void wgmma_left(float d[][4], const uint32_t a[4], uint64_t b)
{
    if constexpr (N == 64) WGMMA_LEFT("64", REGS_31, ACC_8(d, 0), "%32", "%33", "%34", "%35", "%36");
    if constexpr (N == 128) WGMMA_LEFT("128", REGS_63, ACC_16(d, 0), "%64", "%65", "%66", "%67", "%68");
    if constexpr (N == 192) WGMMA_LEFT("192", REGS_95, ACC_24(d, 0), "%96", "%97", "%98", "%99", "%100");
    if constexpr (N == 256) WGMMA_LEFT("256", REGS_127, ACC_32(d, 0), "%128", "%129", "%130", "%131", "%132");
}

/* Registers are settled before; what was begun is one group. */
__device__ __forceinline__ void wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int AROWS, int NCOLS, int DH>
__device__ __forceinline__ void group_times_transposed(float acc[][4], const bf16 *a, const bf16 *b)
{
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < DH; k += 16)
        wgmma_both<NCOLS>(acc, describe(a + k / 64 * AROWS * 64 + k % 64, 16), describe(b + k / 64 * NCOLS * 64 + k % 64, 16),
                          k > 0);
    wgmma_commit();
}

template <int NROWS, int DH> __device__ __forceinline__ void group_times(float acc[][4], const uint32_t a[][4], const bf16 *b)
{
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < NROWS; k += 16) wgmma_left<DH>(acc, a[k / 16], describe(b + k * 64, NROWS * 128));
    wgmma_commit();
}

#endif

/* -- the two products ------------------------------------------------------------------------------ */

/* Both only start; finish() waits.  Until then acc, the operand's registers and the tiles must not be touched. */

/* acc [team, NCOLS] = rows of tile a [AROWS, DH], from row0 on, times tile b [NCOLS, DH], transposed. */
template <int AROWS, int NCOLS, int DH>
__device__ __forceinline__ void start_times_transposed(float acc[][4], const bf16 *a, int row0, const bf16 *b, int lane)
{
#if HAS_WGMMA
    if constexpr (team<DH>() == 64) {
        group_times_transposed<AROWS, NCOLS, DH>(acc, a + row0 * 64, b);
        return;
    }
#endif
    warp_times_transposed<NCOLS, DH>(acc, a + row0 * (DH + 8), b, lane);
}

/* acc [team, DH] += a [team, NROWS], in registers, times tile b [NROWS, DH]. */
template <int NROWS, int DH>
__device__ __forceinline__ void start_times(float acc[][4], const uint32_t a[][4], const bf16 *b, int lane)
{
#if HAS_WGMMA
    if constexpr (team<DH>() == 64) {
        group_times<NROWS, DH>(acc, a, b);
        return;
    }
#endif
    warp_times<NROWS, DH>(acc, a, b, lane);
}

/* All products but the LATER last started are done.  acc [team, 8 N] is one of them: naming it here keeps the compiler from
 * reading it earlier. */
template <int DH, int LATER, int N> __device__ __forceinline__ void finish(float acc[][4])
{
#if HAS_WGMMA
    if constexpr (team<DH>() == 64) {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
#pragma unroll
        for (int n = 0; n < N; n++)
            asm volatile("" : "+f"(acc[n][0]), "+f"(acc[n][1]), "+f"(acc[n][2]), "+f"(acc[n][3])::"memory");
    }
#endif
}

#endif
