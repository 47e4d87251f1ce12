/* unpickle.h - the part of Python's pickle language that weights are written in, and nothing more.
 *
 * A pickle is a program: it names functions and calls them, so a hostile one can do anything its reader can.  This
 * reader calls nothing.  It knows by name what torch.save uses (a table in unpickle_globals.c), turns those calls into plain values,
 * and refuses every other name or opcode with a message that says which.
 *
 * Values live in the machine's arena.  Lists and dicts can be shared and can hold themselves: walk them with a bound. */
#ifndef MT_CKPT_UNPICKLE_H
#define MT_CKPT_UNPICKLE_H

#include "base/arena.h"
#include "ckpt/names.h"
#include "ckpt/tensor.h"

typedef enum mt__pk_type {
    MT_PK_NONE,
    MT_PK_BOOL,
    MT_PK_INT,
    MT_PK_FLOAT,
    MT_PK_STR,
    MT_PK_TUPLE,
    MT_PK_LIST,
    MT_PK_DICT,    /* items are key, value, key, value, ... in the order they were set */
    MT_PK_GLOBAL,  /* a name from the table, not called */
    MT_PK_STORAGE, /* numbers in the file that tensors are views of */
    MT_PK_TENSOR,
    MT_PK_MARK, /* inside the machine only */
} mt__pk_type;

typedef struct mt__pk mt__pk;

typedef struct mt__pk_storage {
    const char *key; /* its name in the file */
    bool untyped;    /* n counts bytes; the tensor has the dtype */
    mt_dtype dtype;
    uint64_t n;
    const uint8_t *data; /* set by the caller, who knows the file; NULL: missing */
} mt__pk_storage;

typedef struct mt__pk_tensor {
    mt__pk_storage *storage;
    mt_dtype dtype;
    uint64_t offset; /* in numbers */
    int n_dims;
    int64_t shape[MT_ST_MAX_DIMS], stride[MT_ST_MAX_DIMS];
} mt__pk_tensor;

struct mt__pk {
    mt__pk_type type;
    union {
        int64_t i; /* BOOL, INT */
        double f;
        struct {
            const char *s; /* NUL-terminated */
            size_t n;
        } str;
        struct {
            mt__pk **items;
            size_t n, cap;
        } list;        /* TUPLE, LIST, DICT */
        size_t global; /* row of the table */
        mt__pk_storage *storage;
        mt__pk_tensor *tensor;
    };
};

typedef struct mt__unpickler {
    mt_arena arena;
    const char *path; /* for messages; borrowed */
    mt__pk_storage **storages;
    size_t n_storages, cap_storages;
    mt__names keys; /* storage key -> index in storages */
    size_t cap_keys;
    /* while one pickle runs */
    const uint8_t *at, *end, *begin;
    mt__pk **stack;
    size_t n_stack, cap_stack;
    mt__pk **memo;
    size_t n_memo, cap_memo;
    size_t copied; /* items that calls have copied */
} mt__unpickler;

enum { MT_PK_MAX_BYTES = 256 << 20 }; /* of one pickle; a tensor takes about 200 */

/* Run one pickle at the start of bytes.  *used (if given) is its length; without it nothing may follow.  The storages it
 * names are added to u->storages, each key once. */
mt_rc mt__unpickle(mt__unpickler *u, const uint8_t *bytes, size_t n, size_t *used, mt__pk **out, mt_err *err);
void mt__unpickler_deinit(mt__unpickler *u);

/* The value at a key; NULL: v is not a dict, or lacks the key. */
const mt__pk *mt__pk_get(const mt__pk *v, const char *key);

#endif
