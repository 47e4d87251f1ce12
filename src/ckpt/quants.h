/* quants.h - ggml's ways of storing numbers: blocks of 32 or 256 with their scales. */
#ifndef MT_CKPT_QUANTS_H
#define MT_CKPT_QUANTS_H

#include "ckpt/tensor.h"

typedef struct mt__quant {
    uint32_t id; /* in the file */
    const char *name;
    size_t block_n, block_bytes;
    mt_dtype dtype;                                   /* of the numbers as the program sees them */
    void (*decode)(const uint8_t *block, float *out); /* block_n numbers; NULL: plain */
} mt__quant;

enum { MT_QUANT_MAX_N = 256 };

/* NULL: not one we read; *name is then what it is called, or NULL. */
const mt__quant *mt__quant_find(uint32_t id, const char **name);
/* Numbers [first, first + n) of blocks that follow each other. */
void mt__quant_read(const mt__quant *q, const uint8_t *data, size_t first, size_t n, float *out);

#endif
