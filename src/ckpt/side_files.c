#include "ckpt/side_files.h"

#include "base/log.h"
#include "base/utf8.h"
#include "ckpt/model_files.h"
#include "ckpt/outdir.h"

#include <string.h>

/* What is taken when it is there, beside the kinds below. */
/* clang-format off */
static const char *const known[] = {
    "tokenizer.json",          "tokenizer.model",        "vocab.json",          "merges.txt",
    "special_tokens_map.json", "added_tokens.json",      "chat_template.jinja", "chat_template.json",
    "qwen.tiktoken",           "tokenizer.tiktoken",     "spiece.model",        "preprocessor_config.json",
    "processor_config.json",   "tokenizer_config.json",  "generation_config.json", "config.json",
    "video_preprocessor_config.json", "vocab.txt",       "tekken.json",
};
/* clang-format on */

/* All files of a folder whose names end so. */
static const struct {
    const char *folder, *ending;
} kinds[] = {
    { "", ".py" }, /* some families come with code that transformers needs to open them; here nothing runs it */
    { "additional_chat_templates/", ".jinja" },
};

const mt_side_file *mt_side_files_find(const mt_side_files *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0) return &f->items[i];
    return NULL;
}

/* Takes the text over. */
static mt_rc side_files_add(mt_side_files *f, const char *name, char *text, size_t n, mt_err *err)
{
    mt_side_file file = { .name = mt_strdup(name), .text = text, .n = n };
    mt_rc rc = file.name ? mt_grow(&f->items, &f->cap, f->n + 1, sizeof *f->items, err) : mt_no_memory(err, "%s", name);
    if (rc) {
        mt_free(file.name);
        mt_free(text);
        return rc;
    }
    f->items[f->n++] = file;
    return MT_OK;
}

static mt_rc side_files_take(mt_side_files *f, const char *source, const char *name, mt_err *err)
{
    char *text;
    size_t n;
    mt_err why = { 0 };
    mt_rc rc = mt_model_files_read(&text, &n, source, name, &why);
    bool tokenizer = strncmp(name, "tokenizer", 9) == 0;
    if (rc && tokenizer && rc != MT_ENOMEM && rc != MT_EIO) { /* write the weights even without a tokenizer */
        mt_warn("no %s will be written: %s", name, why.msg);
        return MT_OK;
    }
    if (rc) return mt_fail(err, rc, "%s", why.msg);
    return text ? side_files_add(f, name, text, n, err) : MT_OK;
}

static bool is_of_kind(const char *name, const char *ending)
{
    size_t n = strlen(name), k = strlen(ending);
    return name[0] != '.' && n > k && strcmp(name + n - k, ending) == 0;
}

static mt_rc take_kind(mt_side_files *f, const char *source, const char *folder, const char *ending, mt_err *err)
{
    mt_dir_names names = { 0 };
    char *dir = mt_path_join(source, folder);
    mt_rc rc = dir ? MT_OK : mt_no_memory(err, "%s", source);
    if (!rc && mt_dir_exists(dir)) rc = mt_dir_list(&names, dir, err);
    for (size_t i = 0; !rc && i < names.n; i++) {
        if (!is_of_kind(names.items[i], ending)) continue;
        if (!mt_utf8_valid(names.items[i], strlen(names.items[i]), NULL)) { /* a checkpoint's list of files is JSON */
            mt_warn("a file in %s whose name is not UTF-8 is not saved with the model: *%s", source, ending);
            continue;
        }
        char *name = mt_asprintf("%s%s", folder, names.items[i]);
        rc = name ? side_files_take(f, source, name, err) : mt_no_memory(err, "%s", names.items[i]);
        mt_free(name);
    }
    mt_dir_names_free(&names);
    mt_free(dir);
    return rc;
}

mt_rc mt_side_files_read(mt_side_files *out, const char *source, mt_err *err)
{
    *out = (mt_side_files){ 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < MT_COUNT(known); i++) rc = side_files_take(out, source, known[i], err);
    for (size_t i = 0; !rc && i < MT_COUNT(kinds); i++) rc = take_kind(out, source, kinds[i].folder, kinds[i].ending, err);
    if (rc) mt_side_files_free(out);
    return rc;
}

void mt_side_files_free(mt_side_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mt_free(f->items[i].name);
        mt_free(f->items[i].text);
    }
    mt_free(f->items);
    *f = (mt_side_files){ 0 };
}

/* The folder in `dir` that the file belongs to, if there is one in its name. */
static mt_rc make_folder(const char *dir, const char *name, mt_err *err)
{
    const char *slash = strrchr(name, '/');
    if (!slash) return MT_OK;
    char *path = mt_asprintf("%s/%.*s", dir, (int)(slash - name), name);
    mt_rc rc = path ? mt_dir_make(path, err) : mt_no_memory(err, "%s", dir);
    mt_free(path);
    return rc;
}

mt_rc mt_side_file_save(const mt_side_file *f, const char *dir, mt_err *err)
{
    MT_TRY(make_folder(dir, f->name, err));
    char *to = mt_path_join(dir, f->name);
    if (!to) return mt_no_memory(err, "%s", dir);
    mt_rc rc = mt_outfile_save(to, f->text, f->n, err);
    mt_free(to);
    return rc;
}
