/* dtype.h - the number formats weights and activations are stored in, and exact conversions. */
#ifndef MT_BASE_DTYPE_H
#define MT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* our name, bytes, safetensors' name, torch's name */
#define MT_DTYPE_LIST(X)                                                                                                         \
    X(F32, 4, "F32", "float32")                                                                                                  \
    X(BF16, 2, "BF16", "bfloat16")                                                                                               \
    X(F16, 2, "F16", "float16")                                                                                                  \
    X(F64, 8, "F64", "float64")                                                                                                  \
    X(I64, 8, "I64", "int64")                                                                                                    \
    X(I32, 4, "I32", "int32")                                                                                                    \
    X(I16, 2, "I16", "int16")                                                                                                    \
    X(I8, 1, "I8", "int8")                                                                                                       \
    X(U64, 8, "U64", "uint64")                                                                                                   \
    X(U32, 4, "U32", "uint32")                                                                                                   \
    X(U16, 2, "U16", "uint16")                                                                                                   \
    X(U8, 1, "U8", "uint8")                                                                                                      \
    X(BOOL, 1, "BOOL", "bool")                                                                                                   \
    X(F8_E4M3, 1, "F8_E4M3", "float8_e4m3fn")                                                                                    \
    X(F8_E5M2, 1, "F8_E5M2", "float8_e5m2")

typedef enum mt_dtype {
#define MT_DTYPE_ENUM(name, bytes, st, torch) MT_DTYPE_##name,
    MT_DTYPE_LIST(MT_DTYPE_ENUM)
#undef MT_DTYPE_ENUM
        MT_DTYPE_COUNT
} mt_dtype;

size_t mt_dtype_bytes(mt_dtype t);
const char *mt_dtype_name(mt_dtype t);                     /* "bfloat16" */
const char *mt_dtype_st_name(mt_dtype t);                  /* "BF16" */
bool mt_dtype_from_st(const char *name, mt_dtype *out);    /* safetensors' spelling */
bool mt_dtype_from_torch(const char *name, mt_dtype *out); /* "bfloat16", "torch.bfloat16", "bf16", "fp32", ... */

static inline uint32_t mt_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float mt_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float mt_bf16_to_f32(uint16_t h) { return mt_f32_from_bits((uint32_t)h << 16); }

/* Round to nearest, ties to even, as every GPU does; NaN stays NaN. */
static inline uint16_t mt_f32_to_bf16(float f)
{
    uint32_t u = mt_f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float mt_f16_to_f32(uint16_t h);
uint16_t mt_f32_to_f16(float f); /* nearest even */

/* n numbers from any float format to fp32, and back. */
void mt_to_f32(float *dst, const void *src, mt_dtype src_type, size_t n);
void mt_from_f32(void *dst, mt_dtype dst_type, const float *src, size_t n);

#endif
