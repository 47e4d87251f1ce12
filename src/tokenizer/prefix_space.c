/* prefix_space.c - "add_prefix_space" of tokenizer_config.json beside that of tokenizer.json.
 *
 * As in transformers 5: most tokenizers are what tokenizer.json says.  A few classes take only the vocabulary from it and build the
 * byte-level steps themselves, with the space in front of a text that tokenizer_config.json asks for (by default none).  The class is
 * the one that tokenizer_config.json names, unless transformers knows better for the model_type. */
#include "tokenizer/json_read.h"
#include "tokenizer/tokenizer_impl.h"

#include <string.h>

static const char *const building_classes[] = { "GPT2Tokenizer",    "GPTNeoXTokenizer", "Qwen2Tokenizer",
                                                "Qwen3_5Tokenizer", "CodeGenTokenizer", "CohereTokenizer" };

/* Whatever the config names, the class of these types builds. */
static const char *const building_types[] = { "qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text" };

/* The class of these types builds if the config names none. */
static const char *const usually_building_types[] = { "cohere",     "cohere2",      "gpt2",      "gpt_neo",   "gpt_neox",
                                                      "gptj",       "jais2",        "mpt",       "olmo",      "olmoe",
                                                      "opt",        "phi",          "qwen3",     "qwen2_moe", "qwen3_moe",
                                                      "qwen3_next", "qwen3_5_text", "starcoder2" };

/* Whatever the config names, these types are as tokenizer.json says. */
static const char *const plain_types[] = {
    "ernie4_5",   "ernie4_5_moe",     "glm",         "glm4",      "glm4_moe",   "glm4_moe_lite", "gpt_bigcode", "granite",
    "granitemoe", "granitemoeshared", "hyperclovax", "internlm2", "minimax_m2", "ministral",     "ministral3",  "mistral",
    "mixtral",    "nemotron",         "olmo2",       "olmo3",     "phi3",       "phimoe",        "stablelm",
};

static bool is_one_of(const mt_value *name, const char *const *list, size_t n)
{
    for (size_t i = 0; name && i < n; i++)
        if (mt_value_is(name, list[i])) return true;
    return false;
}

/* GPT2Tokenizer and GPT2TokenizerFast are one. */
static bool is_building_class(const mt_value *class)
{
    static const char fast[] = "Fast";
    const size_t k = sizeof fast - 1;
    if (class->type != MT_VALUE_STR) return false;
    mt_value name = *class;
    if (name.str.n > k && memcmp(name.str.s + name.str.n - k, fast, k) == 0) name.str.n -= k;
    return is_one_of(&name, building_classes, MT_COUNT(building_classes));
}

static bool builds(const mt_value *class, const mt_value *model_type)
{
    if (is_one_of(model_type, building_types, MT_COUNT(building_types))) return true;
    if (is_one_of(model_type, plain_types, MT_COUNT(plain_types))) return false;
    if (class && class->type != MT_VALUE_NULL) return is_building_class(class);
    return is_one_of(model_type, usually_building_types, MT_COUNT(usually_building_types));
}

mt_rc mt__set_prefix_space(mt_tokenizer *tok, const mt_value *config, const mt_value *model_type, const char *what, mt_err *err)
{
    bool space;
    if (!builds(mt_value_get(config, "tokenizer_class"), model_type)) return MT_OK;
    MT_TRY(mt__json_bool(config, "add_prefix_space", false, &space, what, err));
    for (size_t i = 0; i < tok->pretokenizer.n; i++)
        if (tok->pretokenizer.steps[i].kind == MT_PRETOK_BYTE_LEVEL) tok->pretokenizer.steps[i].prefix_space = space;
    return MT_OK;
}
