#include "ckpt/manifest.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/outfile.h"
#include "base/pool.h"
#include "base/spread.h"
#include "ckpt/checksum.h"
#include "ckpt/outdir.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- writing --------------------------------------------------------------------------------------- */

/* It is synced: the memory that holds it is better used for something else. */
static void drop_from_memory(const char *path)
{
    int fd;
    if (mt_disk_open(&fd, path, O_RDONLY | O_NOFOLLOW, NULL)) return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

const mt_manifest_entry *mt_manifest_find(const mt_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->items[i].name, name) == 0) return &m->items[i];
    return NULL;
}

void mt_manifest_init(mt_manifest *m, const char *dir)
{
    *m = (mt_manifest){ .dir = dir };
    pthread_mutex_init(&m->lock, NULL);
}

static mt_rc manifest_add(mt_manifest *m, const mt_manifest_entry *e, mt_err *err)
{
    pthread_mutex_lock(&m->lock);
    mt_rc rc = mt_grow(&m->items, &m->cap, m->n + 1, sizeof *m->items, err);
    if (!rc) m->items[m->n++] = *e;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

mt_rc mt_manifest_take(mt_manifest *m, const char *name, mt_err *err)
{
    mt_manifest_entry e = { .name = mt_strdup(name) };
    char *path = mt_path_join(m->dir, name);
    mt_rc rc = path && e.name ? mt_checksum_file(&e.sum, &e.bytes, path, err) : mt_no_memory(err, "the checksums of %s", m->dir);
    if (!rc) drop_from_memory(path);
    if (!rc) rc = manifest_add(m, &e, err);
    if (rc) mt_free(e.name);
    mt_free(path);
    return rc;
}

mt_rc mt_manifest_take_known(mt_manifest *m, const char *name, uint64_t bytes, uint64_t sum, mt_err *err)
{
    mt_manifest_entry e = { .name = mt_strdup(name), .bytes = bytes, .sum = sum };
    mt_rc rc = e.name ? manifest_add(m, &e, err) : mt_no_memory(err, "the checksums of %s", m->dir);
    if (rc) mt_free(e.name);
    return rc;
}

/* Entries of dir/below, or of dir itself where below is "". */
static mt_rc take_rest(mt_manifest *m, const char *below, mt_err *err)
{
    mt_dir_names names;
    char *dir = mt_path_join(m->dir, below);
    mt_rc rc = dir ? mt_dir_list(&names, dir, err) : mt_no_memory(err, "the checksums of %s", m->dir);
    if (rc) return mt_free(dir), rc;
    for (size_t i = 0; !rc && i < names.n; i++) {
        char *name = mt_asprintf("%s%s%s", below, *below ? "/" : "", names.items[i]), *path = mt_path_join(dir, names.items[i]);
        if (!name || !path)
            rc = mt_no_memory(err, "the checksums of %s", m->dir);
        else if (mt_dir_exists(path))
            rc = *below ? MT_OK : take_rest(m, name, err);
        else if (!mt_manifest_find(m, name) && strcmp(name, MT_MANIFEST_NAME) != 0)
            rc = mt_manifest_take(m, name, err);
        mt_free(name);
        mt_free(path);
    }
    mt_dir_names_free(&names);
    mt_free(dir);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mt_manifest_entry *)a)->name, ((const mt_manifest_entry *)b)->name);
}

static mt_rc put_list(const mt_manifest *m, mt_str *s, mt_err *err)
{
    mt_json_out j = { .to = s };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_map(&j, "files", MT_JSON_LINES);
    for (size_t i = 0; i < m->n; i++) {
        mt_json_map(&j, m->items[i].name, MT_JSON_FLAT);
        mt_json_put_size(&j, "bytes", m->items[i].bytes);
        mt_json_put_strf(&j, "checksum", "%016" PRIx64, m->items[i].sum);
        mt_json_end(&j);
    }
    mt_json_end(&j);
    mt_json_end(&j);
    mt_str_putc(s, '\n');
    return mt_json_done(&j, MT_MANIFEST_NAME, err);
}

mt_rc mt_manifest_write(mt_manifest *m, mt_err *err)
{
    mt_str s = { 0 };
    MT_TRY(take_rest(m, "", err));
    if (m->n) qsort(m->items, m->n, sizeof *m->items, by_name);
    char *path = mt_path_join(m->dir, MT_MANIFEST_NAME);
    mt_rc rc = path ? put_list(m, &s, err) : mt_no_memory(err, "the checksums of %s", m->dir);
    if (!rc) rc = mt_outfile_save(path, s.s, s.n, err);
    mt_str_free(&s);
    mt_free(path);
    return rc;
}

void mt_manifest_deinit(mt_manifest *m)
{
    pthread_mutex_destroy(&m->lock);
    for (size_t i = 0; i < m->n; i++) mt_free(m->items[i].name);
    mt_free(m->items);
    *m = (mt_manifest){ 0 };
}

/* -- verifying ------------------------------------------------------------------------------------- */

static mt_rc verify_file(const char *path, const mt_value *entry, const char *list, mt_err *err)
{
    int64_t want_bytes;
    const char *want_sum;
    uint64_t sum = 0, bytes;
    MT_TRY(mt_json_i64(entry, "bytes", -1, &want_bytes, list, err));
    MT_TRY(mt_json_str(entry, "checksum", "", &want_sum, list, err));
    struct stat st;
    bool plain = lstat(path, &st) == 0 && S_ISREG(st.st_mode), as_long = plain && (int64_t)st.st_size == want_bytes;
    bytes = plain ? (uint64_t)st.st_size : 0;
    if (!plain || as_long) MT_TRY(mt_checksum_file(&sum, &bytes, path, err)); /* of another length it is not worth reading */
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return mt_fail(err, MT_EFORMAT, "%s is a link; a checkpoint's files are its own", path);
    if ((int64_t)bytes != want_bytes)
        return mt_fail(err, MT_EFORMAT, "%s has %" PRIu64 " bytes, %" PRId64 " were written (cut short?)", path, bytes,
                       want_bytes);
    if (sum != strtoull(want_sum, NULL, 16))
        return mt_fail(err, MT_EFORMAT, "%s: the checksum is wrong; the file is damaged", path);
    return MT_OK;
}

typedef struct listed {
    const char *dir, *list; /* the list's own path */
    size_t n;
    struct listed_file {
        const char *name;
        const mt_value *entry;
    } * files;
} listed;

static mt_rc verify_one(void *arg, int64_t i, mt_err *err)
{
    const listed *l = arg;
    const struct listed_file *f = &l->files[i];
    if (!mt_value_has(f->entry, MT_VALUE_MAP) || !mt_path_is_below(f->name))
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is not an entry of a file", l->list, f->name);
    char *path = mt_path_join(l->dir, f->name);
    mt_rc rc = path ? verify_file(path, f->entry, l->list, err) : mt_no_memory(err, "the checksums of %s", l->dir);
    mt_free(path);
    return rc;
}

static mt_rc verify_files(const char *dir, const mt_value *files, const char *list, mt_err *err)
{
    enum { MOST_THREADS = 8 };
    listed l = { .dir = dir, .list = list, .files = mt_calloc(mt_value_pairs(files) + 1, sizeof *l.files) };
    if (!l.files) return mt_no_memory(err, "the checksums of %s", dir);
    for (size_t i = 0; i < mt_value_pairs(files); i++)
        l.files[l.n++] = (struct listed_file){ files->map.pairs[i].key, &files->map.pairs[i].value };
    mt_rc rc = mt_spread((int)mt_min_i64(mt_cpu_count(), MOST_THREADS), (int64_t)l.n, verify_one, &l, err);
    mt_free(l.files);
    return rc;
}

mt_rc mt_manifest_verify(const char *dir, mt_err *err)
{
    const mt_value *doc = NULL;
    char *list = mt_path_join(dir, MT_MANIFEST_NAME);
    if (!list) return mt_no_memory(err, "the checksums of %s", dir);
    mt_rc rc = mt_json_read(&doc, list, err);
    const mt_value *files = rc ? NULL : mt_value_get(doc, "files");
    if (!rc && !mt_value_has(files, MT_VALUE_MAP)) rc = mt_fail(err, MT_EFORMAT, "%s: {\"files\": {...}} was expected", list);
    if (!rc) rc = verify_files(dir, files, list, err);
    mt_json_free(doc);
    mt_free(list);
    return rc;
}
