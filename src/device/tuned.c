#include "device/tuned.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/rng.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20 };

typedef struct entry {
    int64_t key[MT_TUNED_KEY];
    uint64_t choice[MT_TUNED_CHOICE];
} entry;

struct mt_tuned {
    char *path; /* NULL: nowhere */
    entry *entries;
    int n, room;
};

static const entry *tuned_find(const mt_tuned *t, const int64_t key[MT_TUNED_KEY])
{
    for (int i = 0; i < t->n; i++)
        if (memcmp(t->entries[i].key, key, sizeof t->entries[i].key) == 0) return &t->entries[i];
    return NULL;
}

/* The first of a shape counts; true: this one.  If memory runs out it is not kept, and timed again at its next use. */
static bool tuned_keep(mt_tuned *t, const entry *e)
{
    if (tuned_find(t, e->key)) return false;
    if (t->n == t->room) {
        int room = t->room ? 2 * t->room : 64;
        entry *more = mt_realloc(t->entries, (size_t)room * sizeof *more);
        if (!more) return false;
        t->entries = more;
        t->room = room;
    }
    t->entries[t->n++] = *e;
    return true;
}

/* -- the file -------------------------------------------------------------------------------------- */

/* Key, choice and the sum of both, all numbers of a line and no more; what a crash cut short is none. */
static bool read_line(const char *line, const char *end, entry *out)
{
    char *next = NULL;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < MT_TUNED_KEY; i++, line = next) {
        out->key[i] = strtoll(line, &next, 10);
        if (next == line || next >= end) return false;
    }
    for (int i = 0; i < MT_TUNED_CHOICE; i++, line = next) {
        out->choice[i] = strtoull(line, &next, 16);
        if (next == line || next >= end) return false;
    }
    return strtoull(line, &next, 16) == mt_hash(out, sizeof *out, 1) && next == end;
}

static void read_choices(mt_tuned *t, const char *text, const char *last)
{
    for (const char *end; (end = memchr(text, '\n', (size_t)(last - text))); text = end + 1) {
        entry e;
        if (read_line(text, end, &e)) tuned_keep(t, &e);
    }
}

/* A file of other kernels is obsolete. */
static mt_rc read_file(mt_tuned *t, const char *who, bool *found, mt_err *err)
{
    char *text = NULL;
    size_t n, head = strlen(who);
    *found = false;
    if (!mt_file_exists(t->path)) return MT_OK;
    MT_TRY(mt_file_read(&text, &n, t->path, MOST_BYTES, err));
    *found = strncmp(text, who, head) == 0 && text[head] == '\n';
    if (*found)
        read_choices(t, text + head + 1, text + n);
    else
        mt_disk_remove(t->path, false);
    mt_free(text);
    return MT_OK;
}

/* The second of two at the same moment must not lose what the first has written since: a link is made only where nothing
 * is. */
static mt_rc put_in_place(const char *made, const char *path, mt_err *err)
{
    if (link(made, path) == 0 || errno == EEXIST) return MT_OK;
    return mt_disk_rename(made, path) == 0 ? MT_OK : mt_fail_errno(err, MT_EIO, "%s", path); /* a file system without links */
}

static mt_rc begin_file(const mt_tuned *t, const char *who, mt_err *err)
{
    char *first = mt_asprintf("%s\n", who), *made = mt_asprintf("%s.%ld", t->path, (long)getpid());
    mt_rc rc = first && made ? mt_outfile_save(made, first, strlen(first), err) : mt_no_memory(err, "a line");
    if (!rc) rc = put_in_place(made, t->path, err);
    if (made) mt_disk_remove(made, false);
    mt_free(made);
    mt_free(first);
    return rc;
}

static mt_rc open_file(mt_tuned *t, const char *dir, const char *who, mt_err *err)
{
    bool found;
    MT_TRY(mt_dir_make(dir, err));
    MT_TRY(read_file(t, who, &found, err));
    if (found) return MT_OK;
    MT_TRY(begin_file(t, who, err));
    return read_file(t, who, &found, err);
}

/* In one write at the end: others may be at it, too.  A line begins with an end, should the one before have none. */
static bool tuned_append(const char *path, const char *line, size_t n)
{
    int fd = -1;
    bool ok = !mt_disk_open(&fd, path, O_WRONLY | O_APPEND | O_NOFOLLOW, NULL) && mt_disk_append(fd, line, n) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

static void write_choice(mt_tuned *t, const entry *e)
{
    mt_str line = { 0 };
    mt_str_printf(&line, "\n");
    for (int i = 0; i < MT_TUNED_KEY; i++) mt_str_printf(&line, "%s%" PRId64, i ? " " : "", e->key[i]);
    for (int i = 0; i < MT_TUNED_CHOICE; i++) mt_str_printf(&line, " %" PRIx64, e->choice[i]);
    mt_str_printf(&line, " %" PRIx64 "\n", mt_hash(e, sizeof *e, 1));
    if (!mt_str_ok(&line) || !tuned_append(t->path, line.s, line.n)) {
        mt_warn("%s cannot be written: the kernels chosen for products are not remembered, and another run may have other bits",
                t->path);
        mt_free(t->path);
        t->path = NULL;
    }
    mt_str_free(&line);
}

/* -- outside --------------------------------------------------------------------------------------- */

mt_rc mt_tuned_open(mt_tuned **out, const char *dir, const char *who, mt_err *err)
{
    mt_err why = { 0 };
    *out = NULL;
    mt_tuned *t = mt_calloc(1, sizeof *t);
    if (t && *dir) t->path = mt_asprintf("%s/products-%016" PRIx64, dir, mt_hash(who, strlen(who), 1));
    if (!t || (*dir && !t->path)) {
        mt_tuned_close(t);
        return mt_no_memory(err, "the choices of products");
    }
    if (t->path && open_file(t, dir, who, &why)) {
        mt_warn("the kernels chosen for products are not remembered, and another run may have other bits: %s", why.msg);
        mt_free(t->path);
        t->path = NULL;
    }
    *out = t;
    return MT_OK;
}

char *mt_tuned_folder(void)
{
    mt_err why = { 0 };
    char *dir;
    if (mt_user_cache(&dir, &why) == MT_OK) return dir;
    mt_warn("the kernels chosen for products are not remembered, and another run may have other bits: %s", why.msg);
    return mt_strdup("");
}

void mt_tuned_close(mt_tuned *t)
{
    if (!t) return;
    mt_free(t->path);
    mt_free(t->entries);
    mt_free(t);
}

int mt_tuned_count(const mt_tuned *t) { return t->n; }

bool mt_tuned_find(const mt_tuned *t, const int64_t key[MT_TUNED_KEY], uint64_t choice[MT_TUNED_CHOICE])
{
    const entry *e = tuned_find(t, key);
    if (e) memcpy(choice, e->choice, sizeof e->choice);
    return e != NULL;
}

void mt_tuned_add(mt_tuned *t, const int64_t key[MT_TUNED_KEY], const uint64_t choice[MT_TUNED_CHOICE])
{
    entry e;
    memcpy(e.key, key, sizeof e.key);
    memcpy(e.choice, choice, sizeof e.choice);
    if (tuned_keep(t, &e) && t->path) write_choice(t, &e);
}
