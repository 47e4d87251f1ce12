/* slot_cuda.cu - copies between the device and host memory that the system would not pin.
 *
 * Given such memory, CUDA makes its caller wait until the copy is done, and every stream with it.  So it goes in pieces through a slot that is
 * pinned, one a stream: coming in, the stream's own host function fills the slot and a copy empties it; going out, the other way round.  A
 * stream does one thing after the other, so nothing else keeps the slot's uses apart, and the caller waits for none of it. */
#include "device/device_cuda.cuh"

extern "C" {
#include "base/units.h"
}

enum { SLOT_BYTES = 16 << 20 };

/* One piece between the slot and memory; freed when done. */
typedef struct piece {
    void *dst;
    const void *src;
    size_t bytes;
} piece;

static void CUDART_CB move_piece(void *arg)
{
    piece *p = (piece *)arg;
    memcpy(p->dst, p->src, p->bytes);
    mt_free(p);
}

static cudaError_t queue_piece(mt_stream *s, void *dst, const void *src, size_t bytes)
{
    piece *p = (piece *)mt_calloc(1, sizeof *p);
    if (!p) return cudaErrorMemoryAllocation;
    *p = piece{ dst, src, bytes };
    cudaError_t status = cudaLaunchHostFunc(mt_cuda_raw(s), move_piece, p);
    if (status != cudaSuccess) mt_free(p);
    return status;
}

static cudaError_t copy_piece(mt_stream *s, void *slot, char *dst, const char *src, size_t bytes, mt_copy_dir dir)
{
    if (dir == MT_COPY_IN) {
        cudaError_t status = queue_piece(s, slot, src, bytes);
        return status != cudaSuccess ? status : cudaMemcpyAsync(dst, slot, bytes, cudaMemcpyHostToDevice, mt_cuda_raw(s));
    }
    cudaError_t status = cudaMemcpyAsync(slot, src, bytes, cudaMemcpyDeviceToHost, mt_cuda_raw(s));
    return status != cudaSuccess ? status : queue_piece(s, dst, slot, bytes);
}

mt_rc mt__cuda_copy_by_slot(mt_stream *stream, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    mt_cuda_stream *s = (mt_cuda_stream *)stream;
    cudaError_t status = cudaSuccess;
    if (!s->slot && cudaHostAlloc(&s->slot, SLOT_BYTES, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        s->slot = NULL;
        return mt_fail(err, MT_ENOMEM, "%s of pinned host memory for copies cannot be had; raise the limit of locked memory (ulimit -l), or free some RAM",
                       mt_bytes_text(SLOT_BYTES).s);
    }
    for (size_t at = 0; at < bytes && status == cudaSuccess; at += SLOT_BYTES) {
        size_t n = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        status = copy_piece(stream, s->slot, (char *)dst + at, (const char *)src + at, n, dir);
    }
    return mt__cuda_check(stream->dev, status, "a copy of memory that is not pinned", err);
}
