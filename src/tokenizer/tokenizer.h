/* tokenizer.h - text to token ids and back, as Hugging Face's tokenizers do it, id for id.
 *
 *     mt_tokenizer *tok;
 *     mt_tok_scratch *scratch;                            // one per thread
 *     mt_tokens out = { 0 };
 *     MT_TRY(mt_tokenizer_open(&tok, "./qwen2.5-7b", err));
 *     MT_TRY(mt_tok_scratch_create(&scratch, tok, err));
 *     MT_TRY(mt_tokenizer_encode(tok, scratch, text, strlen(text), MT_ENCODE_SPECIAL, &out, err));
 *     ... out.ids[0 .. out.n) ...
 *     mt_tokens_free(&out);  mt_tok_scratch_free(scratch);  mt_tokenizer_close(tok);
 *
 * A tokenizer is immutable once opened and shared by any number of threads; what a call needs to write lives in the
 * caller's scratch, which also remembers recent words, so keep it.  Everything a getter returns is borrowed
 * from the tokenizer.  Files are not trusted: a malformed one is an error that names file and key. */
#ifndef MT_TOKENIZER_TOKENIZER_H
#define MT_TOKENIZER_TOKENIZER_H

#include "base/str.h"

#include <stdatomic.h>

typedef struct mt_tokenizer mt_tokenizer;
typedef struct mt_tok_scratch mt_tok_scratch;

/* Open what a model directory has: tokenizer.json, else tokenizer.model (SentencePiece or tiktoken), with
 * tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja and
 * additional_chat_templates/tool_use.jinja where they are. */
mt_rc mt_tokenizer_open(mt_tokenizer **out, const char *dir, mt_err *err);
/* Open one tokenizer.json (or tokenizer.model) alone. */
mt_rc mt_tokenizer_open_file(mt_tokenizer **out, const char *path, mt_err *err);
/* The same from memory; `what` names it in messages. */
mt_rc mt_tokenizer_open_json(mt_tokenizer **out, const char *text, size_t n, const char *what, mt_err *err);
/* The texts of a tokenizer.json and of its tokenizer_config.json. */
mt_rc mt_tokenizer_open_texts(mt_tokenizer **out, const char *text, size_t n, const char *config, size_t n_config,
                              const char *what, mt_err *err);
mt_rc mt_tokenizer_open_model(mt_tokenizer **out, const char *bytes, size_t n, const char *what, mt_err *err);
void mt_tokenizer_close(mt_tokenizer *tok);

/* Make special tokens of those texts (at most 6) that are ordinary tokens of the vocabulary; others stay as they are.  Only before the
 * tokenizer is shared. */
mt_rc mt_tokenizer_adopt(mt_tokenizer *tok, const char *const *texts, size_t n, mt_err *err);
/* The ids of those. */
const int32_t *mt_tokenizer_adopted(const mt_tokenizer *tok, size_t *n);

mt_rc mt_tok_scratch_create(mt_tok_scratch **out, const mt_tokenizer *tok, mt_err *err);
void mt_tok_scratch_free(mt_tok_scratch *scratch);
/* Once *stop is true an encoding that takes long fails with MT_ESTOPPED; borrowed. */
void mt_tok_scratch_heed(mt_tok_scratch *scratch, const atomic_bool *stop);

/* ---- encoding ---- */

/* The bytes [start, end) of the input a token was made from, white space included.  Tokens that were added around the
 * text have start = end.  A character that became several tokens gives each its own bytes where that is possible
 * (byte-level vocabularies) and the whole character otherwise. */
typedef struct mt_tok_range {
    uint32_t start, end;
} mt_tok_range;

/* Ids are appended; zero-initialize, reuse by setting n = 0, free. */
typedef struct mt_tokens {
    int32_t *ids;
    mt_tok_range *ranges; /* [n] if MT_ENCODE_RANGES was given in every call that filled this, else NULL */
    size_t n, cap_ids, cap_ranges;
} mt_tokens;

enum {
    MT_ENCODE_SPECIAL = 1, /* with the tokens the tokenizer puts around a text (bos, eos, ...) */
    MT_ENCODE_RANGES = 2,  /* fill ranges too */
};

/* Text must be valid UTF-8 and below 1 GiB.  Tokens spelled out in it ("<|im_end|>") become those tokens.  MT_ERANGE: this text is
 * past a bound (too long, or too much work for a regular expression of the tokenizer); others may not be. */
mt_rc mt_tokenizer_encode(const mt_tokenizer *tok, mt_tok_scratch *scratch, const char *text, size_t n, unsigned flags,
                          mt_tokens *out, mt_err *err);
void mt_tokens_free(mt_tokens *tokens);

/* ---- decoding ---- */

/* Append the text of ids; those that do not exist are passed over.  Bytes that form no character become U+FFFD. */
mt_rc mt_tokenizer_decode(const mt_tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, mt_str *out, mt_err *err);

/* ---- the vocabulary ---- */

/* Largest id + 1, added tokens included: what an embedding must have at least. */
size_t mt_tokenizer_vocab_size(const mt_tokenizer *tok);
/* -1 if the token does not exist. */
int32_t mt_tokenizer_token_id(const mt_tokenizer *tok, const char *token, size_t n);
/* As spelled in the file; NULL if the id does not exist. */
const char *mt_tokenizer_token(const mt_tokenizer *tok, int32_t id, size_t *n);
bool mt_tokenizer_is_special(const mt_tokenizer *tok, int32_t id);

/* ---- what tokenizer_config.json says ---- */

typedef enum mt_tok_role { MT_TOK_BOS, MT_TOK_EOS, MT_TOK_PAD, MT_TOK_UNK, MT_TOK_ROLES } mt_tok_role;

/* -1 and NULL where the model names none (or names one that is not in its vocabulary: id only). */
int32_t mt_tokenizer_role_id(const mt_tokenizer *tok, mt_tok_role role);
const char *mt_tokenizer_role_text(const mt_tokenizer *tok, mt_tok_role role);
bool mt_tokenizer_add_bos(const mt_tokenizer *tok);
bool mt_tokenizer_add_eos(const mt_tokenizer *tok);
/* 0: not said (or said to be unlimited). */
int64_t mt_tokenizer_max_length(const mt_tokenizer *tok);

typedef struct mt_named_template {
    const char *name; /* "default" for the one and only */
    const char *text;
    size_t n;
} mt_named_template;

/* The chat templates found; *n may be 0. */
const mt_named_template *mt_tokenizer_templates(const mt_tokenizer *tok, size_t *n);

#endif
