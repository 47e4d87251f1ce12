/* archives.h - published tokenizers for tests, where they are at hand. */
#ifndef MT_TEST_ARCHIVES_H
#define MT_TEST_ARCHIVES_H

#include "test.h"

#include "base/file.h"

#include <stdlib.h>

/* $MT_TOKENIZERS/NAME, or the archive beside the source tree unpacked to a new folder under dir. */
static inline bool find_archive(const char *name, const char *dir, char *path, size_t n)
{
    const char *given = getenv("MT_TOKENIZERS");
    if (given) {
        snprintf(path, n, "%s/%s", given, name);
        if (mt_dir_exists(path)) return true;
    }
    char packed[512], command[1200];
    snprintf(packed, sizeof packed, MT_TESTS_DIR "/../../shared/tokenizers/%s.tar.xz", name);
    if (!mt_file_exists(packed)) snprintf(packed, sizeof packed, MT_TESTS_DIR "/../../../shared/tokenizers/%s.tar.xz", name);
    if (!mt_file_exists(packed)) return false;
    snprintf(command, sizeof command, "tar -xJf '%s' -C '%s' 2>/dev/null", packed, dir);
    snprintf(path, n, "%s/%s", dir, name);
    return system(command) == 0 && mt_dir_exists(path);
}

#endif
