/* gguf_tokenizer.c - tokenizer.json and tokenizer_config.json from a GGUF file's metadata.
 *
 * Two kinds are known.  "gpt2": bytes as characters, merges in order, and the name of the rule that cuts text into words.
 * "llama" (SentencePiece): pieces with scores; Hugging Face's form of it wants merges, so every way to make a piece of two
 * others becomes one, best score first. */
#include "ckpt/gguf_impl.h"
#include "ckpt/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4 }; /* token types; 5 is unused, 6 a byte */

typedef struct vocab {
    const mt_gguf *g;
    mt__bytes *tokens;
    size_t n;
    const mt__kv *types, *scores; /* NULL: all normal; no scores */
    bool spm;                     /* "llama", else "gpt2" */
} vocab;

/* -- how words are cut ----------------------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct word_rule {
    const char *name;    /* tokenizer.ggml.pre */
    const char *pattern; /* NULL: GPT-2's own */
    bool digits;         /* every digit alone, before anything else */
    bool nfc;            /* normalize first */
    bool whole_words;    /* a word that is a token is not merged piece by piece */
    bool add_bos;        /* unless the file says otherwise */
} word_rule;

static const char llama3_words[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char qwen2_words[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char tekken_words[] = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
                                   "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
                                   "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

static const word_rule word_rules[] = {
    { "gpt-2", NULL, false, false, false, false },           { "gpt2", NULL, false, false, false, false },
    { "default", NULL, false, false, false, false },         { "smollm", NULL, true, false, false, false },
    { "starcoder", NULL, true, false, false, false },        { "refact", NULL, true, false, false, false },
    { "llama-bpe", llama3_words, false, false, true, true }, { "llama3", llama3_words, false, false, true, true },
    { "qwen2", qwen2_words, false, true, false, false },     { "deepseek-r1-qwen", qwen2_words, false, true, false, false },
    { "tekken", tekken_words, false, false, true, true },
};

static const word_rule sentencepiece = { .name = "llama", .add_bos = true };

static bool is(mt__bytes b, const char *text) { return b.n == strlen(text) && memcmp(b.s, text, b.n) == 0; }

static mt_rc find_rule(const vocab *v, const word_rule **out, mt_err *err)
{
    mt__bytes name = { "default", 7 };
    *out = &sentencepiece;
    if (v->spm) return MT_OK;
    (void)mt__kv_text(mt__gguf_find(v->g, "tokenizer.ggml.pre"), &name);
    for (size_t i = 0; i < MT_COUNT(word_rules); i++)
        if (is(name, word_rules[i].name)) return *out = &word_rules[i], MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED,
                   "%s: its tokenizer cuts words by a rule called \"%.*s\" (tokenizer.ggml.pre), which is not known here; put "
                   "the original model's "
                   "tokenizer.json beside the weights",
                   v->g->base.path, (int)(name.n < 60 ? name.n : 60), name.s);
}

/* -- the vocabulary -------------------------------------------------------------------------------- */

static mt_rc open_vocab(vocab *v, const mt_gguf *g, mt_err *err)
{
    mt__bytes model;
    const mt__kv *tokens = mt__gguf_find(g, "tokenizer.ggml.tokens");
    *v = (vocab){ .g = g };
    if (!tokens || !mt__kv_text(mt__gguf_find(g, "tokenizer.ggml.model"), &model))
        return mt_fail(err, MT_ENOENT, "%s: it has no tokenizer", g->base.path);
    v->spm = is(model, "llama");
    if (!v->spm && !is(model, "gpt2"))
        return mt_fail(err, MT_EUNSUPPORTED, "%s: tokenizer \"%.*s\"; of GGUF files gpt2 and llama are read", g->base.path,
                       (int)(model.n < 40 ? model.n : 40), model.s);
    if (tokens->n > INT32_MAX)
        return mt_fail(err, MT_EFORMAT, "%s: a vocabulary of %llu tokens", g->base.path, (unsigned long long)tokens->n);
    v->n = (size_t)tokens->n;
    v->types = mt__gguf_find(g, "tokenizer.ggml.token_type");
    v->scores = mt__gguf_find(g, "tokenizer.ggml.scores");
    const mt__kv *lists[] = { v->types, v->scores };
    for (size_t i = 0; i < MT_COUNT(lists); i++)
        if (lists[i] && (!lists[i]->array || lists[i]->type == MT_KV_STR || lists[i]->n != v->n))
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\" is not a list of as many numbers as there are tokens", g->base.path,
                           lists[i]->key);
    return mt__kv_texts(g, tokens, &v->tokens, err);
}

static int type_of(const vocab *v, size_t i)
{
    double type = v->types ? mt__kv_item(v->types, i) : NORMAL;
    return type >= 0 && type < 100 ? (int)type : NORMAL;
}

static bool is_added(int type) { return type == UNKNOWN || type == CONTROL || type == USER; }

static void put_token(const vocab *v, mt_json_out *j, const char *key, size_t id)
{
    mt_json_put_bytes(j, key, v->tokens[id].s, v->tokens[id].n);
}

static void put_vocab(const vocab *v, mt_json_out *j)
{
    mt_json_map(j, "vocab", MT_JSON_LINES);
    for (size_t i = 0; i < v->n; i++) {
        mt_json_key(j, v->tokens[i].s, v->tokens[i].n);
        mt_json_put_size(j, NULL, i);
    }
    mt_json_end(j);
}

static void put_added(const vocab *v, mt_json_out *j)
{
    mt_json_list(j, "added_tokens", MT_JSON_LINES);
    for (size_t i = 0; i < v->n; i++) {
        int type = type_of(v, i);
        if (!is_added(type) || v->tokens[i].n == 0) continue;
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_size(j, "id", i);
        put_token(v, j, "content", i);
        static const char *const off[] = { "single_word", "lstrip", "rstrip", "normalized" };
        for (size_t k = 0; k < MT_COUNT(off); k++) mt_json_put_bool(j, off[k], false);
        mt_json_put_bool(j, "special", type != USER);
        mt_json_end(j);
    }
    mt_json_end(j);
}

/* -- merges ---------------------------------------------------------------------------------------- */

static mt_rc put_stated_merges(const vocab *v, mt_json_out *j, mt_err *err)
{
    const mt__kv *kv = mt__gguf_find(v->g, "tokenizer.ggml.merges");
    mt__bytes *merges;
    if (!kv) return mt_fail(err, MT_EFORMAT, "%s: its tokenizer has no merges", v->g->base.path);
    MT_TRY(mt__kv_texts(v->g, kv, &merges, err));
    mt_json_list(j, "merges", MT_JSON_LINES);
    for (size_t i = 0; i < kv->n; i++) mt_json_put_bytes(j, NULL, merges[i].s, merges[i].n);
    mt_json_end(j);
    mt_free(merges);
    return MT_OK;
}

typedef struct merge {
    double score;
    int32_t left, right;     /* tokens */
    int32_t n_left, n_right; /* their characters */
    size_t order;            /* in which they were found */
} merge;

typedef struct merges {
    const char *path;
    merge *items;
    size_t n, cap;
    mt_arena arena;
    const char **texts;      /* [V] NUL-terminated; NULL: not a piece, or a repeated one */
    size_t bytes, max_bytes; /* of the pieces that the merges name */
    mt__names ids;           /* text -> token */
} merges;

static int by_score(const void *pa, const void *pb)
{
    const merge *a = pa, *b = pb;
    if (a->score > b->score || a->score < b->score) return a->score > b->score ? -1 : 1;
    if (a->n_left != b->n_left) return a->n_left > b->n_left ? -1 : 1;
    if (a->n_right != b->n_right) return a->n_right > b->n_right ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

static int by_tokens(const void *pa, const void *pb)
{
    const merge *a = pa, *b = pb;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

static bool starts_character(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static int32_t count_characters(const char *s, size_t n)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++) count += starts_character(s[i]);
    return count;
}

/* Every way to make a piece of two others. */
static mt_rc split_piece(merges *m, const char *text, double score, mt_err *err)
{
    enum { MAX_PIECE = 256 };
    char left[MAX_PIECE];
    size_t n = strlen(text), first = m->n, a, b;
    if (n >= MAX_PIECE) return MT_OK; /* longer than SentencePiece makes them */
    for (size_t at = 1; at < n; at++) {
        if (!starts_character(text[at])) continue;
        memcpy(left, text, at);
        left[at] = '\0';
        if (!mt__names_find(&m->ids, left, &a) || !mt__names_find(&m->ids, text + at, &b)) continue;
        m->bytes += n;
        if (m->bytes > m->max_bytes)
            return mt_fail(err, MT_EFORMAT,
                           "%s: its tokens can be made of each other in more ways than those of any tokenizer; the file is "
                           "damaged, download it again",
                           m->path);
        MT_TRY(mt_grow(&m->items, &m->cap, m->n + 1, sizeof *m->items, err));
        m->items[m->n++] = (merge){ .score = score,
                                    .left = (int32_t)a,
                                    .right = (int32_t)b,
                                    .n_left = count_characters(text, at),
                                    .n_right = count_characters(text + at, n - at) };
    }
    if (m->n == first) return MT_OK;
    qsort(m->items + first, m->n - first, sizeof *m->items, by_tokens);
    for (size_t i = first; i < m->n; i++) m->items[i].order = i;
    return MT_OK;
}

/* A bound on the merges, in proportion to the vocabulary.  Those of published models take two to five times its bytes. */
enum { MIN_MERGE_BYTES = 1 << 20, MERGE_BYTES_PER_BYTE = 32 };

static mt_rc find_merges(const vocab *v, merges *m, mt_err *err)
{
    m->texts = mt_arena_calloc(&m->arena, v->n, sizeof *m->texts);
    if (!m->texts || !mt__names_init(&m->ids, v->n)) return mt_no_memory(err, "the vocabulary of %s", v->g->base.path);
    m->max_bytes = MIN_MERGE_BYTES;
    for (size_t i = 0; i < v->n; i++) {
        m->max_bytes += MERGE_BYTES_PER_BYTE * (v->tokens[i].n + 8);
        m->texts[i] = mt_arena_strndup(&m->arena, v->tokens[i].s, v->tokens[i].n);
        if (!m->texts[i]) return mt_no_memory(err, "the vocabulary of %s", v->g->base.path);
        bool text = strlen(m->texts[i]) == v->tokens[i].n; /* a token with a NUL inside would be known by its first part */
        if (!text || mt__names_add(&m->ids, m->texts[i], i) != i) m->texts[i] = NULL;
    }
    for (size_t i = 0; i < v->n; i++) {
        if (!m->texts[i]) continue;
        int type = type_of(v, i);
        double score = mt__kv_item(v->scores, i);
        if (type == NORMAL || type == USER)
            MT_TRY(split_piece(m, m->texts[i], isnan(score) ? 0 : score, err)); /* NaN cannot be sorted */
    }
    if (m->n) qsort(m->items, m->n, sizeof *m->items, by_score);
    return MT_OK;
}

static mt_rc put_found_merges(const vocab *v, mt_json_out *j, mt_err *err)
{
    merges m = { .path = v->g->base.path };
    if (!v->scores) return mt_fail(err, MT_EFORMAT, "%s: its tokenizer has no scores", v->g->base.path);
    mt_rc rc = find_merges(v, &m, err);
    mt_json_list(j, "merges", MT_JSON_LINES);
    for (size_t i = 0; !rc && i < m.n; i++) {
        mt_json_list(j, NULL, MT_JSON_FLAT);
        put_token(v, j, NULL, (size_t)m.items[i].left);
        put_token(v, j, NULL, (size_t)m.items[i].right);
        mt_json_end(j);
    }
    mt_json_end(j);
    mt__names_deinit(&m.ids);
    mt_free(m.items);
    mt_arena_free(&m.arena);
    return rc;
}

/* -- tokens with a role ---------------------------------------------------------------------------- */

static bool flag(const mt_gguf *g, const char *key, bool fallback)
{
    int64_t i;
    return mt__kv_int(mt__gguf_find(g, key), &i) ? i != 0 : fallback;
}

/* The token a key names; false: none, or one that does not exist. */
static bool role(const vocab *v, const char *key, size_t *id)
{
    int64_t i;
    if (!mt__kv_int(mt__gguf_find(v->g, key), &i) || i < 0 || (uint64_t)i >= v->n) return false;
    *id = (size_t)i;
    return true;
}

static const char bos_key[] = "tokenizer.ggml.bos_token_id", eos_key[] = "tokenizer.ggml.eos_token_id",
                  unk_key[] = "tokenizer.ggml.unknown_token_id", pad_key[] = "tokenizer.ggml.padding_token_id";

static bool adds_bos(const vocab *v, const word_rule *rule, size_t *id)
{
    return flag(v->g, "tokenizer.ggml.add_bos_token", rule->add_bos) && role(v, bos_key, id);
}
static bool adds_eos(const vocab *v, size_t *id)
{
    return flag(v->g, "tokenizer.ggml.add_eos_token", false) && role(v, eos_key, id);
}

/* {"NAME": {"id": ID, "type_id": SEQUENCE}}; id: a token's, or "A" and "B" for the sequences themselves. */
static void put_template_item(mt_json_out *j, const char *name, mt__bytes id, int sequence)
{
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_map(j, name, MT_JSON_FLAT);
    mt_json_put_bytes(j, "id", id.s, id.n);
    mt_json_put_int(j, "type_id", sequence);
    mt_json_end(j);
    mt_json_end(j);
}

static void put_template(const vocab *v, mt_json_out *j, const char *key, const size_t *bos, const size_t *eos, int n_sequences)
{
    mt_json_list(j, key, MT_JSON_FLAT);
    for (int k = 0; k < n_sequences; k++) {
        if (bos) put_template_item(j, "SpecialToken", v->tokens[*bos], k);
        put_template_item(j, "Sequence", (mt__bytes){ k ? "B" : "A", 1 }, k);
        if (eos) put_template_item(j, "SpecialToken", v->tokens[*eos], k);
    }
    mt_json_end(j);
}

static void put_template_ids(const vocab *v, mt_json_out *j, size_t id)
{
    mt_json_key(j, v->tokens[id].s, v->tokens[id].n);
    mt_json_map(j, NULL, MT_JSON_FLAT);
    put_token(v, j, "id", id);
    mt_json_list(j, "ids", MT_JSON_FLAT);
    mt_json_put_size(j, NULL, id);
    mt_json_end(j);
    mt_json_list(j, "tokens", MT_JSON_FLAT);
    put_token(v, j, NULL, id);
    mt_json_end(j);
    mt_json_end(j);
}

/* key: NULL in a list. */
static void put_byte_level(mt_json_out *j, const char *key, bool prefix_space, bool trim_offsets, bool use_regex)
{
    mt_json_map(j, key, MT_JSON_FLAT);
    mt_json_put_str(j, "type", "ByteLevel");
    mt_json_put_bool(j, "add_prefix_space", prefix_space);
    mt_json_put_bool(j, "trim_offsets", trim_offsets);
    mt_json_put_bool(j, "use_regex", use_regex);
    mt_json_end(j);
}

static void put_post_processor(const vocab *v, const word_rule *rule, mt_json_out *j)
{
    size_t bos_id, eos_id;
    const size_t *bos = adds_bos(v, rule, &bos_id) ? &bos_id : NULL, *eos = adds_eos(v, &eos_id) ? &eos_id : NULL;
    if (!bos && !eos) {
        if (v->spm)
            mt_json_put_null(j, "post_processor");
        else
            put_byte_level(j, "post_processor", true, false, true);
        return;
    }
    mt_json_map(j, "post_processor", MT_JSON_FLAT);
    mt_json_put_str(j, "type", "TemplateProcessing");
    put_template(v, j, "single", bos, eos, 1);
    put_template(v, j, "pair", bos, eos, 2);
    mt_json_map(j, "special_tokens", MT_JSON_FLAT);
    if (bos) put_template_ids(v, j, *bos);
    if (eos && !(bos && *bos == *eos)) put_template_ids(v, j, *eos);
    mt_json_end(j);
    mt_json_end(j);
}

/* -- tokenizer.json -------------------------------------------------------------------------------- */

static void put_gpt2_rules(const vocab *v, const word_rule *rule, mt_json_out *j)
{
    mt_json_put_raw(j, "normalizer", rule->nfc ? "{\"type\": \"NFC\"}" : "null");
    mt_json_map(j, "pre_tokenizer", MT_JSON_FLAT);
    mt_json_put_str(j, "type", "Sequence");
    mt_json_list(j, "pretokenizers", MT_JSON_FLAT);
    if (rule->digits) mt_json_put_raw(j, NULL, "{\"type\": \"Digits\", \"individual_digits\": true}");
    if (rule->pattern) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "type", "Split");
        mt_json_map(j, "pattern", MT_JSON_FLAT);
        mt_json_put_str(j, "Regex", rule->pattern);
        mt_json_end(j);
        mt_json_put_str(j, "behavior", "Isolated");
        mt_json_put_bool(j, "invert", false);
        mt_json_end(j);
    }
    put_byte_level(j, NULL, flag(v->g, "tokenizer.ggml.add_space_prefix", false), true, !rule->pattern);
    mt_json_end(j);
    mt_json_end(j);
    put_byte_level(j, "decoder", true, true, true);
}

#define WORD_START "\xe2\x96\x81" /* U+2581, which stands for a space */

static void put_spm_rules(const vocab *v, mt_json_out *j)
{
    bool space = flag(v->g, "tokenizer.ggml.add_space_prefix", true);
    mt_json_map(j, "normalizer", MT_JSON_FLAT);
    mt_json_put_str(j, "type", "Sequence");
    mt_json_list(j, "normalizers", MT_JSON_FLAT);
    if (space) mt_json_put_raw(j, NULL, "{\"type\": \"Prepend\", \"prepend\": \"" WORD_START "\"}");
    mt_json_put_raw(j, NULL, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" WORD_START "\"}");
    mt_json_end(j);
    mt_json_end(j);
    mt_json_put_null(j, "pre_tokenizer");
    mt_json_map(j, "decoder", MT_JSON_FLAT);
    mt_json_put_str(j, "type", "Sequence");
    mt_json_list(j, "decoders", MT_JSON_FLAT);
    mt_json_put_raw(j, NULL, "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" WORD_START "\"}, \"content\": \" \"}");
    mt_json_put_raw(j, NULL, "{\"type\": \"ByteFallback\"}");
    mt_json_put_raw(j, NULL, "{\"type\": \"Fuse\"}");
    if (space) mt_json_put_raw(j, NULL, "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    mt_json_end(j);
    mt_json_end(j);
}

static mt_rc put_model(const vocab *v, const word_rule *rule, mt_json_out *j, mt_err *err)
{
    size_t unk;
    mt_json_map(j, "model", MT_JSON_LINES);
    mt_json_put_str(j, "type", "BPE");
    mt_json_put_null(j, "dropout");
    if (v->spm && role(v, unk_key, &unk))
        put_token(v, j, "unk_token", unk);
    else
        mt_json_put_null(j, "unk_token");
    mt_json_put_null(j, "continuing_subword_prefix");
    mt_json_put_null(j, "end_of_word_suffix");
    mt_json_put_bool(j, "fuse_unk", v->spm);
    mt_json_put_bool(j, "byte_fallback", v->spm);
    mt_json_put_bool(j, "ignore_merges", rule->whole_words);
    put_vocab(v, j);
    MT_TRY(v->spm ? put_found_merges(v, j, err) : put_stated_merges(v, j, err));
    mt_json_end(j);
    return MT_OK;
}

static mt_rc put_tokenizer(const vocab *v, mt_str *out, mt_err *err)
{
    mt_json_out j = { .to = out };
    const word_rule *rule;
    MT_TRY(find_rule(v, &rule, err));
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_str(&j, "version", "1.0");
    mt_json_put_null(&j, "truncation");
    mt_json_put_null(&j, "padding");
    put_added(v, &j);
    if (v->spm)
        put_spm_rules(v, &j);
    else
        put_gpt2_rules(v, rule, &j);
    put_post_processor(v, rule, &j);
    MT_TRY(put_model(v, rule, &j, err));
    mt_json_end(&j);
    mt_str_putc(out, '\n');
    return mt_json_done(&j, v->g->base.path, err);
}

mt_rc mt_gguf_tokenizer(const mt_gguf *g, mt_str *out, mt_err *err)
{
    vocab v;
    mt_rc rc = open_vocab(&v, g, err);
    if (!rc) rc = put_tokenizer(&v, out, err);
    mt_free(v.tokens);
    return rc;
}

/* -- tokenizer_config.json ------------------------------------------------------------------------- */

static void put_role(const vocab *v, mt_json_out *j, const char *name, const char *key)
{
    size_t id;
    if (role(v, key, &id))
        put_token(v, j, name, id);
    else
        mt_json_put_null(j, name);
}

static mt_rc put_tokenizer_config(const vocab *v, mt_str *out, mt_err *err)
{
    mt_json_out j = { .to = out };
    const word_rule *rule;
    size_t id;
    int64_t positions;
    mt__bytes chat;
    MT_TRY(find_rule(v, &rule, err));
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_str(&j, "tokenizer_class", "PreTrainedTokenizerFast");
    put_role(v, &j, "bos_token", bos_key);
    put_role(v, &j, "eos_token", eos_key);
    put_role(v, &j, "pad_token", pad_key);
    put_role(v, &j, "unk_token", unk_key);
    mt_json_put_bool(&j, "add_bos_token", adds_bos(v, rule, &id));
    mt_json_put_bool(&j, "add_eos_token", adds_eos(v, &id));
    if (mt__kv_int(mt__gguf_find_arch(v->g, "context_length"), &positions) && positions > 0)
        mt_json_put_int(&j, "model_max_length", positions);
    if (mt__kv_text(mt__gguf_find(v->g, "tokenizer.chat_template"), &chat))
        mt_json_put_bytes(&j, "chat_template", chat.s, chat.n);
    mt_json_put_bool(&j, "clean_up_tokenization_spaces", false);
    mt_json_end(&j);
    mt_str_putc(out, '\n');
    return mt_json_done(&j, v->g->base.path, err);
}

mt_rc mt_gguf_tokenizer_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    vocab v;
    mt_rc rc = open_vocab(&v, g, err);
    if (!rc) rc = put_tokenizer_config(&v, out, err);
    mt_free(v.tokens);
    return rc;
}
