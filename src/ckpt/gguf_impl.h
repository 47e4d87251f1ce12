/* gguf_impl.h - what the parts of the GGUF reader share: gguf.c reads the container, gguf_arch.c lists the architectures that are known,
 * gguf_model.c makes Hugging Face's tensors of a file's, gguf_config.c and gguf_tokenizer.c write Hugging Face's files, quants.c decodes blocks. */
#ifndef MT_CKPT_GGUF_IMPL_H
#define MT_CKPT_GGUF_IMPL_H

#include "base/arena.h"
#include "base/file.h"
#include "base/json_write.h"
#include "ckpt/gguf.h"
#include "ckpt/quants.h"
#include "ckpt/weight_file.h"

typedef enum mt__kv_type {
    MT_KV_U8,
    MT_KV_I8,
    MT_KV_U16,
    MT_KV_I16,
    MT_KV_U32,
    MT_KV_I32,
    MT_KV_F32,
    MT_KV_BOOL,
    MT_KV_STR,
    MT_KV_ARRAY,
    MT_KV_U64,
    MT_KV_I64,
    MT_KV_F64,
    MT_KV_TYPES
} mt__kv_type;

typedef struct mt__kv {
    const char *key;
    mt__kv_type type; /* of each item, where it is an array */
    bool array;
    uint64_t n;          /* items; 1 unless it is an array */
    const uint8_t *data; /* in the map: numbers one after another; strings as length and bytes */
} mt__kv;

/* A string in the map; not NUL-terminated. */
typedef struct mt__bytes {
    const char *s;
    size_t n;
} mt__bytes;

/* A tensor as the file describes it. */
typedef struct mt__gguf_raw {
    const char *name;
    const mt__quant *quant;
    int n_dims;
    int64_t shape[MT_ST_MAX_DIMS]; /* outermost first: the file's order reversed */
    size_t n, bytes;
    const uint8_t *data;
} mt__gguf_raw;

struct mt_gguf {
    mt_weight_file base; /* tensors: raws under their new names; rope_freqs is not among them */
    mt_arena arena;
    mt__kv *kvs;
    size_t n_kvs;
    mt__gguf_raw *raws;
    size_t n_raws;
    const char *arch; /* general.architecture */
};

/* NULL: no such key. */
const mt__kv *mt__gguf_find(const mt_gguf *g, const char *key);
/* "ARCH.key". */
const mt__kv *mt__gguf_find_arch(const mt_gguf *g, const char *key);
/* One number (or every item of an array alike); false: absent, or something else. */
bool mt__kv_number(const mt__kv *kv, double *out);
bool mt__kv_int(const mt__kv *kv, int64_t *out);
bool mt__kv_text(const mt__kv *kv, mt__bytes *out);
/* Item i of an array of numbers. */
double mt__kv_item(const mt__kv *kv, size_t i);
/* All items of an array of strings, allocated with mt_calloc; EFORMAT: it is none. */
mt_rc mt__kv_texts(const mt_gguf *g, const mt__kv *kv, mt__bytes **out, mt_err *err);
/* NULL: no such tensor. */
const mt__gguf_raw *mt__gguf_raw_find(const mt_gguf *g, const char *name);

/* Fill g->tensors. */
mt_rc mt__gguf_bind(mt_gguf *g, mt_err *err);
/* A size the architecture must state, at least 1. */
mt_rc mt__gguf_size(const mt_gguf *g, const char *key, int64_t *out, mt_err *err);
/* Heads, key/value heads and the width of one. */
mt_rc mt__gguf_heads(const mt_gguf *g, int64_t *H, int64_t *K, int64_t *Dh, mt_err *err);

/* -- gguf_arch.c ------------------------------------------------------------------------------------ */

typedef struct mt__gguf_name {
    const char *theirs, *ours;
} mt__gguf_name;

/* How an architecture's files differ from Hugging Face's. */
typedef struct mt__gguf_arch {
    const char *name; /* general.architecture */
    const char *model_type, *class;
    bool rows_reordered;                                           /* of q and k */
    bool norms_plus_one;                                           /* norm weights are stored as 1 + w */
    bool partial_rotary;                                           /* a part of each head may rotate */
    bool bias_key;                                                 /* config.json says whether q, k, v and o have biases */
    const mt__gguf_name *names;                                    /* of a layer's tensors, ended by NULL */
    mt_rc (*put)(const mt_gguf *g, mt_json_out *out, mt_err *err); /* writes its further config keys; or NULL */
} mt__gguf_arch;

/* NULL: not known. */
const mt__gguf_arch *mt__gguf_arch_of(const mt_gguf *g);

/* A float of the file, as a person wrote it. */
void mt__config_number(mt_json_out *out, const char *key, double d);

#endif
