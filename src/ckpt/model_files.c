#include "ckpt/model_files.h"

#include "base/file.h"

#include <dirent.h>
#include <string.h>

static bool model_files_has(const char *dir, const char *name)
{
    char *path = mt_path_join(dir, name);
    bool yes = path && mt_file_exists(path);
    mt_free(path);
    return yes;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return name[0] != '.' && n > k && strcmp(name + n - k, end) == 0;
}

/* What a model directory has that we read or copy. */
static bool is_model_file(const char *name)
{
    static const char *const tails[] = {
        ".json", ".safetensors", ".bin", ".gguf", ".model", ".txt", ".jinja", ".tiktoken", ".py"
    };
    for (size_t i = 0; i < MT_COUNT(tails); i++)
        if (ends_with(name, tails[i])) return true;
    return false;
}

mt_rc mt_model_files_check(const char *path, mt_err *err)
{
    DIR *d = opendir(path);
    mt_rc rc = MT_OK;
    for (const struct dirent *e; d && !rc && (e = readdir(d));)
        if (is_model_file(e->d_name)) rc = mt_path_stays_inside(path, e->d_name, err);
    if (d) closedir(d);
    return rc;
}

mt_rc mt_model_files_gguf(char **out, const char *path, mt_err *err)
{
    size_t n = 0;
    *out = NULL;
    if (!mt_dir_exists(path)) {
        if (!mt_file_exists(path) || !mt_gguf_is(path)) return MT_OK; /* a FIFO would never answer */
        *out = mt_strdup(path);
        return *out ? MT_OK : mt_no_memory(err, "a path");
    }
    DIR *d = opendir(path);
    if (!d) return mt_fail_errno(err, MT_EIO, "opening %s", path);
    for (const struct dirent *e; (e = readdir(d));) {
        if (!ends_with(e->d_name, ".gguf")) continue;
        if (n++ == 0) *out = mt_path_join(path, e->d_name);
    }
    closedir(d);
    if (n == 1) return *out ? MT_OK : mt_no_memory(err, "a path");
    mt_free(*out);
    *out = NULL;
    return MT_OK;
}

static mt_rc open_gguf(mt_gguf **out, const char *path, const char *beside, mt_err *err)
{
    char *file = NULL;
    *out = NULL;
    if (mt_dir_exists(path) && model_files_has(path, beside)) return MT_OK;
    MT_TRY(mt_model_files_gguf(&file, path, err));
    mt_rc rc = file ? mt_gguf_open(out, file, err) : MT_OK;
    mt_free(file);
    return rc;
}

/* -- texts ----------------------------------------------------------------------------------------- */

enum { MAX_TEXT_BYTES = 1 << 30 };

static const struct {
    const char *name;
    mt_rc (*make)(const mt_gguf *g, mt_str *out, mt_err *err);
} made[] = {
    { "config.json", mt_gguf_config },
    { "generation_config.json", mt_gguf_generation_config },
    { "tokenizer.json", mt_gguf_tokenizer },
    { "tokenizer_config.json", mt_gguf_tokenizer_config },
};

static mt_rc read_own(char **text, size_t *n, const char *dir, const char *name, mt_err *err)
{
    char *path = mt_path_join(dir, name);
    mt_rc rc = path ? mt_path_stays_inside(dir, name, err) : mt_no_memory(err, "a path");
    if (!rc) rc = mt_file_read(text, n, path, MAX_TEXT_BYTES, err);
    mt_free(path);
    return rc;
}

mt_rc mt_model_files_read(char **text, size_t *n, const char *path, const char *name, mt_err *err)
{
    mt_gguf *g = NULL;
    mt_str s = { 0 };
    mt_rc rc = MT_OK;
    *text = NULL;
    *n = 0;
    if (mt_dir_exists(path) && model_files_has(path, name)) return read_own(text, n, path, name, err);
    for (size_t i = 0; i < MT_COUNT(made); i++) {
        if (strcmp(name, made[i].name) != 0) continue;
        MT_TRY(open_gguf(&g, path, name, err));
        rc = g ? made[i].make(g, &s, err) : MT_OK;
    }
    mt_gguf_close(g);
    if (rc) return mt_str_free(&s), rc;
    *text = s.s; /* it is the caller's now */
    *n = s.n;
    return MT_OK;
}

bool mt_model_files_has(const char *dir, const char *name) { return mt_dir_exists(dir) && model_files_has(dir, name); }

bool mt_model_files_exist(const char *path) { return mt_dir_exists(path) || (mt_file_exists(path) && mt_gguf_is(path)); }

mt_rc mt_model_files_need(const char *path, mt_err *err)
{
    if (mt_model_files_exist(path)) return MT_OK;
    if (mt_file_exists(path))
        return mt_fail(err, MT_EINVAL, "model.name: %s is a file; give the model's directory, a .gguf file or a name on the hub",
                       path);
    return mt_fail(err, MT_ENOENT, "model.name: no directory or .gguf file %s", path);
}

/* -- read ------------------------------------------------------------------------------------------ */

mt_rc mt_model_files_config(mt_config **out, const char *path, mt_err *err)
{
    mt_gguf *g;
    mt_str text = { 0 };
    *out = NULL;
    MT_TRY(mt_model_files_check(path, err));
    MT_TRY(open_gguf(&g, path, "config.json", err));
    if (!g) return mt_config_open(out, path, err);
    mt_rc rc = mt_gguf_config(g, &text, err);
    if (!rc) rc = mt_config_parse(out, text.s, text.n, path, err);
    mt_str_free(&text);
    mt_gguf_close(g);
    return rc;
}

mt_rc mt_model_files_tokenizer(mt_tokenizer **out, const char *path, mt_err *err)
{
    mt_gguf *g;
    mt_str text = { 0 }, config = { 0 };
    *out = NULL;
    MT_TRY(mt_model_files_check(path, err));
    MT_TRY(open_gguf(&g, path, "tokenizer.json", err));
    if (!g) return mt_dir_exists(path) ? mt_tokenizer_open(out, path, err) : mt_tokenizer_open_file(out, path, err);
    mt_rc rc = mt_gguf_tokenizer(g, &text, err);
    if (!rc) rc = mt_gguf_tokenizer_config(g, &config, err);
    if (!rc) rc = mt_tokenizer_open_texts(out, text.s, text.n, config.s, config.n, path, err);
    mt_str_free(&text);
    mt_str_free(&config);
    mt_gguf_close(g);
    return rc;
}

mt_rc mt_model_files_stop_ids(mt_stop_ids *out, const char *path, mt_err *err)
{
    static const char *const files[] = { "generation_config.json", "config.json" };
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < MT_COUNT(files); i++) {
        char *text;
        size_t n;
        rc = mt_model_files_read(&text, &n, path, files[i], err);
        if (!rc && text) rc = mt_stop_ids_parse(out, text, n, files[i], err);
        mt_free(text);
    }
    return rc;
}
