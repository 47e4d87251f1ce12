#include "ckpt/shards.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "ckpt/four_bits.h"
#include "ckpt/fp8.h"
#include "ckpt/model_files.h"
#include "ckpt/mxfp4.h"
#include "ckpt/names.h"
#include "ckpt/shards_index.h"
#include "ckpt/weight_file.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* How weights are called that transformers looks for, in its order. */
static const struct {
    const char *single, *index, *tail;
} kinds[] = {
    { "model.safetensors", "model.safetensors.index.json", ".safetensors" },
    { "pytorch_model.bin", "pytorch_model.bin.index.json", ".bin" },
};

static const char qweight[] = ".qweight"; /* the end of names of GPTQ's and AWQ's codes */

struct mt_shards {
    mt_weight_file **files;
    size_t n_files, cap_files;
    const mt_st_tensor **tensors; /* borrowed from files, or joined */
    size_t n_tensors;
    size_t bytes;
    mt__names names; /* name -> index in tensors */
    mt_arena arena;  /* joined tensors */
};

/* -- files ----------------------------------------------------------------------------------------- */

static mt_rc add_path(mt_shards *s, const char *path, mt_err *err)
{
    static const mt_weight_format *const formats[] = { &mt_format_safetensors, &mt_format_pickle };
    const mt_weight_format *format = &mt_format_gguf; /* identified by its first bytes, not by its name */
    for (size_t i = 0; i < MT_COUNT(formats); i++)
        if (mt_ends_with(path, formats[i]->tail)) format = formats[i];
    MT_TRY(mt_grow(&s->files, &s->cap_files, s->n_files + 1, sizeof *s->files, err));
    MT_TRY(mt_weight_file_open(&s->files[s->n_files], format, path, err));
    s->n_files++;
    return MT_OK;
}

static mt_rc add_file(mt_shards *s, const char *dir, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, name);
    if (!path) return mt_no_memory(err, "opening %s", name);
    mt_rc rc = add_path(s, path, err);
    mt_free(path);
    return rc;
}

/* -- tensors --------------------------------------------------------------------------------------- */

/* Collect the tensors of all files.  The index (or NULL) decides between files that hold the same name. */
static mt_rc collect(mt_shards *s, const mt__index *index, mt_err *err)
{
    size_t n = 0;
    for (size_t f = 0; f < s->n_files; f++) n += s->files[f]->n_tensors;
    s->tensors = mt_calloc(n, sizeof *s->tensors);
    if (!s->tensors || !mt__names_init(&s->names, n)) return mt_no_memory(err, "a list of %zu tensors", n);
    for (size_t f = 0; f < s->n_files; f++) {
        for (size_t i = 0; i < s->files[f]->n_tensors; i++) {
            const mt_st_tensor *t = &s->files[f]->tensors[i];
            const char *home = index ? mt__index_home(index, t->name) : NULL;
            if (home && strcmp(home, t->file) != 0) continue;
            size_t first = mt__names_add(&s->names, t->name, s->n_tensors);
            if (first != s->n_tensors)
                return mt_fail(err, MT_EFORMAT, "tensor \"%s\" is in %s and in %s, and %s does not say which one counts", t->name,
                               s->tensors[first]->file, t->file, index ? index->name : kinds[0].index);
            s->tensors[s->n_tensors++] = t;
            s->bytes += t->bytes;
        }
    }
    return MT_OK;
}

static bool is_fp8(const mt_st_tensor *t) { return t->data && (t->dtype == MT_DTYPE_F8_E4M3 || t->dtype == MT_DTYPE_F8_E5M2); }

/* The FP8 tensor that a scale belongs to; false: not a scale. */
static bool find_scaled(const mt_shards *s, const mt_st_tensor *scale, size_t *base)
{
    char name[512];
    size_t n = mt__fp8_base(scale->name);
    if (n == 0 || n >= sizeof name) return false;
    memcpy(name, scale->name, n);
    name[n] = '\0';
    return mt__names_find(&s->names, name, base) && s->tensors[*base] && is_fp8(s->tensors[*base]);
}

/* Drop NULL entries from the list; names are looked up in the rest. */
static mt_rc close_gaps(mt_shards *s, mt_err *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i]) s->tensors[kept++] = s->tensors[i];
    s->n_tensors = kept;
    mt__names_deinit(&s->names);
    if (!mt__names_init(&s->names, kept)) return mt_no_memory(err, "a list of tensors");
    for (size_t i = 0; i < kept; i++) {
        size_t first = mt__names_add(&s->names, s->tensors[i]->name, i);
        if (first != i)
            return mt_fail(err, MT_EFORMAT, "%s: tensor \"%.200s\" is there twice: quantized, and as it is; keep one of them",
                           s->tensors[i]->file, s->tensors[i]->name);
    }
    return MT_OK;
}

/* Put each FP8 tensor and its scales together, and take the scales off the list. */
static mt_rc join_scales(mt_shards *s, mt__fp8_block block, mt_err *err)
{
    size_t base;
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (!find_scaled(s, s->tensors[i], &base)) continue;
        mt_st_tensor *joined = mt_arena_alloc(&s->arena, sizeof *joined);
        if (!joined) return mt_no_memory(err, "a list of tensors");
        MT_TRY(mt__fp8_join(joined, &s->arena, s->tensors[base], s->tensors[i], block, err));
        s->tensors[base] = joined;
        s->tensors[i] = NULL;
    }
    return close_gaps(s, err);
}

static mt_rc join_fp8(mt_shards *s, const char *dir, mt_err *err)
{
    bool any = false;
    size_t base;
    mt__fp8_block block;
    for (size_t i = 0; i < s->n_tensors && !any; i++) any = find_scaled(s, s->tensors[i], &base);
    if (!any) return MT_OK;
    char *config = mt_path_join(dir, "config.json");
    if (!config) return mt_no_memory(err, "looking for config.json");
    mt_rc rc = mt__fp8_block_size(&block, config, err);
    mt_free(config);
    return rc ? rc : join_scales(s, block, err);
}

/* The first n bytes of `name` with another tail; false: no tensor has that name. */
static bool find_tail(const mt_shards *s, const char *name, size_t n, const char *tail, size_t *at)
{
    char other[512];
    const size_t k = strlen(tail) + 1;
    if (n + k > sizeof other) return false;
    memcpy(other, name, n);
    memcpy(other + n, tail, k);
    return mt__names_find(&s->names, other, at);
}

/* Blocks i and their scales as one tensor, in the blocks' place. */
static mt_rc join_blocks(mt_shards *s, size_t i, mt_err *err)
{
    const mt_st_tensor *b = s->tensors[i];
    size_t n = mt__mxfp4_base_of_blocks(b->name), at;
    if (!find_tail(s, b->name, n, "_scales", &at))
        return mt_fail(
            err, MT_ENOENT,
            "%s: tensor \"%.200s\" is in MXFP4, but its scales (\"%.*s_scales\") are missing; download the files again", b->file,
            b->name, (int)n, b->name);
    mt_st_tensor *joined = mt_arena_alloc(&s->arena, sizeof *joined);
    char *name = mt_arena_strndup(&s->arena, b->name, n);
    if (!joined || !name) return mt_no_memory(err, "a list of tensors");
    MT_TRY(mt__mxfp4_join(joined, &s->arena, name, b, s->tensors[at], err));
    s->tensors[i] = joined;
    s->tensors[at] = NULL;
    return MT_OK;
}

/* True for blocks of MXFP4: bytes, or anything that has scales beside it, which is then refused by its dtype. */
static bool is_blocks(const mt_shards *s, const mt_st_tensor *t)
{
    size_t at, n = t ? mt__mxfp4_base_of_blocks(t->name) : 0;
    return n && (t->dtype == MT_DTYPE_U8 || find_tail(s, t->name, n, "_scales", &at));
}

static mt_rc join_mxfp4(mt_shards *s, mt_err *err)
{
    size_t n_joined = 0, at;
    for (size_t i = 0; i < s->n_tensors; i++)
        if (is_blocks(s, s->tensors[i])) {
            MT_TRY(join_blocks(s, i, err));
            n_joined++;
        }
    for (size_t i = 0; i < s->n_tensors; i++) {
        const mt_st_tensor *t = s->tensors[i];
        size_t n = t && t->dtype == MT_DTYPE_U8 ? mt__mxfp4_base_of_scales(t->name) : 0;
        if (n && !find_tail(s, t->name, n, "", &at))
            return mt_fail(err, MT_ENOENT,
                           "%s: tensor \"%.200s\" has scales of MXFP4, but their blocks (\"%.*s_blocks\") are missing; download "
                           "the files again",
                           t->file, t->name, (int)n, t->name);
    }
    return n_joined ? close_gaps(s, err) : MT_OK;
}

/* The other tensors of a 4-bit weight. */
typedef struct siblings_of {
    mt_shards *s;
    const char *name; /* n bytes of it, and a tail */
    size_t n;
} siblings_of;

static const mt_st_tensor *take_sibling(void *user, const char *tail)
{
    const siblings_of *of = user;
    size_t at;
    if (!find_tail(of->s, of->name, of->n, tail, &at)) return NULL;
    const mt_st_tensor *t = of->s->tensors[at];
    of->s->tensors[at] = NULL;
    return t;
}

static mt_rc join_nf4(mt_shards *s, size_t i, const char *state, mt_err *err)
{
    const mt_st_tensor *w = s->tensors[i];
    siblings_of of = { s, w->name, strlen(w->name) };
    mt_st_tensor *joined = mt_arena_alloc(&s->arena, sizeof *joined);
    if (!joined) return mt_no_memory(err, "a list of tensors");
    MT_TRY(mt__nf4_join(joined, &s->arena, w, state, &(mt__siblings){ take_sibling, &of }, err));
    s->tensors[i] = joined;
    return MT_OK;
}

static mt_rc join_int4(mt_shards *s, size_t i, const mt__int4_how *how, mt_err *err)
{
    const mt_st_tensor *w = s->tensors[i];
    siblings_of of = { s, w->name, strlen(w->name) - strlen(qweight) };
    mt_str name = { 0 };
    mt_str_add(&name, of.name, of.n);
    mt_str_puts(&name, ".weight");
    char *own = mt_str_ok(&name) ? mt_arena_strndup(&s->arena, name.s, name.n) : NULL;
    mt_st_tensor *joined = mt_arena_alloc(&s->arena, sizeof *joined);
    mt_str_free(&name);
    if (!own || !joined) return mt_no_memory(err, "a list of tensors");
    MT_TRY(mt__int4_join(joined, &s->arena, own, w, how, &(mt__siblings){ take_sibling, &of }, err));
    s->tensors[i] = joined;
    return MT_OK;
}

static mt_rc read_how(mt__int4_how *out, const char *dir, mt_err *err)
{
    char *config = mt_path_join(dir, "config.json");
    if (!config) return mt_no_memory(err, "looking for config.json");
    mt_rc rc = mt__int4_read_how(out, config, err);
    mt_free(config);
    return rc;
}

/* The tail of the tensor that describes a weight of bitsandbytes; NULL: it is not one. */
static const char *state_of(const mt_shards *s, const mt_st_tensor *t)
{
    static const char *const states[] = { ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4" };
    const size_t n = strlen(t->name);
    size_t at;
    for (size_t k = 0; k < MT_COUNT(states); k++)
        if (find_tail(s, t->name, n, states[k], &at)) return states[k];
    return t->dtype == MT_DTYPE_U8 && find_tail(s, t->name, n, ".absmax", &at) ? states[0]
                                                                               : NULL; /* its description is missing */
}

/* bitsandbytes, GPTQ and AWQ. */
static mt_rc join_four_bits(mt_shards *s, const char *dir, mt_err *err)
{
    mt__int4_how how;
    bool any = false, any_int4 = false;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const mt_st_tensor *t = s->tensors[i];
        if (t && mt_ends_with(t->name, qweight)) {
            if (!any_int4) MT_TRY(read_how(&how, dir, err));
            MT_TRY(join_int4(s, i, &how, err));
            any = any_int4 = true;
        }
        const char *state = t ? state_of(s, t) : NULL;
        if (state) MT_TRY(join_nf4(s, i, state, err));
        any |= state != NULL;
    }
    return any ? close_gaps(s, err) : MT_OK;
}

static mt_rc join_quantised(mt_shards *s, const char *dir, mt_err *err)
{
    MT_TRY(join_fp8(s, dir, err));
    MT_TRY(join_mxfp4(s, err));
    return join_four_bits(s, dir, err);
}

/* -- directories ----------------------------------------------------------------------------------- */

static mt_rc check_listed(const mt_shards *s, const mt__index *index, mt_err *err)
{
    size_t at;
    for (size_t i = 0; i < mt_value_pairs(index->weight_map); i++) {
        const mt_pair *p = &index->weight_map->map.pairs[i];
        if (!mt__names_find(&s->names, p->key, &at))
            return mt_fail(err, MT_EFORMAT,
                           "tensor \"%.200s\" is listed in %s and is not in %.200s; the files look like different revisions, "
                           "download the model again",
                           p->key, index->name, mt_json_string(&p->value));
    }
    return MT_OK;
}

static mt_rc open_index_files(mt_shards *s, const char *dir, const mt__index *index, mt_err *err)
{
    const char **names = NULL;
    size_t n = 0;
    MT_TRY(mt__index_files(index, &names, &n, err));
    mt_rc rc = mt__index_check_present(index, dir, names, n, err);
    for (size_t i = 0; !rc && i < n; i++) rc = add_file(s, dir, names[i], err);
    if (!rc) rc = collect(s, index, err);
    if (!rc) rc = check_listed(s, index, err);
    mt_free(names);
    return rc;
}

static mt_rc open_index(mt_shards *s, const char *dir, const char *path, const char *tail, mt_err *err)
{
    mt__index index;
    mt_rc rc = mt__index_open(&index, path, tail, err);
    if (!rc) rc = open_index_files(s, dir, &index, err);
    mt__index_close(&index);
    return rc;
}

static mt_rc open_one(mt_shards *s, const char *dir, const char *name, mt_err *err)
{
    MT_TRY(add_file(s, dir, name, err));
    return collect(s, NULL, err);
}

/* The files a kind is usually in; *found false if there are none. */
static mt_rc open_kind(mt_shards *s, const char *dir, size_t kind, bool *found, mt_err *err)
{
    char *single = mt_path_join(dir, kinds[kind].single), *index = mt_path_join(dir, kinds[kind].index);
    mt_rc rc = MT_OK;
    *found = true;
    if (!single || !index)
        rc = mt_no_memory(err, "looking for weights");
    else if (mt_file_exists(single))
        rc = open_one(s, dir, kinds[kind].single, err);
    else if (mt_file_exists(index))
        rc = open_index(s, dir, index, kinds[kind].tail, err);
    else
        *found = false;
    mt_free(single);
    mt_free(index);
    return rc;
}

/* Files of some kind: the first by name, and how many there are. */
typedef struct listed {
    char *first;
    size_t n;
} listed;

typedef struct listing {
    listed weights, gguf, pickled; /* *.safetensors, *.gguf, *.bin and the like */
} listing;

static void count_name(listed *l, const char *name, bool *no_memory)
{
    l->n++;
    if (l->first && strcmp(l->first, name) <= 0) return;
    mt_free(l->first);
    l->first = mt_strdup(name);
    if (!l->first) *no_memory = true;
}

static mt_rc list_dir(listing *l, const char *dir, mt_err *err)
{
    bool no_memory = false;
    DIR *d = opendir(dir);
    if (!d) return mt_fail_errno(err, errno == ENOENT || errno == ENOTDIR ? MT_ENOENT : MT_EIO, "opening the directory");
    for (const struct dirent *e; (e = readdir(d)) && !no_memory;) {
        const char *name = e->d_name;
        if (name[0] == '.') continue;
        if (mt_ends_with(name, ".safetensors"))
            count_name(&l->weights, name, &no_memory);
        else if (mt_ends_with(name, ".gguf"))
            count_name(&l->gguf, name, &no_memory);
        else if (mt_ends_with(name, ".bin") || mt_ends_with(name, ".pt") || mt_ends_with(name, ".pth"))
            count_name(&l->pickled, name, &no_memory);
    }
    closedir(d);
    return no_memory ? mt_no_memory(err, "listing the directory") : MT_OK;
}

static mt_rc open_only_safetensors(mt_shards *s, const char *dir, const listed *l, mt_err *err)
{
    if (l->n > 1)
        return mt_fail(err, MT_ENOENT,
                       "%zu .safetensors files (%s, ...) and no %s that says which tensors they hold; download the index", l->n,
                       l->first, kinds[0].index);
    if (strncmp(l->first, "adapter_", 8) == 0)
        return mt_fail(err, MT_EUNSUPPORTED, "%s is an adapter, not a model; merge it into its base model first", l->first);
    return open_one(s, dir, l->first, err);
}

static mt_rc open_only_gguf(mt_shards *s, const char *dir, const listed *l, mt_err *err)
{
    if (l->n > 1)
        return mt_fail(err, MT_EINVAL, "%zu .gguf files (%s, ...); name the one you mean instead of the directory", l->n,
                       l->first);
    return open_one(s, dir, l->first, err);
}

static mt_rc open_listed(mt_shards *s, const char *dir, const listing *l, mt_err *err)
{
    bool found;
    if (l->weights.n) return open_only_safetensors(s, dir, &l->weights, err);
    MT_TRY(open_kind(s, dir, 1, &found, err));
    if (found) return MT_OK;
    if (l->gguf.n) return open_only_gguf(s, dir, &l->gguf, err);
    if (l->pickled.n)
        return mt_fail(err, MT_ENOENT, "neither %s nor %s is here; %s holds something else, or has to be renamed",
                       kinds[0].single, kinds[1].single, l->pickled.first);
    return mt_fail(err, MT_ENOENT, "no weights here: neither %s nor %s nor %s; download the model again", kinds[0].single,
                   kinds[0].index, kinds[1].single);
}

static mt_rc open_dir(mt_shards *s, const char *dir, mt_err *err)
{
    bool found;
    listing l = { 0 };
    MT_TRY(mt_model_files_check(dir, err));
    MT_TRY(open_kind(s, dir, 0, &found, err));
    if (found) return join_quantised(s, dir, err);
    mt_rc rc = list_dir(&l, dir, err);
    if (!rc) rc = open_listed(s, dir, &l, err);
    mt_free(l.weights.first);
    mt_free(l.pickled.first);
    mt_free(l.gguf.first);
    return rc ? rc : join_quantised(s, dir, err);
}

static void warn_quantised(const mt_shards *s)
{
    const char *as;
    size_t n = mt_shards_quantised(s, &as);
    if (n)
        mt_warn("%zu of %zu tensors are quantized (mostly %s): precision was lost when the file was made, and training starts "
                "from the rounded values",
                n, s->n_tensors, as);
}

mt_rc mt_shards_open(mt_shards **out, const char *path, mt_err *err)
{
    *out = NULL;
    mt_shards *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "opening %s", path);
    bool gguf = mt_file_exists(path) && !mt_dir_exists(path) && mt_gguf_is(path);
    mt_rc rc = gguf ? add_path(s, path, err) : open_dir(s, path, err);
    if (!rc && gguf) rc = collect(s, NULL, err);
    if (rc) {
        mt_shards_close(s);
        mt_note(err, "loading weights from %s", path);
        return rc;
    }
    warn_quantised(s);
    *out = s;
    return MT_OK;
}

void mt_shards_close(mt_shards *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_files; i++) mt_weight_file_close(s->files[i]);
    mt__names_deinit(&s->names);
    mt_arena_free(&s->arena);
    mt_free(s->tensors);
    mt_free(s->files);
    mt_free(s);
}

size_t mt_shards_count(const mt_shards *s) { return s->n_tensors; }
const mt_st_tensor *mt_shards_at(const mt_shards *s, size_t i) { return s->tensors[i]; }

const mt_st_tensor *mt_shards_find(const mt_shards *s, const char *name)
{
    size_t i;
    return mt__names_find(&s->names, name, &i) ? s->tensors[i] : NULL;
}

size_t mt_shards_file_count(const mt_shards *s) { return s->n_files; }
const char *mt_shards_path(const mt_shards *s, size_t i) { return s->files[i]->path; }
size_t mt_shards_bytes(const mt_shards *s) { return s->bytes; }

size_t mt_shards_quantised(const mt_shards *s, const char **stored_as)
{
    struct {
        const char *name;
        size_t n;
    } seen[16] = { 0 };
    size_t n_seen = 0, n = 0, best = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *as = s->tensors[i]->decoder ? s->tensors[i]->decoder->stored_as : NULL;
        size_t k = 0;
        if (!as) continue;
        n++;
        while (k < n_seen && strcmp(seen[k].name, as) != 0) k++;
        if (k == MT_COUNT(seen)) continue;
        if (k == n_seen) seen[n_seen++].name = as;
        seen[k].n++;
        if (seen[k].n > seen[best].n) best = k;
    }
    *stored_as = seen[best].name;
    return n;
}
