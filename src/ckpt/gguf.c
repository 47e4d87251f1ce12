/* gguf.c - the container: a header, metadata as keys and values, descriptions of the tensors, then their data at aligned offsets.
 * Nothing is trusted: every length is checked against the file before it is used. */
#include "ckpt/gguf_impl.h"

#include "base/le.h"

#include <stdio.h>
#include <string.h>

static const uint8_t magic[] = { 'G', 'G', 'U', 'F' };

/* A place in the file. */
typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static mt_rc damaged(const mt_gguf *g, const char *problem, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: %s; the file is damaged or incomplete, download it again", g->base.path, problem);
}

static bool gguf_take(cursor *c, size_t n, const uint8_t **p)
{
    if ((size_t)(c->end - c->at) < n) return false;
    *p = c->at;
    c->at += n;
    return true;
}

static bool take_u32(cursor *c, uint32_t *out)
{
    const uint8_t *p;
    if (!gguf_take(c, 4, &p)) return false;
    *out = mt__le32(p);
    return true;
}

static bool take_u64(cursor *c, uint64_t *out)
{
    const uint8_t *p;
    if (!gguf_take(c, 8, &p)) return false;
    *out = mt__le64(p);
    return true;
}

static bool take_text(cursor *c, mt__bytes *out)
{
    uint64_t n;
    const uint8_t *p;
    if (!take_u64(c, &n) || n > (uint64_t)(c->end - c->at) || !gguf_take(c, (size_t)n, &p)) return false;
    *out = (mt__bytes){ (const char *)p, (size_t)n };
    return true;
}

/* A name: a string without NULs, copied. */
static mt_rc take_name(mt_gguf *g, cursor *c, const char **out, mt_err *err)
{
    mt__bytes text;
    if (!take_text(c, &text)) return damaged(g, "it ends within a name", err);
    if (text.n > 65535 || memchr(text.s, '\0', text.n)) return damaged(g, "a name is not text", err);
    *out = mt_arena_strndup(&g->arena, text.s, text.n);
    return *out ? MT_OK : mt_no_memory(err, "reading the header of %s", g->base.path);
}

/* -- metadata -------------------------------------------------------------------------------------- */

static size_t number_bytes(mt__kv_type t)
{
    switch (t) {
    case MT_KV_U8:
    case MT_KV_I8:
    case MT_KV_BOOL: return 1;
    case MT_KV_U16:
    case MT_KV_I16: return 2;
    case MT_KV_U32:
    case MT_KV_I32:
    case MT_KV_F32: return 4;
    case MT_KV_U64:
    case MT_KV_I64:
    case MT_KV_F64: return 8;
    default: return 0;
    }
}

static mt_rc skip_items(const mt_gguf *g, cursor *c, const mt__kv *kv, mt_err *err)
{
    size_t size = number_bytes(kv->type);
    if (kv->type == MT_KV_STR) {
        mt__bytes text;
        for (uint64_t i = 0; i < kv->n; i++)
            if (!take_text(c, &text))
                return mt_fail(err, MT_EFORMAT, "%s: it ends within \"%.100s\"; download the file again", g->base.path, kv->key);
        return MT_OK;
    }
    const uint8_t *p;
    if (size == 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: \"%.100s\" is of an unknown kind (%d); not read", g->base.path, kv->key,
                       (int)kv->type);
    if (kv->n > (uint64_t)(c->end - c->at) / size || !gguf_take(c, (size_t)kv->n * size, &p))
        return mt_fail(err, MT_EFORMAT, "%s: it ends within \"%.100s\"; download the file again", g->base.path, kv->key);
    return MT_OK;
}

static mt_rc read_kv(mt_gguf *g, cursor *c, mt__kv *kv, mt_err *err)
{
    uint32_t type;
    MT_TRY(take_name(g, c, &kv->key, err));
    if (!take_u32(c, &type)) return damaged(g, "it ends within its metadata", err);
    kv->n = 1;
    if (type == MT_KV_ARRAY) {
        kv->array = true;
        if (!take_u32(c, &type) || !take_u64(c, &kv->n)) return damaged(g, "it ends within its metadata", err);
    }
    kv->type = type < MT_KV_TYPES ? (mt__kv_type)type : MT_KV_TYPES;
    kv->data = c->at;
    return skip_items(g, c, kv, err);
}

const mt__kv *mt__gguf_find(const mt_gguf *g, const char *key)
{
    for (size_t i = 0; i < g->n_kvs; i++)
        if (strcmp(g->kvs[i].key, key) == 0) return &g->kvs[i];
    return NULL;
}

const mt__kv *mt__gguf_find_arch(const mt_gguf *g, const char *key)
{
    char full[128];
    int n = snprintf(full, sizeof full, "%s.%s", g->arch, key);
    return n > 0 && (size_t)n < sizeof full ? mt__gguf_find(g, full) : NULL;
}

double mt__kv_item(const mt__kv *kv, size_t i)
{
    const uint8_t *p = kv->data + i * number_bytes(kv->type);
    switch (kv->type) {
    case MT_KV_U8: return p[0];
    case MT_KV_I8: return (int8_t)p[0];
    case MT_KV_BOOL: return p[0] != 0;
    case MT_KV_U16: return mt__le16(p);
    case MT_KV_I16: return (int16_t)mt__le16(p);
    case MT_KV_U32: return mt__le32(p);
    case MT_KV_I32: return (int32_t)mt__le32(p);
    case MT_KV_F32: return (double)mt_f32_from_bits(mt__le32(p));
    case MT_KV_U64: return (double)mt__le64(p);
    case MT_KV_I64: return (double)(int64_t)mt__le64(p);
    default: return mt__le_f64(p);
    }
}

bool mt__kv_number(const mt__kv *kv, double *out)
{
    if (!kv || number_bytes(kv->type) == 0 || kv->n == 0) return false;
    *out = mt__kv_item(kv, 0);
    for (size_t i = 1; i < kv->n; i++) {
        double other = mt__kv_item(kv, i);
        if (other < *out || other > *out) return false;
    }
    return true;
}

bool mt__kv_int(const mt__kv *kv, int64_t *out)
{
    double d;
    if (!mt__kv_number(kv, &d) || !(d >= -0x1p53 && d <= 0x1p53)) return false;
    *out = (int64_t)d;
    return true;
}

bool mt__kv_text(const mt__kv *kv, mt__bytes *out)
{
    if (!kv || kv->array || kv->type != MT_KV_STR) return false;
    *out = (mt__bytes){ (const char *)kv->data + 8, (size_t)mt__le64(kv->data) };
    return true;
}

mt_rc mt__kv_texts(const mt_gguf *g, const mt__kv *kv, mt__bytes **out, mt_err *err)
{
    if (!kv->array || kv->type != MT_KV_STR)
        return mt_fail(err, MT_EFORMAT, "%s: \"%.100s\" should be a list of strings", g->base.path, kv->key);
    mt__bytes *list = mt_calloc((size_t)kv->n, sizeof *list);
    if (!list) return mt_no_memory(err, "reading the header of %s", g->base.path);
    cursor c = { kv->data, g->base.bytes + g->base.n_bytes };
    for (size_t i = 0; i < kv->n; i++) (void)take_text(&c, &list[i]); /* checked when the file was opened */
    *out = list;
    return MT_OK;
}

/* -- tensors --------------------------------------------------------------------------------------- */

static mt_rc read_quant(const mt_gguf *g, mt__gguf_raw *t, uint32_t id, mt_err *err)
{
    const char *name;
    t->quant = mt__quant_find(id, &name);
    if (t->quant) return MT_OK;
    if (name)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "%s: tensor \"%.200s\" is stored as %s, which is not read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 "
                       "and Q2_K to Q6_K are); "
                       "take another file of the model",
                       g->base.path, t->name, name);
    return mt_fail(err, MT_EUNSUPPORTED, "%s: tensor \"%.200s\" is stored in an unknown way (type %u)", g->base.path, t->name,
                   (unsigned)id);
}

static mt_rc read_shape(const mt_gguf *g, cursor *c, mt__gguf_raw *t, mt_err *err)
{
    uint32_t n_dims;
    uint64_t dim;
    size_t ignored;
    if (!take_u32(c, &n_dims)) return damaged(g, "it ends within its list of tensors", err);
    if (n_dims < 1 || n_dims > 4)
        return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" has %u dimensions; 1 to 4 are possible", g->base.path, t->name,
                       (unsigned)n_dims);
    t->n_dims = (int)n_dims;
    for (int i = t->n_dims; i-- > 0;) {
        if (!take_u64(c, &dim)) return damaged(g, "it ends within its list of tensors", err);
        t->shape[i] = dim > INT64_MAX ? -1 : (int64_t)dim;
    }
    if (!mt_st_size(MT_DTYPE_F32, t->n_dims, t->shape, &t->n, &ignored))
        return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" is larger than any memory; the file is damaged", g->base.path,
                       t->name);
    return MT_OK;
}

/* t->data holds its offset until the place of the data is known. */
static mt_rc read_tensor(mt_gguf *g, cursor *c, mt__gguf_raw *t, uint64_t *offset, mt_err *err)
{
    uint32_t type;
    MT_TRY(take_name(g, c, &t->name, err));
    MT_TRY(read_shape(g, c, t, err));
    if (!take_u32(c, &type) || !take_u64(c, offset)) return damaged(g, "it ends within its list of tensors", err);
    MT_TRY(read_quant(g, t, type, err));
    size_t width = (size_t)t->shape[t->n_dims - 1];
    if (width % t->quant->block_n)
        return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" has rows of %zu, not a multiple of %s's %zu; the file is damaged",
                       g->base.path, t->name, width, t->quant->name, t->quant->block_n);
    t->bytes = t->n / t->quant->block_n * t->quant->block_bytes;
    return MT_OK;
}

static mt_rc place_tensors(mt_gguf *g, const uint64_t *offsets, const uint8_t *after, mt_err *err)
{
    int64_t alignment = 32;
    const mt__kv *kv = mt__gguf_find(g, "general.alignment");
    if (kv && (!mt__kv_int(kv, &alignment) || alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1))))
        return damaged(g, "general.alignment is not a power of two", err);
    size_t begin = mt_round_up((size_t)(after - g->base.bytes), (size_t)alignment);
    size_t n_data = begin < g->base.n_bytes ? g->base.n_bytes - begin : 0;
    for (size_t i = 0; i < g->n_raws; i++) {
        mt__gguf_raw *t = &g->raws[i];
        if (offsets[i] % (uint64_t)alignment)
            return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" is not aligned; the file is damaged", g->base.path, t->name);
        if (offsets[i] > n_data || t->bytes > n_data - offsets[i])
            return mt_fail(
                err, MT_EFORMAT,
                "%s: tensor \"%.200s\" reaches past the end of the file; the download is incomplete, download it again",
                g->base.path, t->name);
        t->data = t->bytes ? g->base.bytes + begin + offsets[i] : g->base.bytes;
    }
    return MT_OK;
}

const mt__gguf_raw *mt__gguf_raw_find(const mt_gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_raws; i++)
        if (strcmp(g->raws[i].name, name) == 0) return &g->raws[i];
    return NULL;
}

/* -- opening --------------------------------------------------------------------------------------- */

static mt_rc read_arch(mt_gguf *g, mt_err *err)
{
    mt__bytes text;
    if (!mt__kv_text(mt__gguf_find(g, "general.architecture"), &text) || text.n > 60)
        return mt_fail(err, MT_EFORMAT, "%s: no general.architecture; this is not a model", g->base.path);
    g->arch = mt_arena_strndup(&g->arena, text.s, text.n);
    return g->arch ? MT_OK : mt_no_memory(err, "reading the header of %s", g->base.path);
}

static mt_rc read_lists(mt_gguf *g, cursor *c, uint64_t n_tensors, uint64_t n_kvs, mt_err *err)
{
    enum {
        MIN_KV = 13,
        MIN_TENSOR = 32
    }; /* bytes of the shortest ones, so that a count cannot ask for more memory than the file has bytes */
    uint64_t *offsets;
    if (n_kvs > g->base.n_bytes / MIN_KV || n_tensors > g->base.n_bytes / MIN_TENSOR)
        return damaged(g, "it claims more entries than it has room for", err);
    g->kvs = mt_arena_calloc(&g->arena, (size_t)n_kvs, sizeof *g->kvs);
    g->raws = mt_arena_calloc(&g->arena, (size_t)n_tensors, sizeof *g->raws);
    offsets = mt_arena_calloc(&g->arena, (size_t)n_tensors, sizeof *offsets);
    if (!g->kvs || !g->raws || !offsets) return mt_no_memory(err, "reading the header of %s", g->base.path);
    for (; g->n_kvs < n_kvs; g->n_kvs++) MT_TRY(read_kv(g, c, &g->kvs[g->n_kvs], err));
    MT_TRY(read_arch(g, err));
    for (; g->n_raws < n_tensors; g->n_raws++) MT_TRY(read_tensor(g, c, &g->raws[g->n_raws], &offsets[g->n_raws], err));
    return place_tensors(g, offsets, c->at, err);
}

static mt_rc read_file(mt_weight_file *f, mt_err *err)
{
    mt_gguf *g = (mt_gguf *)f;
    cursor c = { g->base.bytes, g->base.bytes + g->base.n_bytes };
    const uint8_t *p;
    uint32_t version;
    uint64_t n_tensors, n_kvs;
    if (!gguf_take(&c, sizeof magic, &p) || memcmp(p, magic, sizeof magic) != 0)
        return mt_fail(err, MT_EFORMAT, "%s is not a GGUF file; download it again", g->base.path);
    if (!take_u32(&c, &version)) return damaged(g, "it ends within its header", err);
    if (version != 2 && version != 3)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: GGUF version %u%s; 2 and 3 are read", g->base.path, (unsigned)version,
                       version > 0xffff ? " (a file for big-endian machines)" : "");
    if (!take_u64(&c, &n_tensors) || !take_u64(&c, &n_kvs)) return damaged(g, "it ends within its header", err);
    MT_TRY(read_lists(g, &c, n_tensors, n_kvs, err));
    return mt__gguf_bind(g, err);
}

bool mt_gguf_is(const char *path)
{
    uint8_t head[sizeof magic];
    FILE *f = fopen(path, "rb");
    bool yes = f && fread(head, 1, sizeof head, f) == sizeof head && memcmp(head, magic, sizeof magic) == 0;
    if (f) fclose(f);
    return yes;
}

static void gguf_deinit(mt_weight_file *f) { mt_arena_free(&((mt_gguf *)f)->arena); }

const mt_weight_format mt_format_gguf = { ".gguf", sizeof(mt_gguf), read_file, gguf_deinit };

mt_rc mt_gguf_open(mt_gguf **out, const char *path, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open(&f, &mt_format_gguf, path, err);
    *out = (mt_gguf *)f;
    return rc;
}

mt_rc mt_gguf_open_memory(mt_gguf **out, const void *bytes, size_t n, const char *name, mt_err *err)
{
    mt_weight_file *f;
    mt_rc rc = mt_weight_file_open_memory(&f, &mt_format_gguf, bytes, n, name, err);
    *out = (mt_gguf *)f;
    return rc;
}

void mt_gguf_close(mt_gguf *g) { mt_weight_file_close((mt_weight_file *)g); }

size_t mt_gguf_count(const mt_gguf *g) { return g->base.n_tensors; }
const mt_st_tensor *mt_gguf_at(const mt_gguf *g, size_t i) { return &g->base.tensors[i]; }
