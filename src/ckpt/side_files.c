#include "ckpt/side_files.h"

#include "base/log.h"
#include "ckpt/model_files.h"
#include "ckpt/outdir.h"

#include <string.h>

/* What is taken when it is there, and all *.py: some families come with code that transformers needs to open them.  Here nothing runs it. */
/* clang-format off */
static const char *const known[] = {
    "tokenizer.json",          "tokenizer.model",        "vocab.json",          "merges.txt",
    "special_tokens_map.json", "added_tokens.json",      "chat_template.jinja", "chat_template.json",
    "qwen.tiktoken",           "tokenizer.tiktoken",     "spiece.model",        "preprocessor_config.json",
    "processor_config.json",   "tokenizer_config.json",  "generation_config.json", "config.json",
    "additional_chat_templates/tool_use.jinja",
};
/* clang-format on */

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

static bool is_code(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > 3 && strcmp(name + n - 3, ".py") == 0;
}

static mt_rc take_code(mt_side_files *f, const char *source, mt_err *err)
{
    mt_dir_names names;
    mt_rc rc = mt_dir_list(&names, source, err);
    for (size_t i = 0; !rc && i < names.n; i++)
        if (is_code(names.items[i])) rc = side_files_take(f, source, names.items[i], err);
    mt_dir_names_free(&names);
    return rc;
}

mt_rc mt_side_files_read(mt_side_files *out, const char *source, mt_err *err)
{
    *out = (mt_side_files){ 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < MT_COUNT(known); i++) rc = side_files_take(out, source, known[i], err);
    if (!rc && mt_dir_exists(source)) rc = take_code(out, source, err); /* a .gguf file has none beside it */
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
