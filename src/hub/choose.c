/* choose.c - which files of a model repository are needed, and whether a directory has them.
 *
 * Weights come in one form: safetensors where there are any, else pickles, else GGUF.  Other files of a repository (other
 * frameworks' weights, onnx/, original/, adapters, pictures) are not downloaded. */
#include "base/file.h"
#include "base/json.h"
#include "hub/internal.h"

#include <dirent.h>
#include <fnmatch.h>
#include <string.h>

static const struct {
    int need;
    const char *pattern;
} small_files[] = {
    { MT_HUB_CONFIG, "config.json" },
    { MT_HUB_CONFIG, "generation_config.json" },
    { MT_HUB_TOKENIZER, "tokenizer.json" },
    { MT_HUB_TOKENIZER, "tokenizer.model" },
    { MT_HUB_TOKENIZER, "tokenizer_config.json" },
    { MT_HUB_TOKENIZER, "special_tokens_map.json" },
    { MT_HUB_TOKENIZER, "added_tokens.json" },
    { MT_HUB_TOKENIZER, "vocab.json" },
    { MT_HUB_TOKENIZER, "vocab.txt" },
    { MT_HUB_TOKENIZER, "merges.txt" },
    { MT_HUB_TOKENIZER, "spiece.model" },
    { MT_HUB_TOKENIZER, "*.tiktoken" },
    { MT_HUB_TOKENIZER, "chat_template.jinja" },
    { MT_HUB_TOKENIZER, "chat_template.json" },
    { MT_HUB_TOKENIZER, "additional_chat_templates/*.jinja" },
    { MT_HUB_TOKENIZER, "tekken.json" },
    { MT_HUB_TOKENIZER, "processor_config.json" },
    { MT_HUB_TOKENIZER, "preprocessor_config.json" },
    { MT_HUB_TOKENIZER, "video_preprocessor_config.json" },
};

/* In order of preference; all files of the first kind that is there are taken, and its index. */
static const struct {
    const char *pattern, *index;
    bool several; /* more than one file makes one model */
} weight_kinds[] = {
    { "model.safetensors", NULL, false },
    { "model-*.safetensors", "model.safetensors.index.json", true },
    { "model*.safetensors", "model.safetensors.index.json", true },
    { "pytorch_model.bin", NULL, false },
    { "pytorch_model*.bin", "pytorch_model.bin.index.json", true },
    { "*.gguf", NULL, false },
};

static size_t want(mt__files *f, const char *pattern)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (fnmatch(pattern, f->items[i].path, FNM_PATHNAME) == 0) f->items[i].wanted = true, n++;
    return n;
}

static mt_rc want_weights(mt__files *f, const mt__repo *repo, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(weight_kinds); i++) {
        size_t n = want(f, weight_kinds[i].pattern);
        if (n > 1 && !weight_kinds[i].several)
            return mt_fail(err, MT_EINVAL,
                           "%s has %zu files %s and one of them is a model: download the one you want from its page and "
                           "give its path instead of the name",
                           repo->name, n, weight_kinds[i].pattern);
        if (n && weight_kinds[i].index) want(f, weight_kinds[i].index);
        if (n) return MT_OK;
    }
    return mt_fail(err, MT_ENOENT, "%s has no weights that are read here (model*.safetensors, pytorch_model*.bin, *.gguf)",
                   repo->name);
}

mt_rc mt__choose_model(mt__files *f, const mt__repo *repo, int needs, mt_err *err)
{
    for (size_t i = 0; i < MT_COUNT(small_files); i++)
        if (needs & small_files[i].need) want(f, small_files[i].pattern);
    if (needs & MT_HUB_WEIGHTS) MT_TRY(want_weights(f, repo, err));
    if (mt__files_find(f, "adapter_config.json") && !mt__files_find(f, "config.json"))
        return mt_fail(err, MT_EUNSUPPORTED, "%s is an adapter (LoRA), not a model: give the model it belongs to", repo->name);
    return MT_OK;
}

/* -- is it all here? ------------------------------------------------------------------------------- */

static bool choose_has(const char *dir, const char *name)
{
    char *path = mt_path_join(dir, name);
    bool yes = path && mt_file_exists(path);
    mt_free(path);
    return yes;
}

static bool has_any(const char *dir, const char *pattern)
{
    bool yes = false;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !yes && (e = readdir(d));)
        yes = fnmatch(pattern, e->d_name, 0) == 0 && choose_has(dir, e->d_name);
    if (d) closedir(d);
    return yes;
}

/* Every file the index names. */
static mt_rc index_complete(const char *dir, const char *index, bool *complete, mt_err *err)
{
    const mt_value *doc = NULL;
    *complete = false;
    if (!choose_has(dir, index)) return MT_OK;
    char *path = mt_path_join(dir, index);
    mt_rc rc = path ? mt_json_read(&doc, path, err) : mt_no_memory(err, "a path");
    mt_free(path);
    if (rc) return rc;
    const mt_value *map = mt_value_get(doc, "weight_map");
    *complete = mt_value_pairs(map) > 0;
    for (size_t i = 0; *complete && i < mt_value_pairs(map); i++) {
        const char *file = mt_json_string(&map->map.pairs[i].value);
        *complete = file && choose_has(dir, file);
    }
    mt_json_free(doc);
    return MT_OK;
}

static mt_rc weights_complete(const char *dir, bool *complete, mt_err *err)
{
    *complete = choose_has(dir, "model.safetensors") || choose_has(dir, "pytorch_model.bin") || has_any(dir, "*.gguf");
    if (!*complete) MT_TRY(index_complete(dir, "model.safetensors.index.json", complete, err));
    if (!*complete) MT_TRY(index_complete(dir, "pytorch_model.bin.index.json", complete, err));
    return MT_OK;
}

mt_rc mt__model_complete(const char *dir, int needs, bool *complete, mt_err *err)
{
    static const char *const tokenizers[] = { "tokenizer.json", "tokenizer.model", "*.tiktoken", "spiece.model", "*.gguf" };
    *complete = true;
    if ((needs & MT_HUB_CONFIG) && !choose_has(dir, "config.json") && !has_any(dir, "*.gguf")) *complete = false;
    if (needs & MT_HUB_TOKENIZER) {
        bool found = false;
        for (size_t i = 0; i < MT_COUNT(tokenizers); i++) found = found || has_any(dir, tokenizers[i]);
        *complete = *complete && found;
    }
    if (!*complete || !(needs & MT_HUB_WEIGHTS)) return MT_OK;
    return weights_complete(dir, complete, err);
}
