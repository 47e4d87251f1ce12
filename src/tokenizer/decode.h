/* decode.h - tokens back to text: a list of steps over a list of strings, joined at the end. */
#ifndef MT_TOKENIZER_DECODE_H
#define MT_TOKENIZER_DECODE_H

#include "base/value.h"
#include "tokenizer/regex.h"

typedef enum mt_decode_kind {
    MT_DECODE_BYTE_LEVEL,
    MT_DECODE_METASPACE,
    MT_DECODE_BYTE_FALLBACK,
    MT_DECODE_FUSE,
    MT_DECODE_STRIP,
    MT_DECODE_REPLACE,
    MT_DECODE_WORDPIECE,
    MT_DECODE_BPE,
    MT_DECODE_CTC,
    MT_DECODE_RAW, /* tiktoken: tokens are bytes already */
    MT_DECODE_SPM, /* SentencePiece: bytes, markers to spaces, the dummy prefix away */
} mt_decode_kind;

typedef struct mt_decode_step {
    mt_decode_kind kind;
    char *a, *b; /* owned; REPLACE: pattern (NULL: re) and content; METASPACE: marker; WORDPIECE: prefix; BPE: suffix;
                    CTC: pad and word delimiter; STRIP: what */
    size_t n_a, n_b;
    mt_regex *re;
    size_t left, right; /* STRIP: at most this many on each side */
    bool cleanup;       /* WORDPIECE, CTC */
    bool keep_first;    /* METASPACE with prepend_scheme never; SPM without a dummy prefix */
} mt_decode_step;

typedef struct mt_decoder {
    mt_decode_step *steps;
    size_t n, cap;
    bool given; /* with or without steps: an empty sequence joins tokens with nothing between them, and no decoder with spaces */
} mt_decoder;

typedef struct mt_piece_text {
    const char *s;
    size_t n;
    bool added; /* an added token: its text is not in the model's alphabet */
} mt_piece_text;

/* From the "decoder" of a tokenizer.json (NULL or null: tokens are joined by spaces). */
mt_rc mt_decoder_parse(mt_decoder *out, const mt_value *v, const char *what, mt_err *err);
mt_rc mt_decoder_push(mt_decoder *d, mt_decode_kind kind, mt_decode_step **out, mt_err *err);
void mt_decoder_deinit(mt_decoder *d);

/* Append the text of the pieces; `pieces` is used up.  New strings go to the arena. */
mt_rc mt_decoder_apply(const mt_decoder *d, mt_arena *arena, mt_piece_text *pieces, size_t n, mt_str *out, mt_err *err);

#endif
