/* hopper.cu - descriptions of matrices for the copy engine. */
#include "ops/hopper.cuh"
#include <cudaTypedefs.h>

/* The driver's function, kept once it is found.  Lanes that look for it at the same time all find the same. */
static PFN_cuTensorMapEncodeTiled_v12000 encoder(void)
{
    static void *encode;
    cudaDriverEntryPointQueryResult found;
    void *p = __atomic_load_n(&encode, __ATOMIC_ACQUIRE);
    if (p) return (PFN_cuTensorMapEncodeTiled_v12000)p;
#if CUDART_VERSION >= 12050
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &found);
#else
    cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &found);
#endif
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return NULL;
    __atomic_store_n(&encode, p, __ATOMIC_RELEASE);
    return (PFN_cuTensorMapEncodeTiled_v12000)p;
}

mt_rc mt__describe_matrix(CUtensorMap *map, const copied_matrix *m, mt_err *err)
{
    const int64_t rows = m->rows ? m->rows : 1; /* which no tile reads; the driver refuses a matrix without rows */
    const cuuint64_t size[] = { (cuuint64_t)m->cols, (cuuint64_t)rows, (cuuint64_t)m->count };
    const cuuint64_t bytes[] = { (cuuint64_t)m->ld * m->each, (cuuint64_t)(rows * m->ld) * m->each };
    const cuuint32_t box[] = { (cuuint32_t)(128 / m->each), (cuuint32_t)m->box_rows, 1 }, every[] = { 1, 1, 1 };
    const CUtensorMapDataType type = m->each == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    CUresult r = CUDA_ERROR_NOT_FOUND;
    if (encoder())
        r = encoder()(map, type, m->count ? 3 : 2, (void *)m->base, size, bytes, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return MT_OK;
    return mt_fail(err, MT_EINTERNAL,
                   "a product: the driver cannot describe a matrix of %lld x %lld to the copy engine (error %d)",
                   (long long)m->rows, (long long)m->cols, (int)r);
}
