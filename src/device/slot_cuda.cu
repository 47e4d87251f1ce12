/* slot_cuda.cu - what slots.h asks of CUDA: pinned memory, and a host function in a stream's order. */
#include "device/device_cuda.cuh"

extern "C" {
#include "base/units.h"
#include "device/slots.h"
}

static mt_rc alloc_slot(mt_device *dev, void **out, size_t bytes, mt_err *err)
{
    (void)dev;
    if (cudaHostAlloc(out, bytes, cudaHostAllocPortable) == cudaSuccess) return MT_OK;
    cudaGetLastError();
    *out = NULL;
    return mt_fail(
        err, MT_ENOMEM,
        "%s of pinned host memory for copies cannot be had; raise the limit of locked memory (ulimit -l), or free some RAM",
        mt_bytes_text(bytes).s);
}

static void free_slot(mt_device *dev, void *p)
{
    (void)dev;
    cudaFreeHost(p);
}

static mt_rc call_in_order(mt_stream *s, void (*fn)(void *), void *arg, mt_err *err)
{
    return mt__cuda_check(s->dev, cudaLaunchHostFunc(mt_cuda_raw(s), fn, arg), "a copy of memory that is not pinned", err);
}

mt_rc mt__cuda_copy_by_slots(mt_stream *stream, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err)
{
    static const mt_slots_how how = { .alloc = alloc_slot, .free = free_slot, .call = call_in_order };
    mt_cuda_stream *s = (mt_cuda_stream *)stream;
    if (!s->slots) MT_TRY(mt_slots_create(&s->slots, stream->dev, &how, MT_DEVICE_SLOTS_BYTES, err));
    return mt_slots_copy(s->slots, stream, dst, src, bytes, dir, err);
}
