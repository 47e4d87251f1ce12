/* unpickle_globals.c - everything that a pickle may name, and what a call of it makes.
 *
 * This is the list of what is allowed: nothing that is not a row of `globals` can be named, and a call only makes the plain value
 * that its row says.  No code of the pickle runs. */
#include "ckpt/unpickle_impl.h"

#include <string.h>

typedef mt_rc (*maker)(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);

static mt_rc make_dict(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);
static mt_rc make_size(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);
static mt_rc make_tensor(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);
static mt_rc make_tensor_v3(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);
static mt_rc make_parameter(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err);

typedef enum global_kind { CALLED, TYPED_STORAGE, UNTYPED_STORAGE, DTYPE } global_kind;

static const struct {
    const char *module, *name;
    global_kind kind;
    maker call;     /* CALLED */
    mt_dtype dtype; /* TYPED_STORAGE, DTYPE */
} globals[] = { { "collections", "OrderedDict", CALLED, make_dict, MT_DTYPE_F32 },
                { "torch", "Size", CALLED, make_size, MT_DTYPE_F32 },
                { "torch._utils", "_rebuild_tensor", CALLED, make_tensor, MT_DTYPE_F32 },
                { "torch._utils", "_rebuild_tensor_v2", CALLED, make_tensor, MT_DTYPE_F32 },
                { "torch._utils", "_rebuild_tensor_v3", CALLED, make_tensor_v3, MT_DTYPE_F32 },
                { "torch._utils", "_rebuild_parameter", CALLED, make_parameter, MT_DTYPE_F32 },
                { "torch", "FloatStorage", TYPED_STORAGE, NULL, MT_DTYPE_F32 },
                { "torch", "HalfStorage", TYPED_STORAGE, NULL, MT_DTYPE_F16 },
                { "torch", "BFloat16Storage", TYPED_STORAGE, NULL, MT_DTYPE_BF16 },
                { "torch", "DoubleStorage", TYPED_STORAGE, NULL, MT_DTYPE_F64 },
                { "torch", "LongStorage", TYPED_STORAGE, NULL, MT_DTYPE_I64 },
                { "torch", "IntStorage", TYPED_STORAGE, NULL, MT_DTYPE_I32 },
                { "torch", "ShortStorage", TYPED_STORAGE, NULL, MT_DTYPE_I16 },
                { "torch", "CharStorage", TYPED_STORAGE, NULL, MT_DTYPE_I8 },
                { "torch", "ByteStorage", TYPED_STORAGE, NULL, MT_DTYPE_U8 },
                { "torch", "BoolStorage", TYPED_STORAGE, NULL, MT_DTYPE_BOOL },
                { "torch", "UntypedStorage", UNTYPED_STORAGE, NULL, MT_DTYPE_U8 },
                { "torch.storage", "UntypedStorage", UNTYPED_STORAGE, NULL, MT_DTYPE_U8 },
#define DTYPE_ROW(n, bytes, st, torch) { "torch", torch, DTYPE, NULL, MT_DTYPE_##n },
                MT_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static bool same(const char *a, const char *b, size_t n) { return strlen(a) == n && memcmp(a, b, n) == 0; }

bool mt__pk_find_global(const char *module, size_t n_module, const char *name, size_t n_name, size_t *row)
{
    for (size_t i = 0; i < MT_COUNT(globals); i++) {
        if (!same(globals[i].module, module, n_module) || !same(globals[i].name, name, n_name)) continue;
        *row = i;
        return true;
    }
    return false;
}

static const mt__pk *arg(const mt__pk *args, size_t i) { return i < args->list.n ? args->list.items[i] : NULL; }

/* OrderedDict() or OrderedDict([(key, value), ...]). */
static mt_rc make_dict(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err)
{
    const mt__pk *pairs = arg(args, 0);
    *out = mt__pk_make(u, MT_PK_DICT);
    if (!*out) return pk_no_memory(u, err);
    if (!pairs) return MT_OK;
    if (args->list.n != 1 || pairs->type != MT_PK_LIST) return pk_bad(u, "OrderedDict is called in an unknown way", err);
    /* Each item took at least one byte to enter its list, and a real pickle turns a list into a dict once. */
    u->copied += pairs->list.n;
    if (u->copied > (size_t)(u->end - u->begin)) return pk_bad(u, "OrderedDict is called on the same list over and over", err);
    mt__pk **items = mt_arena_calloc(&u->arena, pairs->list.n, 2 * sizeof *items);
    if (!items) return pk_no_memory(u, err);
    for (size_t i = 0; i < pairs->list.n; i++) {
        const mt__pk *pair = pairs->list.items[i];
        if ((pair->type != MT_PK_TUPLE && pair->type != MT_PK_LIST) || pair->list.n != 2)
            return pk_bad(u, "OrderedDict is called in an unknown way", err);
        items[2 * i] = pair->list.items[0];
        items[2 * i + 1] = pair->list.items[1];
    }
    (*out)->list.items = items;
    (*out)->list.n = (*out)->list.cap = 2 * pairs->list.n;
    return MT_OK;
}

static mt_rc make_size(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err)
{
    if (args->list.n != 1 || arg(args, 0)->type != MT_PK_TUPLE) return pk_bad(u, "torch.Size is called in an unknown way", err);
    *out = args->list.items[0];
    return MT_OK;
}

static bool read_ints(const mt__pk *tuple, int64_t out[MT_ST_MAX_DIMS], int *n)
{
    if (!tuple || tuple->type != MT_PK_TUPLE || tuple->list.n > MT_ST_MAX_DIMS) return false;
    for (size_t i = 0; i < tuple->list.n; i++) {
        if (tuple->list.items[i]->type != MT_PK_INT || tuple->list.items[i]->i < 0) return false;
        out[i] = tuple->list.items[i]->i;
    }
    *n = (int)tuple->list.n;
    return true;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, ...); what follows concerns gradients. */
static mt_rc make_tensor(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err)
{
    const mt__pk *storage = arg(args, 0), *offset = arg(args, 1);
    int n_strides;
    mt__pk_tensor *t = mt_arena_calloc(&u->arena, 1, sizeof *t);
    *out = mt__pk_make(u, MT_PK_TENSOR);
    if (!t || !*out) return pk_no_memory(u, err);
    if (!storage || storage->type != MT_PK_STORAGE || !offset || offset->type != MT_PK_INT || offset->i < 0 ||
        !read_ints(arg(args, 2), t->shape, &t->n_dims) || !read_ints(arg(args, 3), t->stride, &n_strides) ||
        n_strides != t->n_dims)
        return pk_bad(u, "a tensor is described in an unknown way", err);
    t->storage = storage->storage;
    t->dtype = t->storage->dtype;
    t->offset = (uint64_t)offset->i;
    (*out)->tensor = t;
    return MT_OK;
}

/* _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, ...): the storage is bytes. */
static mt_rc make_tensor_v3(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err)
{
    const mt__pk *dtype = arg(args, 6);
    MT_TRY(make_tensor(u, args, out, err));
    if (!dtype || dtype->type != MT_PK_GLOBAL || globals[dtype->global].kind != DTYPE)
        return pk_bad(u, "a tensor is described in an unknown way", err);
    (*out)->tensor->dtype = globals[dtype->global].dtype;
    return MT_OK;
}

static mt_rc make_parameter(mt__unpickler *u, const mt__pk *args, mt__pk **out, mt_err *err)
{
    if (args->list.n < 1 || arg(args, 0)->type != MT_PK_TENSOR)
        return pk_bad(u, "a parameter is described in an unknown way", err);
    *out = args->list.items[0];
    return MT_OK;
}

mt_rc mt__pk_call(mt__unpickler *u, const mt__pk *fn, const mt__pk *args, mt__pk **out, mt_err *err)
{
    if (globals[fn->global].kind != CALLED)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: refused: calls %s.%s, which weights only name", u->path,
                       globals[fn->global].module, globals[fn->global].name);
    return globals[fn->global].call(u, args, out, err);
}

/* -- storages -------------------------------------------------------------------------------------- */

/* Room for one more key: the table has a fixed size, so a full one is made anew at twice that. */
static mt_rc grow_keys(mt__unpickler *u, mt_err *err)
{
    if (u->n_storages < u->cap_keys) return MT_OK;
    size_t cap = u->cap_keys ? 2 * u->cap_keys : 64;
    mt__names wider;
    if (!mt__names_init(&wider, cap)) return pk_no_memory(u, err);
    for (size_t i = 0; i < u->n_storages; i++) mt__names_add(&wider, u->storages[i]->key, i);
    mt__names_deinit(&u->keys);
    u->keys = wider;
    u->cap_keys = cap;
    return MT_OK;
}

static mt_rc find_storage(mt__unpickler *u, const mt__pk_storage *like, mt__pk_storage **out, mt_err *err)
{
    size_t i;
    if (mt__names_find(&u->keys, like->key, &i)) {
        *out = u->storages[i];
        if ((*out)->n == like->n && (*out)->dtype == like->dtype && (*out)->untyped == like->untyped) return MT_OK;
        return mt_fail(err, MT_EFORMAT, "%s: storage \"%.100s\" is described in two ways; the file is damaged", u->path,
                       like->key);
    }
    mt__pk_storage *s = mt_arena_alloc(&u->arena, sizeof *s);
    if (!s) return pk_no_memory(u, err);
    *s = *like;
    MT_TRY(mt_grow(&u->storages, &u->cap_storages, u->n_storages + 1, sizeof *u->storages, err));
    MT_TRY(grow_keys(u, err));
    mt__names_add(&u->keys, s->key, u->n_storages);
    u->storages[u->n_storages++] = *out = s;
    return MT_OK;
}

/* ('storage', type, key, place, count) or, in the old format, with a view as a sixth. */
mt_rc mt__pk_name_storage(mt__unpickler *u, const mt__pk *id, mt__pk **out, mt_err *err)
{
    if (!id || id->type != MT_PK_TUPLE || id->list.n < 5 || id->list.n > 6)
        return pk_bad(u, "a storage is described in an unknown way", err);
    const mt__pk *kind = arg(id, 0), *type = arg(id, 1), *key = arg(id, 2), *n = arg(id, 4), *view = arg(id, 5);
    if (kind->type != MT_PK_STR || strcmp(kind->str.s, "storage") != 0 || type->type != MT_PK_GLOBAL || key->type != MT_PK_STR ||
        n->type != MT_PK_INT || n->i < 0)
        return pk_bad(u, "a storage is described in an unknown way", err);
    if (globals[type->global].kind != TYPED_STORAGE && globals[type->global].kind != UNTYPED_STORAGE)
        return pk_bad(u, "a storage has no type", err);
    if (view && view->type != MT_PK_NONE)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: storage \"%.100s\" is a view of another, as very old versions of PyTorch wrote them; load and save it again",
            u->path, key->str.s);
    mt__pk *v = mt__pk_make(u, MT_PK_STORAGE);
    if (!v) return pk_no_memory(u, err);
    mt__pk_storage like = { .key = key->str.s,
                            .dtype = globals[type->global].dtype,
                            .untyped = globals[type->global].kind == UNTYPED_STORAGE,
                            .n = (uint64_t)n->i };
    *out = v;
    return find_storage(u, &like, &v->storage, err);
}
