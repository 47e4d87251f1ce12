/* hopper.cuh - shared by the kernels that use wgmma and the copy engine: barriers in shared memory, on which copies and warpgroups wait
 * for each other, and boxes through which fp32 sums leave for memory, where the copy engine adds them. */
#ifndef MT_OPS_HOPPER_CUH
#define MT_OPS_HOPPER_CUH

#include "ops/attention_tiles.cuh"
#include <cuda.h>
#include <float.h>

enum { BOX = 32 }; /* columns and rows of the sums that the copy engine adds at once */

/* A matrix for the copy engine, or several in a row.  Its address and its row pitch are multiples of 16 bytes. */
typedef struct copied_matrix {
    const void *base;
    size_t each; /* bytes of a number: 2 (bf16), 4 (fp32) */
    int64_t cols, rows, ld;
    int64_t count; /* 0: one matrix, copied by two coordinates instead of three */
    int box_rows;  /* a copy moves a box: this many rows, 128 bytes of each */
} copied_matrix;

/* Writes the description that a kernel passes to the copy engine. */
mt_rc mt__describe_matrix(CUtensorMap *map, const copied_matrix *m, mt_err *err);

#if HAS_WGMMA

/* -- barriers -------------------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_begin(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
__device__ __forceinline__ void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Arrives when all that this thread copied has. */
__device__ __forceinline__ void barrier_arrive_copied(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Arrives; the phase does not end before the copy engine has delivered `bytes` bytes. */
__device__ __forceinline__ void barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
/* The same barrier of a block of the cluster. */
__device__ __forceinline__ void barrier_arrive_at(uint64_t *b, int rank)
{
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(
            shared_address(b)),
        "r"(rank)
        : "memory");
}
/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *b, int parity)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* -- sums that leave ------------------------------------------------------------------------------- */

/* Both of a pair of warps. */
__device__ __forceinline__ void warps_meet(int pair) { asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory"); }

/* A sum as memory adds it: the adder takes what is below 2^-126 for zero, so it is zero where it is written, too. */
__device__ __forceinline__ float as_added(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }

/* 32 x 32 sums of two warps, in the copy engine's swizzle of 16-byte pieces.  Lanes of odd rows take blocks of 8 columns in
 * another order, so that no two rows meet in a bank. */
__device__ __forceinline__ void pack_box(float *box, const float acc[][4], int chunk)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 64 / 32 * 16 + lane / 4;
    bool odd = lane / 4 % 2;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const float *even_x = acc[chunk * 4 + n] + 2 * high, *odd_x = acc[chunk * 4 + (n ^ 2)] + 2 * high;
            int piece = (odd ? n ^ 2 : n) * 2 + lane % 4 / 2;
            float *to = box + (row + 8 * high) * BOX + (piece ^ row % 8) * 4 + lane % 2 * 2;
            *(float2 *)to = make_float2(as_added(odd ? odd_x[0] : even_x[0]), as_added(odd ? odd_x[1] : even_x[1]));
        }
}

#endif
#endif
