/* formats.c - the table of formats and the choice among them.
 *
 * Parquet and Arrow are identified by their first bytes, whatever the file name.  Everything else is text, where content decides
 * only if the name does not: a .csv whose first field happens to start with '{' is a CSV. */
#include "data/formats.h"

#include <string.h>
#include <strings.h>

/* The first two are identified by their first bytes, not by name. */
enum { N_BY_MAGIC = 2 };
static const mt_format *const formats[] = {
    &mt__format_parquet, &mt__format_arrow, &mt__format_json, &mt__format_csv, &mt__format_text,
};

typedef struct foreign {
    size_t at;
    const char *magic;
    size_t n;
    bool at_end_too;
    const char *is, *advice;
} foreign;

/* What people hand in by mistake, and what to do about it.  No text may start like this: "PARENT,AGE" is a header. */
static const foreign foreigners[] = {
    { 0, "\x1f\x8b", 2, false, "gzip-compressed", "unpack it first (gunzip)" },
    { 0, "\x28\xb5\x2f\xfd", 4, false, "zstd-compressed", "unpack it first (zstd -d)" },
    { 4, "1AY&SY", 6, false, "bzip2-compressed", "unpack it first (bunzip2)" },
    { 0, "\xfd\x37zXZ", 5, false, "xz-compressed", "unpack it first (unxz)" },
    { 0, "PK\x03\x04", 4, false, "a zip archive", "unpack it first (unzip)" },
    { 0, "\xff\xfe", 2, false, "UTF-16 text", "convert it (iconv -f UTF-16 -t UTF-8)" },
    { 0, "\xfe\xff", 2, false, "UTF-16 text", "convert it (iconv -f UTF-16 -t UTF-8)" },
    { 0, "PARE", 4, true, "an encrypted Parquet file", "write it without encryption" },
    { 0, "version https://git-lfs", 23, false, "a Git LFS pointer", "fetch the file itself (git lfs pull)" },
};

static bool ends_with(const char *s, const char *tail, size_t n)
{
    size_t len = strlen(s);
    return len >= n && strncasecmp(s + len - n, tail, n) == 0;
}

static bool has_extension(const mt_format *f, const char *path)
{
    for (const char *e = f->extensions; *e;) {
        size_t n = strcspn(e, " ");
        if (ends_with(path, e, n)) return true;
        e += n + strspn(e + n, " ");
    }
    return false;
}

const mt_format *mt__format_by_extension(const char *path)
{
    for (size_t i = 0; i < MT_COUNT(formats); i++)
        if (has_extension(formats[i], path)) return formats[i];
    return NULL;
}

static bool is_foreign(const foreign *f, const mt_record_bytes *src)
{
    if (src->size < f->at + f->n || memcmp(src->data + f->at, f->magic, f->n) != 0) return false;
    return !f->at_end_too || memcmp(src->data + src->size - f->n, f->magic, f->n) == 0;
}

static mt_rc refuse_foreign(const mt_record_bytes *src, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(foreigners); i++) {
        const foreign *f = &foreigners[i];
        if (is_foreign(f, src)) return mt_fail(err, MT_EUNSUPPORTED, "%s is %s; %s", src->path, f->is, f->advice);
    }
    return MT_OK;
}

static const mt_format *by_name(const char *name)
{
    if (strcmp(name, "tsv") == 0) return &mt__format_csv;
    if (strcmp(name, "jsonl") == 0) return &mt__format_json;
    for (size_t i = 0; i < MT_COUNT(formats); i++)
        if (strcmp(name, formats[i]->name) == 0) return formats[i];
    return NULL;
}

static const mt_format *by_magic(const mt_record_bytes *src)
{
    for (size_t i = 0; i < N_BY_MAGIC; i++)
        if (formats[i]->recognise(src->data, src->size)) return formats[i];
    return NULL;
}

mt_rc mt__format_find(const mt_format **out, const mt_record_bytes *src, mt_err *err)
{
    if (src->opt.format) {
        *out = by_name(src->opt.format);
        if (*out) return MT_OK;
        return mt_fail(err, MT_EINVAL, "%s: no format \"%s\"; json, csv, tsv, text, parquet and arrow are known", src->path,
                       src->opt.format);
    }
    MT_TRY(refuse_foreign(src, err));
    *out = by_magic(src);
    if (!*out) *out = mt__format_by_extension(src->path);
    for (size_t i = 0; i < MT_COUNT(formats) && !*out; i++)
        if (formats[i]->recognise && formats[i]->recognise(src->data, src->size)) *out = formats[i];
    if (*out) return MT_OK;
    return mt_fail(err, MT_EFORMAT,
                   "%s: neither its name nor its content says what it is; rename it to .jsonl, .csv, .txt, .parquet or "
                   ".arrow, or set the format",
                   src->path);
}

mt_rc mt__name_list_add(mt_name_list *names, const char *s, size_t n, mt_err *err)
{
    MT_TRY(mt_grow(&names->items, &names->cap, names->n + 1, sizeof *names->items, err));
    char *copy = mt_strndup(s, n);
    if (!copy) return mt_no_memory(err, "a list of names");
    names->items[names->n++] = copy;
    return MT_OK;
}

void mt__name_list_free(mt_name_list *names)
{
    for (size_t i = 0; i < names->n; i++) mt_free((void *)(uintptr_t)names->items[i]);
    mt_free(names->items);
    *names = (mt_name_list){ 0 };
}

bool mt__column_wanted(const mt_records_options *opt, const char *name)
{
    if (!opt->columns) return true;
    for (const char *const *c = opt->columns; *c; c++)
        if (strcmp(*c, name) == 0) return true;
    return false;
}
