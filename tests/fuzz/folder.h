/* folder.h - files for a fuzz target whose code reads a directory, and an input that is cut into several texts.
 *
 * The directory is made once, in memory where the system has such a place, and removed when the program ends. */
#ifndef MT_FUZZ_FOLDER_H
#define MT_FUZZ_FOLDER_H

#include "ckpt/outdir.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder_root[PATH_MAX - 256]; /* "" before the first use */

static inline void expect(bool holds)
{
    if (!holds) abort();
}

static inline void folder_forget(void)
{
    mt_err err;
    (void)mt_dir_remove(folder_root, &err);
}

/* True the first time: then the caller fills it. */
static inline bool folder_make(void)
{
    if (*folder_root) return false;
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder_root, sizeof folder_root, "%s/mt-fuzz-XXXXXX", base);
    expect(mkdtemp(folder_root) != NULL && atexit(folder_forget) == 0);
    return true;
}

typedef struct folder_path {
    char s[PATH_MAX];
} folder_path;

static inline folder_path folder_at(const char *name)
{
    folder_path p;
    snprintf(p.s, sizeof p.s, "%s/%s", folder_root, name);
    return p;
}

/* A text within an input; s is NULL where the input has no such part. */
typedef struct fuzz_part {
    const char *s;
    size_t n;
} fuzz_part;

#define FUZZ_CUT "\n=====\n"

/* Parts are separated by FUZZ_CUT. */
static inline fuzz_part fuzz_part_of(const uint8_t *data, size_t n, size_t which)
{
    const char *s = (const char *)data;
    for (size_t i = 0;; i++) {
        const char *cut = n ? memmem(s, n, FUZZ_CUT, strlen(FUZZ_CUT)) : NULL;
        size_t n_part = cut ? (size_t)(cut - s) : n;
        if (i == which) return (fuzz_part){ s, n_part };
        if (!cut) return (fuzz_part){ NULL, 0 };
        s = cut + strlen(FUZZ_CUT);
        n -= n_part + strlen(FUZZ_CUT);
    }
}

/* A file of the directory; a part that is not there removes it. */
static inline void folder_put(const char *name, fuzz_part text)
{
    folder_path path = folder_at(name);
    unlink(path.s);
    if (!text.s) return;
    FILE *f = fopen(path.s, "wb");
    expect(f && fwrite(text.s, 1, text.n, f) == text.n && fclose(f) == 0);
}

static inline void folder_put_text(const char *name, const char *text) { folder_put(name, (fuzz_part){ text, strlen(text) }); }

static inline bool part_has(const char *s, size_t n, const char *word) { return n && memmem(s, n, word, strlen(word)); }

#endif
