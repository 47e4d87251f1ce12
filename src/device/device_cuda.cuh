/* device_cuda.cuh - what CUDA's ops need from the CUDA device: the raw stream, the product library, and sticky errors.
 * Every .cu file starts here, and only .cu files do. */
#ifndef MT_DEVICE_DEVICE_CUDA_CUH
#define MT_DEVICE_DEVICE_CUDA_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "base/err.h"
#include "base/mem.h"
#include "device/device.h"
}

typedef struct mt_cuda_stream {
    mt_stream base;
    cudaStream_t raw;
    void *workspace;        /* of the product library; one a stream, since products on two streams may overlap */
    struct mt_slots *slots; /* for copies of memory that is not pinned (slots.h); NULL until one comes */
} mt_cuda_stream;

/* Products that add to a larger output are not timed: what there is room for must not decide. */
static const size_t MT_CUDA_TIMING_BYTES = (size_t)512 << 20;

/* What the ops see of the device. */
typedef struct mt_cuda_device {
    mt_device base;
    int index;
    int n_sms;
    size_t shared_bytes;    /* shared memory that a block may use */
    bool hopper;            /* compute capability 9.0, and code for it: warpgroup products */
    bool clusters;          /* the same of 9.0 and later: blocks that reach into each other's shared memory */
    struct mt_tuned *tuned; /* products are chosen by timing them, and here are the choices; NULL: they are not */
    void *timing;           /* with `tuned`: MT_CUDA_TIMING_BYTES, which a product is timed into */
    cublasLtHandle_t lt;
    void *workspace;              /* MT_DEVICE_WORKSPACE_BYTES; NULL while a stream has it */
    struct mt_choices *choices;   /* which kernel multiplies which shape (choices.h), */
    struct mt_cuda_device *first; /* chosen for this device: itself, or the first lane's */
    int fours[3];        /* clusters of four blocks that run at a time, for each kernel of dense_hopper.cu; -1: not asked yet */
    int64_t n_own;       /* products by that kernel */
    bool told_slow;      /* that a product has no kernel in the library */
    bool told_attention; /* that cuDNN has none for some attention */
    bool cudnn_tried;    /* cuDNN is loaded when an op first wants it */
    void *cudnn;         /* what the op keeps of it, or NULL */
    void (*cudnn_close)(void *cudnn);
} mt_cuda_device;

static inline mt_cuda_device *mt_cuda_device_of(const mt_stream *s) { return (mt_cuda_device *)s->dev; }
static inline cudaStream_t mt_cuda_raw(const mt_stream *s) { return ((const mt_cuda_stream *)s)->raw; }

extern "C" {
/* MT_OK, or the sticky error of the device: the first thing a call that queues work asks. */
mt_rc mt__cuda_ready(mt_device *dev, mt_err *err);
/* Turns a CUDA status into an error, and keeps it. */
mt_rc mt__cuda_check(mt_device *dev, cudaError_t status, const char *what, mt_err *err);
/* After a kernel launch. */
mt_rc mt__cuda_launched(mt_stream *s, const char *what, mt_err *err);
/* cudaMemcpyAsync for host memory that is not pinned: through the stream's slots. */
mt_rc mt__cuda_copy_by_slots(mt_stream *s, void *dst, const void *src, size_t bytes, mt_copy_dir dir, mt_err *err);
/* The stream's workspace for products: the device's, lent to the first stream that asks; later ones get their own. */
mt_rc mt__cuda_workspace(mt_stream *s, void **out, mt_err *err);
}

#endif
