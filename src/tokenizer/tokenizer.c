/* The pipeline: added tokens are found, the text between them is normalized, cut into words and encoded. */
#include "tokenizer/tokenizer_impl.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30 };

/* ---- encoding ---- */

typedef struct call {
    const mt_tokenizer *tok;
    mt_tok_scratch *sc;
    mt_tokens *out;
    bool ranges; /* the caller wants them */
    bool tracked;
} call;

static mt_rc put_id(call *c, int32_t id, uint32_t start, uint32_t end, mt_err *err)
{
    mt_tokens *out = c->out;
    if (out->n == out->cap_ids) MT_TRY(mt_grow(&out->ids, &out->cap_ids, out->n + 1, sizeof *out->ids, err));
    if (c->ranges) {
        if (out->n >= out->cap_ranges) MT_TRY(mt_grow(&out->ranges, &out->cap_ranges, out->n + 1, sizeof *out->ranges, err));
        out->ranges[out->n] = (mt_tok_range){ start, end };
    }
    out->ids[out->n++] = id;
    return MT_OK;
}

/* Pieces of the word at text[start...], with where they came from. */
static mt_rc put_pieces(call *c, const mt_view *text, size_t start, mt_err *err)
{
    const mt_pieces *p = &c->sc->pieces;
    for (size_t i = 0; i < p->n; i++) {
        size_t end = start + p->lens[i] <= text->n ? start + p->lens[i] : text->n;
        uint32_t lo = 0, hi = 0;
        if (c->ranges) {
            lo = mt_view_point(text, start);
            hi = end > start ? mt_view_hi(text, end - 1) : lo;
        }
        MT_TRY(put_id(c, p->ids[i], lo, hi, err));
        start = end;
    }
    return MT_OK;
}

static mt_rc copy_ids(call *c, mt_err *err)
{
    mt_tokens *out = c->out;
    const mt_pieces *p = &c->sc->pieces;
    MT_TRY(mt_grow(&out->ids, &out->cap_ids, out->n + p->n, sizeof *out->ids, err));
    if (p->n) memcpy(out->ids + out->n, p->ids, p->n * sizeof *p->ids);
    out->n += p->n;
    return MT_OK;
}

/* Normalized text without added tokens in it. */
static mt_rc encode_plain(call *c, mt_view text, mt_err *err)
{
    const mt_tokenizer *tok = c->tok;
    const mt_words *words;
    mt_pieces *pieces = &c->sc->pieces;
    MT_TRY(mt_pretokenizer_apply(&tok->pretokenizer, &tok->unicode, &c->sc->pretok, c->tracked, &text, &words, err));
    pieces->n = 0;
    for (size_t i = 0; i < words->n; i++) {
        mt_word w = words->items[i];
        MT_TRY(
            mt_word_model_encode(&tok->model, &c->sc->model, text.s + w.start, w.end - w.start, text.n - w.start, pieces, err));
        if (!c->ranges) continue; /* all words of this text are copied at once below */
        MT_TRY(put_pieces(c, &text, w.start, err));
        pieces->n = 0;
    }
    return c->ranges ? MT_OK : copy_ids(c, err);
}

static mt_rc put_added(call *c, const mt_view *text, mt_segment seg, mt_err *err)
{
    uint32_t lo = mt_view_point(text, seg.start), hi = seg.end > seg.start ? mt_view_hi(text, seg.end - 1) : lo;
    return put_id(c, c->tok->added.tokens[seg.token].id, lo, hi, err);
}

/* Text as given, between added tokens that are not normalized. */
static mt_rc encode_between(call *c, mt_view text, mt_err *err)
{
    const mt_tokenizer *tok = c->tok;
    MT_TRY(mt_normalizer_apply(&tok->normalizer, &tok->unicode, &c->sc->norm, c->tracked, &text, err));
    if (tok->added.normalized.n <= 1) return encode_plain(c, text, err);
    mt_segments *inner = &c->sc->inner;
    MT_TRY(mt_added_find(&tok->added, &tok->added.normalized, &tok->unicode, text.s, text.n, inner, err));
    for (size_t i = 0; i < inner->n; i++) {
        mt_segment s = inner->items[i];
        if (s.token >= 0)
            MT_TRY(put_added(c, &text, s, err));
        else
            MT_TRY(encode_plain(c, mt_view_slice(&text, s.start, s.end - s.start), err));
    }
    return MT_OK;
}

static mt_rc encode_text(call *c, const char *text, size_t n, mt_err *err)
{
    const mt_tokenizer *tok = c->tok;
    mt_segments *outer = &c->sc->outer;
    mt_view all = { .s = text, .n = n };
    MT_TRY(mt_added_find(&tok->added, &tok->added.plain, &tok->unicode, text, n, outer, err));
    for (size_t i = 0; i < outer->n; i++) {
        mt_segment s = outer->items[i];
        if (s.token >= 0)
            MT_TRY(put_added(c, &all, s, err));
        else
            MT_TRY(encode_between(c, mt_view_slice(&all, s.start, s.end - s.start), err));
    }
    return MT_OK;
}

static mt_rc put_all(call *c, const mt_id_list *list, size_t at, mt_err *err)
{
    for (size_t i = 0; i < list->n; i++) MT_TRY(put_id(c, list->ids[i], (uint32_t)at, (uint32_t)at, err));
    return MT_OK;
}

mt_rc mt_tokenizer_encode(const mt_tokenizer *tok, mt_tok_scratch *sc, const char *text, size_t n, unsigned flags, mt_tokens *out,
                          mt_err *err)
{
    size_t bad, before = out->n;
    if (n > MAX_TEXT_BYTES)
        return mt_fail(err, MT_ERANGE, "a text of %zu bytes, at most %d can be tokenized at once", n, MAX_TEXT_BYTES);
    if (!mt_utf8_valid(text, n, &bad)) return mt_fail(err, MT_EFORMAT, "the text is not valid UTF-8 at byte %zu", bad);
    bool ranges = flags & MT_ENCODE_RANGES;
    call c = { .tok = tok, .sc = sc, .out = out, .ranges = ranges, .tracked = ranges || tok->needs_origin };
    mt_regex_state_begin(sc->norm.regex, n);
    mt_rc rc = flags & MT_ENCODE_SPECIAL ? put_all(&c, &tok->prefix, 0, err) : MT_OK;
    if (!rc) rc = encode_text(&c, text, n, err);
    if (!rc && flags & MT_ENCODE_SPECIAL) rc = put_all(&c, &tok->suffix, n, err);
    if (rc) out->n = before;
    return rc;
}

void mt_tokens_free(mt_tokens *t)
{
    mt_free(t->ids);
    mt_free(t->ranges);
    *t = (mt_tokens){ 0 };
}

/* ---- decoding ---- */

/* SentencePiece says nothing for control pieces and shows its own sign for the unknown one. */
static mt_piece_text model_piece(const mt_tokenizer *tok, const mt_vocab_token *token)
{
    uint8_t type = tok->piece_types ? tok->piece_types[token->id] : 0;
    if (type == MT__PIECE_CONTROL) return (mt_piece_text){ "", 0, false };
    if (type == MT__PIECE_UNKNOWN) return (mt_piece_text){ " \xe2\x81\x87 ", 5, true };
    return (mt_piece_text){ token->s, token->n, false };
}

/* The reference knows special tokens by what they show, whichever id led there. */
static bool shows_special(const mt_tokenizer *tok, const char *s, size_t n)
{
    const mt_added_token *t = mt_added_by_text(&tok->added, s, n);
    return t && t->special;
}

mt_rc mt_tokenizer_decode(const mt_tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, mt_str *out, mt_err *err)
{
    mt_arena arena = { 0 };
    size_t n_pieces = 0;
    mt_piece_text *pieces = mt_arena_calloc(&arena, n + 1, sizeof *pieces);
    if (!pieces) return mt_no_memory(err, "decoding %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        const mt_added_token *added = mt_added_by_id(&tok->added, ids[i]);
        const mt_vocab_token *token = added ? NULL : mt_vocab_at(&tok->model.vocab, ids[i]);
        if (!added && !token) continue;
        mt_piece_text piece = added ? (mt_piece_text){ added->shown, added->n_shown, true } : model_piece(tok, token);
        if (!(skip_special && shows_special(tok, piece.s, piece.n))) pieces[n_pieces++] = piece;
    }
    mt_rc rc = mt_decoder_apply(&tok->decoder, &arena, pieces, n_pieces, out, err);
    if (!rc) mt_str_add(out, "", 0); /* so that out->s is a string even when nothing was said */
    mt_arena_free(&arena);
    return rc;
}

/* ---- scratch ---- */

mt_rc mt_tok_scratch_create(mt_tok_scratch **out, const mt_tokenizer *tok, mt_err *err)
{
    (void)tok;
    *out = NULL;
    mt_tok_scratch *sc = mt_calloc(1, sizeof *sc);
    if (!sc) return mt_no_memory(err, "a tokenizer's scratch");
    mt_rc rc = mt_word_model_state_init(&sc->model, err);
    if (!rc) rc = mt_regex_state_create(&sc->norm.regex, err);
    sc->pretok.regex = sc->norm.regex; /* they take turns */
    if (rc)
        mt_tok_scratch_free(sc);
    else
        *out = sc;
    return rc;
}

void mt_tok_scratch_free(mt_tok_scratch *sc)
{
    if (!sc) return;
    mt_text_deinit(&sc->norm.text[0]);
    mt_text_deinit(&sc->norm.text[1]);
    mt_regex_state_free(sc->norm.regex);
    mt_pretok_state_deinit(&sc->pretok);
    mt_word_model_state_deinit(&sc->model);
    mt_pieces_deinit(&sc->pieces);
    mt_free(sc->outer.items);
    mt_free(sc->inner.items);
    mt_free(sc);
}

void mt_tok_scratch_heed(mt_tok_scratch *sc, const atomic_bool *stop) { mt_regex_state_heed(sc->norm.regex, stop); }

/* ---- questions ---- */

size_t mt_tokenizer_vocab_size(const mt_tokenizer *tok)
{
    size_t added = tok->added.n ? (size_t)tok->added.max_id + 1 : 0;
    return added > tok->model.vocab.n_ids ? added : tok->model.vocab.n_ids;
}

int32_t mt_tokenizer_token_id(const mt_tokenizer *tok, const char *token, size_t n)
{
    const mt_added_token *added = mt_added_by_text(&tok->added, token, n);
    return added ? added->id : mt_vocab_id(&tok->model.vocab, token, n);
}

const char *mt_tokenizer_token(const mt_tokenizer *tok, int32_t id, size_t *n)
{
    const mt_added_token *added = mt_added_by_id(&tok->added, id);
    const mt_vocab_token *token = mt_vocab_at(&tok->model.vocab, id);
    if (n) *n = token ? token->n : 0;
    if (n && added) *n = added->n;
    if (added) return added->content;
    return token ? token->s : NULL;
}

bool mt_tokenizer_is_special(const mt_tokenizer *tok, int32_t id)
{
    const mt_added_token *added = mt_added_by_id(&tok->added, id);
    return added && added->special;
}

const char *mt_tokenizer_role_text(const mt_tokenizer *tok, mt_tok_role role) { return tok->role_text[role]; }

int32_t mt_tokenizer_role_id(const mt_tokenizer *tok, mt_tok_role role)
{
    const char *text = tok->role_text[role];
    return text ? mt_tokenizer_token_id(tok, text, strlen(text)) : -1;
}

bool mt_tokenizer_add_bos(const mt_tokenizer *tok) { return tok->add_bos; }
bool mt_tokenizer_add_eos(const mt_tokenizer *tok) { return tok->add_eos; }
int64_t mt_tokenizer_max_length(const mt_tokenizer *tok) { return tok->max_length; }

const mt_named_template *mt_tokenizer_templates(const mt_tokenizer *tok, size_t *n)
{
    *n = tok->n_templates;
    return tok->templates;
}
