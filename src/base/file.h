/* file.h - files that are read: mapped or whole, never trusted, errors that name the path. */
#ifndef MT_BASE_FILE_H
#define MT_BASE_FILE_H

#include "base/mem.h"

/* A read-only mapping of a whole file.  An empty file maps to data = "" and size = 0. */
typedef struct mt_map {
    const uint8_t *data;
    size_t size;
} mt_map;

mt_rc mt_map_open(mt_map *out, const char *path, mt_err *err);
/* n bytes of it, from `from` on, have been read: their pages need not stay in memory (they come back when read again).  The
 * kernel's read-ahead around them goes too: threads that read side by side would otherwise keep each other's pages. */
void mt_map_release(const mt_map *map, const void *from, size_t n);
/* They will be read soon: begin to fetch them from the disk. */
void mt_map_expect(const mt_map *map, const void *from, size_t n);
/* They are read next.  False: they cannot be, the disk has failed or the file has become shorter, where a look at them would end
 * the process (SIGBUS). */
bool mt_map_fetch(const mt_map *map, const void *from, size_t n);
void mt_map_close(mt_map *map); /* accepts a zeroed or closed one */

/* The whole file as a NUL-terminated string (NULs inside allowed; *n_bytes may be NULL). */
mt_rc mt_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, mt_err *err);
/* The same of a file that a program of ours has written: a link in its place is refused. */
mt_rc mt_file_read_own(char **out, size_t *n_bytes, const char *path, size_t max_bytes, mt_err *err);

bool mt_file_exists(const char *path);
bool mt_dir_exists(const char *path);

/* True for a relative path that no ".." leads out of its directory: a name from a file that is not trusted. */
bool mt_path_is_below(const char *name);
/* Fails if dir/name is a link, or is reached through one, that leads out of dir: what a stranger's folder links to is not the
 * stranger's.  A snapshot of the hub's cache may link to the blobs beside it (models--X/snapshots/REV and models--X/blobs).  A
 * name that is not there is fine. */
mt_rc mt_path_stays_inside(const char *dir, const char *name, mt_err *err);
/* Where a path leads, if that is not in dir (nor among those blobs): newly allocated.  *real NULL: inside, or not there. */
mt_rc mt_path_outside(char **real, const char *dir, const char *path, mt_err *err);

/* dir + "/" + name, newly allocated; NULL: no memory. */
char *mt_path_join(const char *dir, const char *name);
/* The part after the last '/', inside path. */
const char *mt_path_base(const char *path);

/* Where this user's programs keep what can be made again: $XDG_CACHE_HOME/megatrain, else ~/.cache/megatrain.  Newly allocated;
 * it need not exist.  MT_EINVAL: neither is set. */
mt_rc mt_user_cache(char **out, mt_err *err);

#endif
