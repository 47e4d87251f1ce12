/* unpickle_impl.h - what the machine (unpickle.c) and the list of allowed names (unpickle_globals.c) share.  Only they include it. */
#ifndef MT_CKPT_UNPICKLE_IMPL_H
#define MT_CKPT_UNPICKLE_IMPL_H

#include "base/mem.h"
#include "ckpt/unpickle.h"

/* Fails because of a problem at the current byte.  Inline, so that the compiler sees that it is not success. */
static inline mt_rc pk_bad(const mt__unpickler *u, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: %s at byte %zu of the pickle; the file is damaged, or was not written by torch.save",
                   u->path, problem, (size_t)(u->at - u->begin));
}

/* -- unpickle.c -- */

/* A new value in the arena, all zero; NULL: no memory. */
mt__pk *mt__pk_make(mt__unpickler *u, mt__pk_type type);
static inline mt_rc pk_no_memory(const mt__unpickler *u, mt_err *err)
{
    return mt_no_memory(err, "reading the list of tensors of %s", u->path);
}

/* -- unpickle_globals.c -- */

/* The row of a name in the list of allowed ones; false: it is not allowed. */
bool mt__pk_find_global(const char *module, size_t n_module, const char *name, size_t n_name, size_t *row);
/* The value that a call of an allowed name (a MT_PK_GLOBAL) with these arguments (a tuple) makes. */
mt_rc mt__pk_call(mt__unpickler *u, const mt__pk *fn, const mt__pk *args, mt__pk **out, mt_err *err);
/* The storage that a persistent id describes. */
mt_rc mt__pk_name_storage(mt__unpickler *u, const mt__pk *id, mt__pk **out, mt_err *err);

#endif
