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
    bool nfc;            /* normalise first */
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

static void put_vocab(const vocab *v, mt_str *out)
{
    mt_str_puts(out, "\"vocab\": {");
    for (size_t i = 0; i < v->n; i++) {
        mt_str_puts(out, i ? ",\n" : "\n");
        mt_str_json(out, v->tokens[i].s, v->tokens[i].n);
        mt_str_printf(out, ": %zu", i);
    }
    mt_str_puts(out, "}");
}

static void put_added(const vocab *v, mt_str *out)
{
    const char *separator = "\n";
    mt_str_puts(out, "\"added_tokens\": [");
    for (size_t i = 0; i < v->n; i++) {
        int type = type_of(v, i);
        if (!is_added(type) || v->tokens[i].n == 0) continue;
        mt_str_printf(out, "%s{\"id\": %zu, \"content\": ", separator, i);
        mt_str_json(out, v->tokens[i].s, v->tokens[i].n);
        mt_str_printf(out,
                      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %s}",
                      type == USER ? "false" : "true");
        separator = ",\n";
    }
    mt_str_puts(out, "],\n");
}

/* -- merges ---------------------------------------------------------------------------------------- */

static mt_rc put_stated_merges(const vocab *v, mt_str *out, mt_err *err)
{
    const mt__kv *kv = mt__gguf_find(v->g, "tokenizer.ggml.merges");
    mt__bytes *merges;
    if (!kv) return mt_fail(err, MT_EFORMAT, "%s: its tokenizer has no merges", v->g->base.path);
    MT_TRY(mt__kv_texts(v->g, kv, &merges, err));
    mt_str_puts(out, "\"merges\": [");
    for (size_t i = 0; i < kv->n; i++) {
        mt_str_puts(out, i ? ",\n" : "\n");
        mt_str_json(out, merges[i].s, merges[i].n);
    }
    mt_str_puts(out, "]");
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
            MT_TRY(split_piece(m, m->texts[i], isnan(score) ? 0 : score, err)); /* what is sorted has an order */
    }
    if (m->n) qsort(m->items, m->n, sizeof *m->items, by_score);
    return MT_OK;
}

static mt_rc put_found_merges(const vocab *v, mt_str *out, mt_err *err)
{
    merges m = { .path = v->g->base.path };
    if (!v->scores) return mt_fail(err, MT_EFORMAT, "%s: its tokenizer has no scores", v->g->base.path);
    mt_rc rc = find_merges(v, &m, err);
    mt_str_puts(out, "\"merges\": [");
    for (size_t i = 0; !rc && i < m.n; i++) {
        mt__bytes a = v->tokens[m.items[i].left], b = v->tokens[m.items[i].right];
        mt_str_puts(out, i ? ",\n[" : "\n[");
        mt_str_json(out, a.s, a.n);
        mt_str_puts(out, ", ");
        mt_str_json(out, b.s, b.n);
        mt_str_putc(out, ']');
    }
    mt_str_puts(out, "]");
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

static void put_template_token(const vocab *v, mt_str *out, size_t id, int sequence)
{
    mt_str_puts(out, "{\"SpecialToken\": {\"id\": ");
    mt_str_json(out, v->tokens[id].s, v->tokens[id].n);
    mt_str_printf(out, ", \"type_id\": %d}}", sequence);
}

static void put_template(const vocab *v, mt_str *out, const size_t *bos, const size_t *eos, int n_sequences)
{
    mt_str_puts(out, "[");
    for (int k = 0; k < n_sequences; k++) {
        if (k) mt_str_puts(out, ", ");
        if (bos) put_template_token(v, out, *bos, k), mt_str_puts(out, ", ");
        mt_str_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}", 'A' + k, k);
        if (eos) mt_str_puts(out, ", "), put_template_token(v, out, *eos, k);
    }
    mt_str_puts(out, "]");
}

static void put_template_ids(const vocab *v, mt_str *out, size_t id)
{
    mt_str_json(out, v->tokens[id].s, v->tokens[id].n);
    mt_str_puts(out, ": {\"id\": ");
    mt_str_json(out, v->tokens[id].s, v->tokens[id].n);
    mt_str_printf(out, ", \"ids\": [%zu], \"tokens\": [", id);
    mt_str_json(out, v->tokens[id].s, v->tokens[id].n);
    mt_str_puts(out, "]}");
}

static void put_post_processor(const vocab *v, const word_rule *rule, mt_str *out)
{
    size_t bos, eos;
    bool with_bos = adds_bos(v, rule, &bos), with_eos = adds_eos(v, &eos);
    mt_str_puts(out, "\"post_processor\": ");
    if (!with_bos && !with_eos) {
        mt_str_puts(
            out, v->spm
                     ? "null,\n"
                     : "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, \"use_regex\": true},\n");
        return;
    }
    mt_str_puts(out, "{\"type\": \"TemplateProcessing\", \"single\": ");
    put_template(v, out, with_bos ? &bos : NULL, with_eos ? &eos : NULL, 1);
    mt_str_puts(out, ", \"pair\": ");
    put_template(v, out, with_bos ? &bos : NULL, with_eos ? &eos : NULL, 2);
    mt_str_puts(out, ", \"special_tokens\": {");
    if (with_bos) put_template_ids(v, out, bos);
    if (with_bos && with_eos && bos != eos) mt_str_puts(out, ", ");
    if (with_eos && !(with_bos && bos == eos)) put_template_ids(v, out, eos);
    mt_str_puts(out, "}},\n");
}

/* -- tokenizer.json -------------------------------------------------------------------------------- */

static void put_gpt2_rules(const vocab *v, const word_rule *rule, mt_str *out)
{
    mt_str_puts(out, rule->nfc ? "\"normalizer\": {\"type\": \"NFC\"},\n" : "\"normalizer\": null,\n");
    mt_str_puts(out, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    if (rule->digits) mt_str_puts(out, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    if (rule->pattern) {
        mt_str_puts(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        mt_str_json(out, rule->pattern, strlen(rule->pattern));
        mt_str_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    bool space = flag(v->g, "tokenizer.ggml.add_space_prefix", false);
    mt_str_printf(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, \"use_regex\": %s}]},\n",
                  space ? "true" : "false", rule->pattern ? "false" : "true");
    mt_str_puts(
        out,
        "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n");
}

static void put_spm_rules(const vocab *v, mt_str *out)
{
    bool space = flag(v->g, "tokenizer.ggml.add_space_prefix", true);
    mt_str_puts(out, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    if (space) mt_str_puts(out, "{\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"}, ");
    mt_str_puts(out, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
                     "\"\xe2\x96\x81\"}]},\n\"pre_tokenizer\": null,\n");
    mt_str_puts(out, "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
                     "\"\xe2\x96\x81\"}, \"content\": \" \"}, "
                     "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    if (space) mt_str_puts(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    mt_str_puts(out, "]},\n");
}

static void put_model_head(const vocab *v, const word_rule *rule, mt_str *out)
{
    size_t unk;
    mt_str_puts(out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (v->spm && role(v, unk_key, &unk))
        mt_str_json(out, v->tokens[unk].s, v->tokens[unk].n);
    else
        mt_str_puts(out, "null");
    mt_str_printf(out,
                  ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": %s, \"byte_fallback\": %s, "
                  "\"ignore_merges\": %s,\n",
                  v->spm ? "true" : "false", v->spm ? "true" : "false", rule->whole_words ? "true" : "false");
}

static mt_rc put_tokenizer(const vocab *v, mt_str *out, mt_err *err)
{
    const word_rule *rule;
    MT_TRY(find_rule(v, &rule, err));
    mt_str_puts(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
    put_added(v, out);
    if (v->spm)
        put_spm_rules(v, out);
    else
        put_gpt2_rules(v, rule, out);
    put_post_processor(v, rule, out);
    put_model_head(v, rule, out);
    put_vocab(v, out);
    mt_str_puts(out, ",\n");
    MT_TRY(v->spm ? put_found_merges(v, out, err) : put_stated_merges(v, out, err));
    mt_str_puts(out, "}}\n");
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "writing the tokenizer of %s", v->g->base.path);
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

static void put_role(const vocab *v, mt_str *out, const char *name, const char *key)
{
    size_t id;
    mt_str_printf(out, "  \"%s\": ", name);
    if (role(v, key, &id))
        mt_str_json(out, v->tokens[id].s, v->tokens[id].n);
    else
        mt_str_puts(out, "null");
    mt_str_puts(out, ",\n");
}

static mt_rc put_tokenizer_config(const vocab *v, mt_str *out, mt_err *err)
{
    const word_rule *rule;
    size_t id;
    int64_t positions;
    mt__bytes chat;
    MT_TRY(find_rule(v, &rule, err));
    mt_str_puts(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    put_role(v, out, "bos_token", bos_key);
    put_role(v, out, "eos_token", eos_key);
    put_role(v, out, "pad_token", pad_key);
    put_role(v, out, "unk_token", unk_key);
    mt_str_printf(out, "  \"add_bos_token\": %s,\n", adds_bos(v, rule, &id) ? "true" : "false");
    mt_str_printf(out, "  \"add_eos_token\": %s,\n", adds_eos(v, &id) ? "true" : "false");
    if (mt__kv_int(mt__gguf_find_arch(v->g, "context_length"), &positions) && positions > 0)
        mt_str_printf(out, "  \"model_max_length\": %lld,\n", (long long)positions);
    if (mt__kv_text(mt__gguf_find(v->g, "tokenizer.chat_template"), &chat)) {
        mt_str_puts(out, "  \"chat_template\": ");
        mt_str_json(out, chat.s, chat.n);
        mt_str_puts(out, ",\n");
    }
    mt_str_puts(out, "  \"clean_up_tokenization_spaces\": false\n}\n");
    return mt_str_ok(out) ? MT_OK : mt_no_memory(err, "writing the tokenizer of %s", v->g->base.path);
}

mt_rc mt_gguf_tokenizer_config(const mt_gguf *g, mt_str *out, mt_err *err)
{
    vocab v;
    mt_rc rc = open_vocab(&v, g, err);
    if (!rc) rc = put_tokenizer_config(&v, out, err);
    mt_free(v.tokens);
    return rc;
}
