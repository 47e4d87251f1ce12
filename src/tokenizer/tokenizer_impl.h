/* tokenizer_impl.h - what a tokenizer is made of.  Private to tokenizer/. */
#ifndef MT_TOKENIZER_IMPL_H
#define MT_TOKENIZER_IMPL_H

#include "tokenizer/added.h"
#include "tokenizer/decode.h"
#include "tokenizer/model.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

typedef struct mt_id_list {
    int32_t *ids;
    size_t n, cap;
} mt_id_list;

/* SentencePiece's types of pieces, by its numbers. */
enum { MT__PIECE_NORMAL = 1, MT__PIECE_UNKNOWN, MT__PIECE_CONTROL, MT__PIECE_USER_DEFINED, MT__PIECE_UNUSED, MT__PIECE_BYTE };

struct mt_tokenizer {
    mt_unicode unicode;
    mt_normalizer normalizer;
    mt_pretokenizer pretokenizer;
    mt_word_model model;
    mt_added added;
    mt_decoder decoder;
    mt_id_list prefix, suffix; /* around a text, with MT_ENCODE_SPECIAL */
    uint8_t *piece_types;      /* SentencePiece: the type of each id, else NULL */
    bool needs_origin;         /* Metaspace asks whether a word starts the input: origins are always tracked */
    int32_t adopted[6];        /* ordinary tokens that mt_tokenizer_adopt made special */
    size_t n_adopted;
    bool bare_model; /* from a tokenizer.model: special tokens come from the files beside it */
    /* tokenizer_config.json and its neighbors */
    char *role_text[MT_TOK_ROLES];
    bool add_bos, add_eos;
    int64_t max_length;
    mt_named_template *templates; /* name and text owned */
    size_t n_templates, cap_templates;
};

struct mt_tok_scratch {
    mt_norm_state norm;
    mt_pretok_state pretok;
    mt_word_model_state model;
    mt_segments outer, inner;
    mt_pieces pieces;
};

/* Fill a tokenizer from one kind of file (tokenizer_json.c, spm.c, tiktoken.c). */
mt_rc mt__load_tokenizer_json(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err);
mt_rc mt__load_spm(mt_tokenizer *tok, const char *bytes, size_t n, const char *what, mt_err *err);
mt_rc mt__load_tiktoken(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err);
/* True if the file looks like lines of "base64 rank". */
bool mt__looks_like_tiktoken(const char *text, size_t n);

/* Read the files beside the tokenizer (config.c). */
mt_rc mt__read_config(mt_tokenizer *tok, const char *dir, mt_err *err);
/* The text of a tokenizer_config.json that belongs to a tokenizer.json. */
mt_rc mt__read_config_text(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err);

/* The space that tokenizer_config.json wants in front of a text, where it counts (prefix_space.c).  model_type: config.json's, or
 * NULL. */
mt_rc mt__set_prefix_space(mt_tokenizer *tok, const mt_value *config, const mt_value *model_type, const char *what, mt_err *err);

/* Qwen 1: its pattern, NFC, and the special tokens only its code knows (tiktoken.c). */
mt_rc mt__make_qwen1(mt_tokenizer *tok, mt_err *err);

/* The "post_processor" of a tokenizer.json: prefix and suffix. */
mt_rc mt__parse_post_processor(mt_tokenizer *tok, const mt_value *v, const char *what, mt_err *err);
mt_rc mt__id_list_push(mt_id_list *list, int64_t id, mt_err *err);

#endif
