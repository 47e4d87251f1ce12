/* archives.h - published tokenizers for tests, where they are at hand: unpacked in the folder $MT_TOKENIZERS, or packed in
 * ../shared/tokenizers beside the source tree (or one above it).  What is not there is skipped with a message.
 *
 *     archives a;
 *     archives_open(&a);
 *     const char *folder = archive_find(&a, "qwen2_5");          // NULL: not at hand, and that was said
 *     archives_close(&a);                                        // true if any was found */
#ifndef MT_TEST_ARCHIVES_H
#define MT_TEST_ARCHIVES_H

#include "test.h"

#include "base/file.h"

#include <stdlib.h>

typedef struct archives {
    char dir[64]; /* what is packed is unpacked here */
    char name[64], path[600];
    bool there; /* the last one asked for */
    int n_found;
} archives;

static inline void archives_open(archives *a)
{
    *a = (archives){ .dir = "/tmp/mt-tokenizers-XXXXXX" };
    assert_non_null(mkdtemp(a->dir));
}

static inline bool archive_unpack(archives *a, const char *shared)
{
    char packed[512], command[1200];
    snprintf(packed, sizeof packed, "%s/%s.tar.xz", shared, a->name);
    if (!mt_file_exists(packed)) return false;
    snprintf(command, sizeof command, "tar -xJf '%s' -C '%s' 2>/dev/null", packed, a->dir);
    snprintf(a->path, sizeof a->path, "%s/%s", a->dir, a->name);
    return system(command) == 0 && mt_dir_exists(a->path);
}

static inline const char *archive_find(archives *a, const char *name)
{
    if (strcmp(a->name, name) == 0) return a->there ? a->path : NULL;
    const char *given = getenv("MT_TOKENIZERS");
    snprintf(a->name, sizeof a->name, "%s", name);
    snprintf(a->path, sizeof a->path, "%s/%s", given ? given : "", name);
    a->there = (given && mt_dir_exists(a->path)) || archive_unpack(a, MT_TESTS_DIR "/../../shared/tokenizers") ||
               archive_unpack(a, MT_TESTS_DIR "/../../../shared/tokenizers");
    a->n_found += a->there;
    if (!a->there)
        print_message("%s: not at hand (neither ../shared/tokenizers/%s.tar.xz nor $MT_TOKENIZERS/%s), skipped\n", name, name,
                      name);
    return a->there ? a->path : NULL;
}

static inline bool archives_close(archives *a)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", a->dir);
    assert_int_equal(system(command), 0);
    return a->n_found > 0;
}

#endif
