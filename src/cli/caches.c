#include "cli/caches.h"

#include "base/file.h"
#include "base/log.h"
#include "ckpt/outdir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool can_write(const char *dir)
{
    mt_err ignored = { 0 };
    return mt_dir_make(dir, &ignored) == MT_OK && access(dir, W_OK | X_OK) == 0;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* HF_HOME would follow XDG_CACHE_HOME: keep reading models from the old place. */
static mt_rc keep_hub(mt_err *err)
{
    const char *home = getenv("HOME");
    if (is_set("HF_HOME") || is_set("XDG_CACHE_HOME") || !home || !*home) return MT_OK;
    char *hub = mt_path_join(home, ".cache/huggingface");
    if (!hub) return mt_no_memory(err, "a path");
    if (mt_dir_exists(hub)) setenv("HF_HOME", hub, 1);
    mt_free(hub);
    return MT_OK;
}

/* As an absolute path: mt_user_cache ignores a relative one. */
static mt_rc place_beside(const mt_settings *s, mt_err *err)
{
    mt_rc rc = MT_OK;
    char *cache = mt_path_join(s->save.output_dir, "cache"), *whole = NULL;
    if (cache && can_write(cache)) whole = realpath(cache, NULL);
    if (!cache) rc = mt_no_memory(err, "a path");
    if (!rc && !whole)
        rc = mt_fail(err, MT_EIO,
                     "neither the user's cache (XDG_CACHE_HOME, HOME) nor %s can be written (%s); set XDG_CACHE_HOME to a folder "
                     "that can be written, or choose another --output-dir",
                     cache, strerror(errno));
    if (!rc) rc = keep_hub(err);
    if (!rc) {
        setenv("XDG_CACHE_HOME", whole, 1);
        mt_info("the user's cache (XDG_CACHE_HOME, HOME) cannot be written: downloads and tokenized data are kept in %s", cache);
    }
    free(whole);
    mt_free(cache);
    return rc;
}

mt_rc mt_caches_settle(const mt_settings *s, mt_err *err)
{
    char *dir = NULL;
    mt_err none = { 0 };
    mt_rc rc = mt_user_cache(&dir, &none);
    if (rc == MT_ENOMEM) return mt_fail(err, rc, "%s", none.msg);
    bool usable = dir && can_write(dir);
    mt_free(dir);
    return usable ? MT_OK : place_beside(s, err);
}
