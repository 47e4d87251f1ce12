#include "ckpt/manifest.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "ckpt/checksum.h"
#include "ckpt/outdir.h"
#include "ckpt/outfile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static mt_rc no_memory(const char *dir, mt_err *err) { return mt_fail(err, MT_ENOMEM, "no host memory for the checksums of %s", dir); }

/* -- writing --------------------------------------------------------------------------------------- */

static mt_rc add_file(mt_str *s, const char *path, const char *name, mt_err *err)
{
    uint64_t sum, bytes;
    MT_TRY(mt_checksum_file(&sum, &bytes, path, err));
    mt_str_puts(s, s->s[s->n - 1] == '{' ? "\n    " : ",\n    ");
    mt_str_json(s, name, strlen(name));
    mt_str_printf(s, ": {\"bytes\": %" PRIu64 ", \"checksum\": \"%016" PRIx64 "\"}", bytes, sum);
    return mt_str_ok(s) ? MT_OK : no_memory(path, err);
}

/* prefix: "" or "resume/" */
static mt_rc add_dir(mt_str *s, const char *dir, const char *prefix, mt_err *err)
{
    mt_dir_names names;
    MT_TRY(mt_dir_list(&names, dir, err));
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < names.n; i++) {
        char *path = mt_path_join(dir, names.items[i]), *name = mt_asprintf("%s%s", prefix, names.items[i]);
        char *below = mt_asprintf("%s%s/", prefix, names.items[i]);
        if (!path || !name || !below)
            rc = no_memory(dir, err);
        else if (mt_dir_exists(path))
            rc = *prefix ? MT_OK : add_dir(s, path, below, err);
        else if (strcmp(name, MT_MANIFEST_NAME) != 0)
            rc = add_file(s, path, name, err);
        mt_free(path);
        mt_free(name);
        mt_free(below);
    }
    mt_dir_names_free(&names);
    return rc;
}

mt_rc mt_manifest_write(const char *dir, mt_err *err)
{
    mt_str s = { 0 };
    char *path = mt_path_join(dir, MT_MANIFEST_NAME);
    mt_str_puts(&s, "{\n  \"files\": {");
    mt_rc rc = path && mt_str_ok(&s) ? add_dir(&s, dir, "", err) : no_memory(dir, err);
    mt_str_puts(&s, "\n  }\n}\n");
    if (!rc && !mt_str_ok(&s)) rc = no_memory(dir, err);
    if (!rc) rc = mt_outfile_save(path, s.s, s.n, err);
    mt_str_free(&s);
    mt_free(path);
    return rc;
}

/* -- verifying ------------------------------------------------------------------------------------- */

/* A name from a file we do not trust: inside the directory, and no way out of it. */
static bool name_is_safe(const char *name) { return *name && *name != '/' && !strstr(name, ".."); }

static mt_rc verify_file(const char *path, const json_t *entry, const char *list, mt_err *err)
{
    int64_t want_bytes;
    const char *want_sum;
    uint64_t sum, bytes;
    MT_TRY(mt_json_i64(entry, "bytes", -1, &want_bytes, list, err));
    MT_TRY(mt_json_str(entry, "checksum", "", &want_sum, list, err));
    MT_TRY(mt_checksum_file(&sum, &bytes, path, err));
    if ((int64_t)bytes != want_bytes)
        return mt_fail(err, MT_EFORMAT, "%s has %" PRIu64 " bytes, %" PRId64 " were written (cut short?)", path, bytes, want_bytes);
    if (sum != strtoull(want_sum, NULL, 16)) return mt_fail(err, MT_EFORMAT, "%s: the checksum is wrong; the file is damaged", path);
    return MT_OK;
}

static mt_rc verify_files(const char *dir, const json_t *files, const char *list, mt_err *err)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)files, name, entry)
    {
        if (!json_is_object(entry) || !name_is_safe(name)) return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is no entry of a file", list, name);
        char *path = mt_path_join(dir, name);
        mt_rc rc = path ? verify_file(path, entry, list, err) : no_memory(dir, err);
        mt_free(path);
        if (rc) return rc;
    }
    return MT_OK;
}

mt_rc mt_manifest_verify(const char *dir, mt_err *err)
{
    json_t *doc = NULL;
    char *list = mt_path_join(dir, MT_MANIFEST_NAME);
    if (!list) return no_memory(dir, err);
    mt_rc rc = mt_json_read(&doc, list, err);
    const json_t *files = rc ? NULL : json_object_get(doc, "files");
    if (!rc && !json_is_object(files)) rc = mt_fail(err, MT_EFORMAT, "%s: {\"files\": {...}} was expected", list);
    if (!rc) rc = verify_files(dir, files, list, err);
    json_decref(doc);
    mt_free(list);
    return rc;
}
