#include "ckpt/pickle.h"

#include "base/file.h"
#include "base/str.h"
#include "base/le.h"
#include "ckpt/names.h"
#include "ckpt/unpickle.h"
#include "ckpt/weight_file.h"
#include "ckpt/zip.h"

#include <string.h>

struct mt_pickle {
    mt_weight_file base;
    mt__unpickler machine; /* names and storages live in its arena */
    mt__zip zip;           /* zip form only */
    mt__names names;       /* name -> index in tensors */
};

static mt_rc damaged(const mt_pickle *p, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: %s; the file is damaged or incomplete, download it again", p->base.path, problem);
}

/* -- views with strides ---------------------------------------------------------------------------- */

typedef struct strided {
    mt_st_decoder base;
    const uint8_t *data; /* of the first number */
    mt_dtype dtype;
    int n_dims;
    int64_t shape[MT_ST_MAX_DIMS], stride[MT_ST_MAX_DIMS]; /* in numbers */
} strided;

/* All of the view. */
static int spans_of_strided(const mt_st_decoder *d, size_t first, size_t n, mt_st_span *out)
{
    const strided *s = (const strided *)d;
    size_t numbers = 1;
    (void)first;
    (void)n;
    for (int k = 0; k < s->n_dims; k++) numbers += (size_t)(s->shape[k] - 1) * (size_t)s->stride[k];
    *out = (mt_st_span){ NULL, s->data, numbers * mt_dtype_bytes(s->dtype) };
    return 1;
}

static void read_strided(const mt_st_decoder *d, size_t first, size_t n, float *out)
{
    const strided *s = (const strided *)d;
    int64_t at[MT_ST_MAX_DIMS] = { 0 }, offset = 0;
    size_t size = mt_dtype_bytes(s->dtype), rest = first;
    for (int k = s->n_dims; k-- > 0; rest /= (size_t)s->shape[k]) {
        at[k] = (int64_t)(rest % (size_t)s->shape[k]);
        offset += at[k] * s->stride[k];
    }
    for (size_t i = 0; i < n; i++) {
        mt_to_f32(out + i, s->data + (size_t)offset * size, s->dtype, 1);
        for (int k = s->n_dims; k-- > 0;) { /* the next place, as an odometer turns */
            offset += s->stride[k];
            if (++at[k] < s->shape[k]) break;
            offset -= at[k] * s->stride[k];
            at[k] = 0;
        }
    }
}

static bool contiguous(const mt__pk_tensor *t)
{
    int64_t expected = 1;
    for (int k = t->n_dims; k-- > 0;) {
        if (t->shape[k] != 1 && t->stride[k] != expected) return false;
        expected *= t->shape[k];
    }
    return true;
}

/* Index of the last number a tensor touches, plus 1; false: it does not fit 64 bits. */
static bool extent(const mt__pk_tensor *t, size_t *out)
{
    size_t end = (size_t)t->offset, reach;
    for (int k = 0; k < t->n_dims; k++)
        if (!mt_mul_size((size_t)(t->shape[k] - 1), (size_t)t->stride[k], &reach) || !mt_add_size(end, reach, &end)) return false;
    return mt_add_size(end, 1, out);
}

static mt_rc bad_tensor(const mt_pickle *p, const char *name, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\": %s; the file is damaged or incomplete, download it again",
                   p->base.path, name, problem);
}

static mt_rc make_strided(mt_pickle *p, mt_st_tensor *t, const mt__pk_tensor *from, const uint8_t *data, mt_err *err)
{
    if (!mt_st_is_float(t))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%.200s\" is a view of %s with strides; only floats are read that way",
                       p->base.path, t->name, mt_dtype_st_name(t->dtype));
    strided *s = mt_arena_alloc(&p->machine.arena, sizeof *s);
    if (!s) return mt_no_memory(err, "the list of tensors of %s", p->base.path);
    *s = (strided){ .base = { .read = read_strided, .spans = spans_of_strided, .scattered = true },
                    .data = data,
                    .dtype = t->dtype,
                    .n_dims = t->n_dims };
    memcpy(s->shape, from->shape, sizeof s->shape);
    for (int k = 0; k < t->n_dims; k++)
        s->stride[k] =
            from->shape[k] == 1 ? 0 : from->stride[k]; /* a dimension of 1 never takes its stride, which may be any number */
    t->decoder = &s->base;
    return MT_OK;
}

static mt_rc fill_tensor(mt_pickle *p, mt_st_tensor *t, const mt__pk_tensor *from, mt_err *err)
{
    const mt__pk_storage *s = from->storage;
    /* The tensor's own type need not be its storage's.  The product is that of storage_bytes, which did not overflow. */
    size_t end, size = mt_dtype_bytes(from->dtype), room = (size_t)s->n * mt_dtype_bytes(s->dtype) / size;
    t->dtype = from->dtype;
    t->n_dims = from->n_dims;
    memcpy(t->shape, from->shape, sizeof t->shape);
    if (!mt_st_size(t->dtype, t->n_dims, t->shape, &t->n, &t->bytes))
        return bad_tensor(p, t->name, "its shape is larger than any memory", err);
    if (!s->data) return bad_tensor(p, t->name, "its numbers are not in the file", err);
    t->data = s->data; /* where an empty tensor stays */
    if (t->n == 0) return MT_OK;
    if (!extent(from, &end) || end > room) return bad_tensor(p, t->name, "it reaches past the end of its storage", err);
    t->data = s->data + (size_t)from->offset * size;
    if (contiguous(from)) return MT_OK;
    /* A stride of 0 repeats one number any number of times.  Comparing or copying such a tensor would never end. */
    if (t->bytes > p->base.n_bytes)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: tensor \"%.200s\" is a view that repeats its numbers: %s of %zu in the file, which has %zu bytes in "
                       "all.  Load it "
                       "with PyTorch and save it with .contiguous()",
                       p->base.path, t->name, mt_st_shape_text(t->n_dims, t->shape).s, room, p->base.n_bytes);
    const uint8_t *first = t->data;
    t->data = NULL;
    return make_strided(p, t, from, first, err);
}

/* -- from the unpickled value to a list of tensors ---------------------------------------------------- */

static size_t count_tensors(const mt__pk *v)
{
    size_t n = 0;
    if (v && v->type == MT_PK_DICT)
        for (size_t i = 0; i + 1 < v->list.n; i += 2)
            n += v->list.items[i]->type == MT_PK_STR && v->list.items[i + 1]->type == MT_PK_TENSOR;
    return n;
}

/* The dict that holds the tensors: the value itself, or what training programs wrap it in. */
static const mt__pk *find_state_dict(const mt__pk *top)
{
    static const char *const wraps[] = { "state_dict", "model", "module", "model_state_dict" };
    if (count_tensors(top)) return top;
    for (size_t i = 0; i < MT_COUNT(wraps); i++) {
        const mt__pk *inner = mt__pk_get(top, wraps[i]);
        if (count_tensors(inner)) return inner;
    }
    return NULL;
}

static mt_rc list_tensors(mt_pickle *p, const mt__pk *top, mt_err *err)
{
    const mt__pk *dict = find_state_dict(top);
    if (!dict) return mt_fail(err, MT_EFORMAT, "%s: no tensors with names in it; these are not a model's weights", p->base.path);
    size_t n = count_tensors(dict);
    p->base.tensors = mt_calloc(n, sizeof *p->base.tensors);
    if (!p->base.tensors || !mt__names_init(&p->names, n)) return mt_no_memory(err, "the list of tensors of %s", p->base.path);
    for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
        const mt__pk *key = dict->list.items[i], *value = dict->list.items[i + 1];
        if (key->type != MT_PK_STR || value->type != MT_PK_TENSOR) continue; /* a step count, say */
        if (strlen(key->str.s) != key->str.n) return damaged(p, "a tensor has a NUL in its name", err);
        size_t at = mt__names_add(&p->names, key->str.s, p->base.n_tensors); /* of two with one name the last counts */
        p->base.tensors[at] = (mt_st_tensor){ .name = key->str.s, .file = mt_path_base(p->base.path), .map = &p->base.map };
        MT_TRY(fill_tensor(p, &p->base.tensors[at], value->tensor, err));
        if (at == p->base.n_tensors) p->base.n_tensors++;
    }
    return MT_OK;
}

static bool storage_bytes(const mt__pk_storage *s, size_t *out)
{
    return s->n <= SIZE_MAX && mt_mul_size((size_t)s->n, mt_dtype_bytes(s->dtype), out);
}

/* -- the zip form: NAME/data.pkl and NAME/data/KEY ---------------------------------------------------- */

static const char list_name[] = "data.pkl";

static const mt__zip_entry *find_list(const mt_pickle *p, size_t *n_prefix)
{
    for (size_t i = 0; i < p->zip.n_entries; i++) {
        const char *base = mt_path_base(p->zip.entries[i].name);
        if (strcmp(base, list_name) != 0) continue;
        *n_prefix = (size_t)(base - p->zip.entries[i].name);
        return &p->zip.entries[i];
    }
    return NULL;
}

/* An entry of the same archive folder; *out NULL: it has none of that name. */
static mt_rc find_beside(const mt_pickle *p, const mt__zip_entry *list, size_t n_prefix, const char *folder, const char *name,
                         const mt__zip_entry **out, mt_err *err)
{
    char *path = mt_asprintf("%.*s%s%s", (int)n_prefix, list->name, folder, name);
    if (!path) return mt_no_memory(err, "the list of tensors of %s", p->base.path);
    *out = mt__zip_find(&p->zip, path);
    mt_free(path);
    return MT_OK;
}

static mt_rc check_byte_order(const mt_pickle *p, const mt__zip_entry *list, size_t n_prefix, mt_err *err)
{
    const mt__zip_entry *order;
    MT_TRY(find_beside(p, list, n_prefix, "", "byteorder", &order, err));
    if (!order || (order->bytes == 6 && memcmp(order->data, "little", 6) == 0)) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "%s: written on a big-endian machine; load and save it again with PyTorch",
                   p->base.path);
}

static mt_rc read_zip(mt_pickle *p, mt_err *err)
{
    size_t n_prefix = 0, bytes;
    mt__pk *top;
    MT_TRY(mt__zip_init(&p->zip, p->base.bytes, p->base.n_bytes, p->base.path, err));
    const mt__zip_entry *list = find_list(p, &n_prefix);
    if (!list) return mt_fail(err, MT_EFORMAT, "%s: an archive without %s; torch.save did not write it", p->base.path, list_name);
    MT_TRY(check_byte_order(p, list, n_prefix, err));
    MT_TRY(mt__unpickle(&p->machine, list->data, list->bytes, NULL, &top, err));
    for (size_t i = 0; i < p->machine.n_storages; i++) {
        mt__pk_storage *s = p->machine.storages[i];
        const mt__zip_entry *e;
        MT_TRY(find_beside(p, list, n_prefix, "data/", s->key, &e, err));
        if (!e)
            return mt_fail(err, MT_EFORMAT, "%s: storage \"%.100s\" is not in the archive; download the file again", p->base.path,
                           s->key);
        if (!storage_bytes(s, &bytes) || bytes > e->bytes)
            return mt_fail(err, MT_EFORMAT,
                           "%s: storage \"%.100s\" has %zu bytes, too few for its %llu numbers; download the file again",
                           p->base.path, s->key, e->bytes, (unsigned long long)s->n);
        s->data = e->data;
    }
    return list_tensors(p, top, err);
}

/* -- the older form: four pickles (a magic number, a version, the machine, the list), the storages' keys, and each one's
 *    count and numbers -------------------------------------------------------------------------------- */

static const uint8_t legacy_magic[] = { 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.' };

static bool is_legacy(const mt_pickle *p)
{
    return p->base.n_bytes >= 2 + sizeof legacy_magic && p->base.bytes[0] == 0x80 &&
           memcmp(p->base.bytes + 2, legacy_magic, sizeof legacy_magic) == 0;
}

static mt_rc next_pickle(mt_pickle *p, size_t *at, mt__pk **out, mt_err *err)
{
    size_t used;
    MT_TRY(mt__unpickle(&p->machine, p->base.bytes + *at, p->base.n_bytes - *at, &used, out, err));
    *at += used;
    return MT_OK;
}

static mt_rc place_storage(mt_pickle *p, const mt__pk *key, size_t *at, mt_err *err)
{
    size_t i, bytes;
    if (key->type != MT_PK_STR || !mt__names_find(&p->machine.keys, key->str.s, &i))
        return damaged(p, "it holds numbers that no tensor names", err);
    mt__pk_storage *s = p->machine.storages[i];
    if (p->base.n_bytes - *at < 8 || mt__le64(p->base.bytes + *at) != s->n)
        return damaged(p, "a storage has another size than its tensors expect", err);
    *at += 8;
    if (!storage_bytes(s, &bytes) || bytes > p->base.n_bytes - *at) return damaged(p, "it ends within its numbers", err);
    s->data = p->base.bytes + *at;
    *at += bytes;
    return MT_OK;
}

static mt_rc read_legacy(mt_pickle *p, mt_err *err)
{
    size_t at = 0;
    mt__pk *magic, *version, *machine, *top, *keys;
    MT_TRY(next_pickle(p, &at, &magic, err));
    MT_TRY(next_pickle(p, &at, &version, err));
    MT_TRY(next_pickle(p, &at, &machine, err));
    const mt__pk *little = mt__pk_get(machine, "little_endian");
    if (version->type != MT_PK_INT || version->i != 1001)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: an unknown version of torch.save's old format", p->base.path);
    if (little && little->type == MT_PK_BOOL && !little->i)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: written on a big-endian machine; load and save it again with PyTorch",
                       p->base.path);
    MT_TRY(next_pickle(p, &at, &top, err));
    MT_TRY(next_pickle(p, &at, &keys, err));
    if (keys->type != MT_PK_LIST) return damaged(p, "its list of storages is missing", err);
    for (size_t i = 0; i < keys->list.n; i++) MT_TRY(place_storage(p, keys->list.items[i], &at, err));
    return list_tensors(p, top, err);
}

/* -- opening ------------------------------------------------------------------------------------------ */

/* Neither form: say what it is.  A bare pickle is run too, since what it would call is worth knowing. */
static mt_rc not_ours(mt_pickle *p, mt_err *err)
{
    static const char lfs[] = "version https://git-lfs";
    if (p->base.n_bytes >= sizeof lfs - 1 && memcmp(p->base.bytes, lfs, sizeof lfs - 1) == 0)
        return mt_fail(err, MT_EFORMAT, "%s is a Git LFS pointer, not the file itself; run \"git lfs pull\" in its folder",
                       p->base.path);
    if (p->base.n_bytes > 262 && memcmp(p->base.bytes + 257, "ustar", 5) == 0)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: a tar archive, as PyTorch wrote them before 2017; load and save it again with a newer one",
                       p->base.path);
    mt__pk *top;
    if (p->base.n_bytes && (p->base.bytes[0] == 0x80 || p->base.bytes[0] == 'c') &&
        mt__unpickle(&p->machine, p->base.bytes, p->base.n_bytes, NULL, &top, err) == MT_EUNSUPPORTED)
        return MT_EUNSUPPORTED;
    return mt_fail(err, MT_EFORMAT, "%s: not a file that torch.save writes; download it again", p->base.path);
}

static mt_rc read_file(mt_weight_file *f, mt_err *err)
{
    mt_pickle *p = (mt_pickle *)f;
    p->machine.path = p->base.path;
    p->machine.arena.max_bytes = (size_t)4 << 30;
    if (mt__zip_is(p->base.bytes, p->base.n_bytes)) return read_zip(p, err);
    return is_legacy(p) ? read_legacy(p, err) : not_ours(p, err);
}

static void pickle_deinit(mt_weight_file *f)
{
    mt_pickle *p = (mt_pickle *)f;
    mt__zip_deinit(&p->zip);
    mt__unpickler_deinit(&p->machine);
    mt__names_deinit(&p->names);
    mt_free(f->tensors);
}

const mt_weight_format mt_format_pickle = { ".bin", sizeof(mt_pickle), read_file, pickle_deinit };

mt_rc mt_pickle_open(mt_pickle **out, const char *path, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open(&f, &mt_format_pickle, path, err);
    *out = (mt_pickle *)f;
    return rc;
}

mt_rc mt_pickle_open_memory(mt_pickle **out, const void *bytes, size_t n, const char *name, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open_memory(&f, &mt_format_pickle, bytes, n, name, err);
    *out = (mt_pickle *)f;
    return rc;
}

void mt_pickle_close(mt_pickle *p) { mt_weight_file_close((mt_weight_file *)p); }

size_t mt_pickle_count(const mt_pickle *p) { return p->base.n_tensors; }
const mt_st_tensor *mt_pickle_at(const mt_pickle *p, size_t i) { return &p->base.tensors[i]; }
