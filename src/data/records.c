/* records.c - see records.h.  Walks the files, one open at a time, and hands each to its format. */
#include "data/records.h"

#include "base/file.h"
#include "data/formats.h"
#include "data/record_files.h"
#include "data/split_spec.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* The reader releases pages of the mapping in steps of this size, so that a file of any size holds little memory.  Records that
 * still point there stay valid: the pages come back when touched. */
enum { RELEASE_STEP = 64 << 20 };

/* Read files stay mapped, as records may point into them, and a process may have some 65000 mappings (vm.max_map_count).
 * Records of more files than this are copied instead, and each file is closed at its end. */
enum { MOST_MAPPED = 256 };

typedef struct open_file {
    mt_map map;
    mt_record_bytes src;
    mt_arena keep;
    const mt_format *format;
    void *reader;
    int64_t n_rows;  /* records handed out so far, bad ones counted */
    size_t released; /* bytes of the mapping given back */
} open_file;

struct mt_records {
    mt_name_list files;
    mt_records_options opt;
    size_t current;               /* index of the open file; files.n: all read */
    const mt_record_bytes *given; /* tests: bytes in memory instead of files */
    mt_record_bytes given_bytes;
    open_file *file;  /* NULL between files */
    open_file **past; /* read files that stay mapped */
    size_t n_past, cap_past;
    mt_split_spec split;
    bool placed;            /* sliced: the first record of the part is next */
    int64_t n_part, n_left; /* sliced: records of the part, and those still to come */
    mt_err broken;          /* sticky */
};

static void close_file(open_file *f)
{
    if (!f) return;
    if (f->format) f->format->close(f->reader);
    mt_map_close(&f->map);
    mt_arena_free(&f->keep);
    mt_free(f);
}

static mt_rc map_file(open_file *f, const char *path, const mt_record_bytes *given, mt_err *err)
{
    if (given) {
        f->src = *given;
        return MT_OK;
    }
    MT_TRY(mt_map_open(&f->map, path, err));
    if (f->map.size) madvise((void *)(uintptr_t)f->map.data, f->map.size, MADV_SEQUENTIAL);
    f->src = (mt_record_bytes){ .data = f->map.data, .size = f->map.size };
    return MT_OK;
}

/* No format begins with zeros, and a search for the end of a line in a file of holes may take hours. */
static mt_rc check_not_empty_space(const mt_record_bytes *src, mt_err *err)
{
    enum { HEAD = 4096 };
    if (src->size < HEAD) return MT_OK;
    for (size_t i = 0; i < HEAD; i++)
        if (src->data[i]) return MT_OK;
    return mt_fail(err, MT_EFORMAT,
                   "%s begins with %d zero bytes: space that was never written, as an interrupted download or copy leaves it; "
                   "fetch it again",
                   src->path, HEAD);
}

/* Open the i-th file. */
static mt_rc open_at(const mt_records *r, size_t i, open_file **out, mt_err *err)
{
    const char *path = r->files.items[i];
    *out = NULL;
    open_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "opening %s", path);
    const mt_format *format = NULL;
    mt_rc rc = map_file(f, path, r->given, err);
    if (rc) goto fail;
    f->src.path = path;
    f->src.opt = r->opt;
    f->src.keep = &f->keep;
    rc = check_not_empty_space(&f->src, err);
    if (rc) goto fail;
    rc = mt__format_find(&format, &f->src, err);
    if (rc) goto fail;
    rc = format->open(&f->reader, &f->src, err);
    if (rc) goto fail;
    f->format = format;
    *out = f;
    return MT_OK;
fail:
    close_file(f);
    return rc;
}

static mt_rc open_records(mt_records **out, const char *path, const mt_record_bytes *given, const mt_records_options *opt,
                          mt_err *err)
{
    *out = NULL;
    mt_records *r = mt_calloc(1, sizeof *r);
    if (!r) return mt_no_memory(err, "reading %s", path);
    if (opt) r->opt = *opt;
    if (given) r->given_bytes = *given, r->given = &r->given_bytes;
    mt_rc rc = mt_split_spec_parse(&r->split, r->opt.split, err);
    if (!rc && r->split.sliced) r->opt.split = r->split.name;
    if (!rc) rc = given ? mt__name_list_add(&r->files, path, strlen(path), err) : mt__record_files(&r->files, path, &r->opt, err);
    if (!rc) rc = open_at(r, 0, &r->file, err);
    if (rc) {
        mt_records_close(r);
        return rc;
    }
    *out = r;
    return MT_OK;
}

mt_rc mt_records_open(mt_records **out, const char *path, const mt_records_options *opt, mt_err *err)
{
    return open_records(out, path, NULL, opt, err);
}

mt_rc mt__records_open_bytes(mt_records **out, const char *name, const void *data, size_t n, const mt_records_options *opt,
                             mt_err *err)
{
    return open_records(out, name, &(mt_record_bytes){ .data = data, .size = n }, opt, err);
}

static bool copies_records(const mt_records *r) { return r->files.n > MOST_MAPPED; }

/* The format's reader ends here; the mapping stays until the last record that points into it is gone. */
static mt_rc retire_file(mt_records *r, mt_err *err)
{
    if (copies_records(r)) {
        close_file(r->file);
        r->file = NULL;
        return MT_OK;
    }
    MT_TRY(mt_grow(&r->past, &r->cap_past, r->n_past + 1, sizeof *r->past, err));
    open_file *f = r->file;
    f->format->close(f->reader);
    f->reader = NULL;
    f->format = NULL;
    if (f->map.size) madvise((void *)(uintptr_t)f->map.data, f->map.size, MADV_DONTNEED);
    r->past[r->n_past++] = f;
    r->file = NULL;
    return MT_OK;
}

static void release_behind(open_file *f)
{
    if (!f->map.size) return;
    size_t at = f->format->position ? f->format->position(f->reader) : 0;
    if (at < f->released + RELEASE_STEP) return;
    size_t upto = at / RELEASE_STEP * RELEASE_STEP;
    madvise((void *)(uintptr_t)(f->map.data + f->released), upto - f->released, MADV_DONTNEED);
    f->released = upto;
}

/* Columns of one repeated value or of nulls take no room, so a file of a few bytes can claim any number of rows.  Those that
 * people write have far fewer. */
static mt_rc check_rows(const open_file *f, mt_err *err)
{
    enum { BASE = 1 << 16, ROWS_A_BYTE = 64 };
    uint64_t most = BASE + (uint64_t)ROWS_A_BYTE * f->src.size;
    if ((uint64_t)f->n_rows <= most) return MT_OK;
    return mt_fail(err, MT_EFORMAT,
                   "%s claims more rows than its %zu bytes can stand for (%llu are believed): it repeats one row over and over, "
                   "or is damaged.  Write it again with the rows themselves",
                   f->src.path, f->src.size, (unsigned long long)most);
}

static mt_rc next_in_file(open_file *f, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    *out = (mt_value){ 0 };
    *where = (mt_record_place){ .file = f->src.path, .row = f->n_rows + 1 };
    MT_TRY(f->format->next(f->reader, arena, out, where, err));
    if (where->state != MT_RECORD_END) f->n_rows++;
    release_behind(f);
    return check_rows(f, err);
}

void mt_record_place_text(char *out, size_t n, const mt_record_place *p)
{
    char at[80];
    if (!p->line)
        snprintf(at, sizeof at, ", row %lld", (long long)p->row);
    else if (p->shares_line)
        snprintf(at, sizeof at, ", line %lld, record %lld", (long long)p->line, (long long)p->row);
    else
        snprintf(at, sizeof at, ", line %lld", (long long)p->line);
    size_t taken = strlen(at) + 1; /* a long path is cut, the number never */
    snprintf(out, n, "%.*s%s", n > taken ? (int)(n - taken) : 0, p->file, at);
}

mt_rc mt__record_bad_here(mt_record_place *where, mt_err *err)
{
    char place[500]; /* as much as a note holds */
    mt_record_place_text(place, sizeof place, where);
    mt_note(err, "%s", place);
    return mt__record_bad(where);
}

static mt_rc copy_record(mt_value *v, mt_arena *arena, const mt_record_place *where, mt_err *err)
{
    mt_value lent = *v;
    return mt_value_copy(v, arena, &lent) ? MT_OK : mt_no_memory(err, "a record of %s", where->file);
}

static mt_rc next_record(mt_records *r, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    for (;;) {
        if (r->current >= r->files.n) {
            *out = (mt_value){ 0 };
            *where = (mt_record_place){ .state = MT_RECORD_END, .file = r->files.items[r->files.n - 1] };
            return MT_OK;
        }
        if (!r->file) MT_TRY(open_at(r, r->current, &r->file, err));
        MT_TRY(next_in_file(r->file, arena, out, where, err));
        if (where->state == MT_RECORD_OK && copies_records(r)) MT_TRY(copy_record(out, arena, where, err));
        if (where->state != MT_RECORD_END) return MT_OK;
        if (r->current + 1 < r->files.n) MT_TRY(retire_file(r, err)); /* the last stays open for its columns */
        r->current++;
    }
}

/* Read on to the n-th record or the end; *n becomes the number of those read. */
static mt_rc pass_over(mt_records *r, int64_t *n, mt_err *err)
{
    mt_arena arena = { 0 }; /* not the caller's: skipped records are not kept */
    mt_value ignored;
    mt_record_place where = { 0 };
    int64_t most = *n;
    mt_rc rc = MT_OK;
    for (*n = 0; !rc && *n < most; ++*n) {
        mt_arena_reset(&arena);
        rc = next_record(r, &arena, &ignored, &where, err);
        if (where.state == MT_RECORD_END) break;
    }
    mt_arena_free(&arena);
    return rc;
}

/* Find the part of a slice and stand before its first record. */
static mt_rc place_slice(mt_records *r, mt_err *err)
{
    int64_t n = INT64_MAX, first, end;
    if (mt_split_spec_counts(&r->split)) {
        MT_TRY(mt_records_count(r, &n, err));
        if (n < 0) { /* the format does not say: count */
            n = INT64_MAX;
            MT_TRY(pass_over(r, &n, err));
            MT_TRY(mt_records_rewind(r, err));
        }
    }
    mt_split_spec_range(&r->split, n, &first, &end);
    r->n_part = r->n_left = end - first;
    r->placed = true;
    return pass_over(r, &first, err);
}

mt_rc mt_records_next(mt_records *r, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    if (!err) return mt_records_next(r, arena, out, where, &(mt_err){ 0 });
    if (r->broken.rc) return mt_fail(err, r->broken.rc, "%s", r->broken.msg);
    mt_rc rc = r->split.sliced && !r->placed ? place_slice(r, err) : MT_OK;
    if (!rc && r->split.sliced && !r->n_left) {
        *out = (mt_value){ 0 };
        *where = (mt_record_place){ .state = MT_RECORD_END, .file = r->files.items[r->files.n - 1] };
        return MT_OK;
    }
    if (!rc) rc = next_record(r, arena, out, where, err);
    if (rc) r->broken = *err;
    r->n_left -= r->split.sliced;
    return rc;
}

static void close_past(mt_records *r)
{
    for (size_t i = 0; i < r->n_past; i++) close_file(r->past[i]);
    r->n_past = 0;
}

mt_rc mt_records_rewind(mt_records *r, mt_err *err)
{
    close_past(r);
    close_file(r->file);
    r->file = NULL;
    r->broken = (mt_err){ 0 };
    r->placed = false;
    r->current = 0;
    return open_at(r, 0, &r->file, err);
}

mt_rc mt_records_count(mt_records *r, int64_t *out, mt_err *err)
{
    *out = -1;
    int64_t total = 0;
    for (size_t i = 0; i < r->files.n; i++) {
        open_file *f;
        MT_TRY(open_at(r, i, &f, err));
        int64_t n = f->format->count ? f->format->count(f->reader) : -1;
        close_file(f);
        if (n < 0) return MT_OK;
        if (__builtin_add_overflow(total, n, &total))
            return mt_fail(err, MT_EFORMAT, "%s claims more rows than can be counted", r->files.items[i]);
    }
    *out = total;
    return MT_OK;
}

double mt_records_share(const mt_records *r)
{
    double part = 0;
    const open_file *f = r->file;
    if (r->current >= r->files.n) return 1;
    if (r->placed && r->n_part > 0 && mt_split_spec_counts(&r->split)) return 1 - (double)r->n_left / (double)r->n_part;
    if (f && f->format->position && f->src.size) {
        part = (double)f->format->position(f->reader) / (double)f->src.size;
    } else if (f && f->format->count) {
        int64_t n = f->format->count(f->reader);
        if (n > 0) part = (double)f->n_rows / (double)n;
    }
    return ((double)r->current + part) / (double)r->files.n;
}

size_t mt_records_columns(const mt_records *r, const char *const **names)
{
    const mt_name_list *columns = r->file ? r->file->format->columns(r->file->reader) : NULL;
    *names = columns ? columns->items : NULL;
    return columns ? columns->n : 0;
}

size_t mt_records_files(const mt_records *r, const char *const **paths)
{
    *paths = r->files.items;
    return r->files.n;
}

const char *mt_records_format(const mt_records *r) { return r->file ? r->file->format->name : NULL; }

void mt_records_close(mt_records *r)
{
    if (!r) return;
    close_file(r->file);
    close_past(r);
    mt_free(r->past);
    mt__name_list_free(&r->files);
    mt_free(r);
}
