/* tokenizer.model: SentencePiece's protobuf, BPE and Unigram.  Field numbers are those of sentencepiece_model.proto. */
#include "tokenizer/protobuf.h"
#include "tokenizer/tokenizer_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_UNIGRAM = 1, KIND_BPE = 2 };

typedef struct spm {
    mt_tokenizer *tok;
    const char *what;
    float *scores; /* [n] */
    size_t n, cap_scores, cap_types;
    uint64_t kind; /* trainer_spec.model_type */
    bool byte_fallback, space_behind;
    const uint8_t *charsmap; /* inside the file */
    size_t n_charsmap;
    bool dummy_prefix, remove_extra, escape;
    const uint8_t *role[MT_TOK_ROLES]; /* names of bos, ... inside the file, NULL: the default */
    size_t n_role[MT_TOK_ROLES];
} spm;

static mt_rc malformed(const spm *s, const char *where, mt_err *err)
{
    return mt_fail(err, MT_EFORMAT, "%s: %s is truncated or not a SentencePiece model; download the file again", s->what, where);
}

static mt_rc read_piece(spm *s, mt_pb pb, mt_err *err)
{
    mt_pb_field f;
    const char *text = "";
    size_t n = 0;
    float score = 0;
    uint64_t type = MT__PIECE_NORMAL;
    while (mt_pb_next(&pb, &f)) {
        if (f.number == 1 && f.wire == 2) text = (const char *)f.bytes, n = f.n;
        if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        }
        if (f.number == 3 && f.wire == 0) type = f.value;
    }
    if (pb.bad || !n || !mt_utf8_valid(text, n, NULL)) return malformed(s, "a piece", err);
    if (mt_vocab_id(&s->tok->model.vocab, text, n) >= 0)
        return mt_fail(err, MT_EFORMAT, "%s: piece %zu is there twice", s->what, s->n);
    if (!isfinite(score) || type < MT__PIECE_NORMAL || type > MT__PIECE_BYTE)
        return mt_fail(err, MT_EFORMAT, "%s: piece %zu has a score or type that makes no sense", s->what, s->n);
    MT_TRY(mt_grow(&s->scores, &s->cap_scores, s->n + 1, sizeof *s->scores, err));
    MT_TRY(mt_grow(&s->tok->piece_types, &s->cap_types, s->n + 1, 1, err));
    MT_TRY(mt_vocab_add(&s->tok->model.vocab, text, n, (int64_t)s->n, err));
    s->scores[s->n] = score;
    s->tok->piece_types[s->n++] = (uint8_t)type;
    return MT_OK;
}

static mt_rc read_trainer(spm *s, mt_pb pb, mt_err *err)
{
    mt_pb_field f;
    while (mt_pb_next(&pb, &f)) {
        if (f.number == 3 && f.wire == 0) s->kind = f.value;
        if (f.number == 24 && f.wire == 0) s->space_behind = f.value;
        if (f.number == 35 && f.wire == 0) s->byte_fallback = f.value;
        static const mt_tok_role role_of[] = { MT_TOK_UNK, MT_TOK_BOS, MT_TOK_EOS, MT_TOK_PAD }; /* 45, 46, 47, 48 */
        if (f.number < 45 || f.number > 48 || f.wire != 2) continue;
        s->role[role_of[f.number - 45]] = f.bytes;
        s->n_role[role_of[f.number - 45]] = f.n;
    }
    return pb.bad ? malformed(s, "trainer_spec", err) : MT_OK;
}

static mt_rc read_normalizer(spm *s, mt_pb pb, mt_err *err)
{
    mt_pb_field f;
    while (mt_pb_next(&pb, &f)) {
        if (f.number == 2 && f.wire == 2) s->charsmap = f.bytes, s->n_charsmap = f.n;
        if (f.number == 3 && f.wire == 0) s->dummy_prefix = f.value;
        if (f.number == 4 && f.wire == 0) s->remove_extra = f.value;
        if (f.number == 5 && f.wire == 0) s->escape = f.value;
    }
    return pb.bad ? malformed(s, "normalizer_spec", err) : MT_OK;
}

static mt_rc read_model(spm *s, const char *bytes, size_t n, mt_err *err)
{
    mt_pb pb = { .p = (const uint8_t *)bytes, .end = (const uint8_t *)bytes + n };
    mt_pb_field f;
    while (mt_pb_next(&pb, &f)) {
        if (f.wire != 2) continue;
        mt_pb inner = { .p = f.bytes, .end = f.bytes + f.n };
        if (f.number == 1) MT_TRY(read_piece(s, inner, err));
        if (f.number == 2) MT_TRY(read_trainer(s, inner, err));
        if (f.number == 3) MT_TRY(read_normalizer(s, inner, err));
    }
    if (pb.bad || pb.p != pb.end || !s->n) return malformed(s, "the file", err);
    if (s->space_behind) return mt_fail(err, MT_EUNSUPPORTED, "%s: treat_whitespace_as_suffix is not supported", s->what);
    return mt_vocab_finish(&s->tok->model.vocab, s->what, err);
}

static int32_t find_unknown(const spm *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->tok->piece_types[i] == MT__PIECE_UNKNOWN) return (int32_t)i;
    return -1;
}

static mt_rc collect_user_defined(spm *s, mt_err *err)
{
    mt_word_model *m = &s->tok->model;
    mt_trie_key *keys = mt_calloc(s->n, sizeof *keys);
    if (!keys) return mt_no_memory(err, "%s", s->what);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->tok->piece_types[i] == MT__PIECE_USER_DEFINED)
            keys[n++] = (mt_trie_key){ m->vocab.tokens[i].s, m->vocab.tokens[i].n, (int32_t)i };
    mt_rc rc = mt_trie_build(&m->user_defined, keys, n, err);
    m->has_user_defined = n > 0;
    mt_free(keys);
    return rc;
}

static mt_rc set_normalizer(spm *s, mt_err *err)
{
    mt_norm_step *step;
    MT_TRY(mt_normalizer_push(&s->tok->normalizer, MT_NORM_SPM, &step, err));
    step->dummy_prefix = s->dummy_prefix;
    step->remove_extra = s->remove_extra;
    step->escape = s->escape;
    step->user_defined = s->tok->model.has_user_defined ? &s->tok->model.user_defined : NULL;
    if (!s->n_charsmap) return MT_OK;
    return mt_charsmap_init(&step->charsmap, (const char *)s->charsmap, s->n_charsmap, s->what, err);
}

/* ---- BPE ---- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Best score first; equal scores share a rank, so that the leftmost of them merges first. */
static mt_rc rank_pieces(const spm *s, uint32_t *rank_of_id, mt_err *err)
{
    scored *order = mt_malloc(s->n * sizeof *order);
    if (!order) return mt_no_memory(err, "%s", s->what);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        rank_of_id[i] = UINT32_MAX;
        uint8_t type = s->tok->piece_types[i];
        if (type == MT__PIECE_NORMAL || type == MT__PIECE_USER_DEFINED) order[n++] = (scored){ s->scores[i], (int32_t)i };
    }
    qsort(order, n, sizeof *order, by_score);
    for (size_t i = 0; i < n; i++)
        rank_of_id[order[i].id] = i && order[i].score == order[i - 1].score ? rank_of_id[order[i - 1].id] : (uint32_t)i;
    mt_free(order);
    return MT_OK;
}

/* Characters that occur in pieces but are not pieces still take part in merging: they get ids after the vocabulary. */
static mt_rc add_inner_chars(const spm *s, mt_vocab *all, mt_err *err)
{
    const mt_vocab *vocab = &s->tok->model.vocab;
    MT_TRY(mt_vocab_reserve(all, vocab->n, err));
    for (size_t i = 0; i < vocab->n; i++)
        MT_TRY(mt_vocab_add(all, vocab->tokens[i].s, vocab->tokens[i].n, vocab->tokens[i].id, err));
    for (size_t i = 0; i < vocab->n; i++) {
        const mt_vocab_token *t = &vocab->tokens[i];
        if (s->tok->piece_types[t->id] != MT__PIECE_NORMAL) continue;
        for (size_t k = 0, len; k < t->n; k += len) {
            uint32_t cp;
            len = mt_cp_at(t->s, t->n, k, &cp);
            if (mt_vocab_id(all, t->s + k, len) < 0) MT_TRY(mt_vocab_add(all, t->s + k, len, (int64_t)all->n, err));
        }
    }
    return mt_vocab_finish(all, s->what, err);
}

static mt_rc build_merges(spm *s, mt_vocab *all, mt_err *err)
{
    mt_bpe *b = &s->tok->model.bpe;
    MT_TRY(add_inner_chars(s, all, err));
    uint32_t *ranks = mt_malloc(all->n_ids * sizeof *ranks);
    if (!ranks) return mt_no_memory(err, "%s", s->what);
    memset(ranks, 0xff, all->n_ids * sizeof *ranks);
    mt_rc rc = rank_pieces(s, ranks, err);
    if (!rc) rc = mt_bpe_from_ranks(b, all, ranks, false, err);
    mt_free(ranks);
    return rc ? rc : mt_bpe_finish(b, all, err);
}

static mt_rc build_bpe(spm *s, mt_err *err)
{
    mt_word_model *m = &s->tok->model;
    m->kind = MT_WORD_MODEL_BPE;
    m->bpe.spm = true;
    m->bpe.unk_id = find_unknown(s);
    m->bpe.byte_fallback = s->byte_fallback;
    m->bpe.first_char_id = (int32_t)s->n;
    mt__find_byte_tokens(&m->vocab, m->bpe.byte_ids);
    for (size_t i = 0; i < s->n; i++)
        if (s->tok->piece_types[i] == MT__PIECE_UNUSED)
            return mt_fail(err, MT_EUNSUPPORTED, "%s: a BPE model with unused pieces is not supported", s->what);
    mt_vocab all = { 0 };
    mt_rc rc = build_merges(s, &all, err);
    mt_vocab_deinit(&all);
    if (m->has_user_defined) m->bpe.cut_at_marker = false; /* one of them may hold a marker */
    return rc;
}

/* ---- Unigram ---- */

static mt_rc build_unigram(spm *s, mt_err *err)
{
    mt_word_model *m = &s->tok->model;
    mt_unigram *u = &m->unigram;
    m->kind = MT_WORD_MODEL_UNIGRAM;
    u->spm = true;
    u->unk_id = find_unknown(s);
    u->byte_fallback = s->byte_fallback;
    mt__find_byte_tokens(&m->vocab, u->byte_ids);
    u->scores = mt_calloc(s->n, sizeof *u->scores);
    u->n_scores = s->n;
    mt_trie_key *keys = mt_calloc(s->n, sizeof *keys);
    mt_rc rc = keys && u->scores ? MT_OK : mt_no_memory(err, "%s", s->what);
    float lowest = FLT_MAX, highest = -FLT_MAX;
    for (size_t i = 0; i < s->n; i++)
        if (s->tok->piece_types[i] == MT__PIECE_NORMAL) {
            lowest = s->scores[i] < lowest ? s->scores[i] : lowest;
            highest = s->scores[i] > highest ? s->scores[i] : highest;
        }
    size_t n = 0;
    for (size_t i = 0; i < s->n && !rc; i++) {
        const mt_vocab_token *t = &m->vocab.tokens[i];
        uint8_t type = s->tok->piece_types[i];
        u->scores[i] = type == MT__PIECE_USER_DEFINED ? (float)t->n * highest - 0.1 : (double)s->scores[i];
        rc = mt__unigram_check_length(t->n, s->what, err);
        if (type == MT__PIECE_NORMAL || type == MT__PIECE_USER_DEFINED) keys[n++] = (mt_trie_key){ t->s, t->n, (int32_t)i };
    }
    u->unk_score = lowest - 10.0f;
    if (!rc) rc = mt_trie_build(&u->trie, keys, n, err);
    mt_free(keys);
    return rc;
}

/* ---- the rest ---- */

static mt_rc set_roles(spm *s, mt_err *err)
{
    static const char *const usual[MT_TOK_ROLES] = { "<s>", "</s>", "<pad>", "<unk>" };
    mt_tokenizer *tok = s->tok;
    for (int r = 0; r < MT_TOK_ROLES; r++) {
        const char *name = s->role[r] ? (const char *)s->role[r] : usual[r];
        size_t n = s->role[r] ? s->n_role[r] : strlen(usual[r]);
        if (mt_vocab_id(&tok->model.vocab, name, n) < 0) continue;
        tok->role_text[r] = mt_strndup(name, n);
        if (!tok->role_text[r]) return mt_no_memory(err, "%s", s->what);
    }
    tok->add_bos = true; /* what every model shipping such a file does unless its config says otherwise */
    mt_decode_step *step;
    MT_TRY(mt_decoder_push(&tok->decoder, MT_DECODE_SPM, &step, err));
    step->keep_first = !s->dummy_prefix && !s->remove_extra;
    step->cleanup = s->remove_extra;
    return MT_OK;
}

static mt_rc build(spm *s, const char *bytes, size_t n, mt_err *err)
{
    MT_TRY(read_model(s, bytes, n, err));
    MT_TRY(collect_user_defined(s, err));
    if (s->kind == KIND_BPE)
        MT_TRY(build_bpe(s, err));
    else if (s->kind == KIND_UNIGRAM)
        MT_TRY(build_unigram(s, err));
    else
        return mt_fail(err, MT_EUNSUPPORTED, "%s: model type %llu is neither Unigram (1) nor BPE (2)", s->what,
                       (unsigned long long)s->kind);
    if (find_unknown(s) < 0) return mt_fail(err, MT_EFORMAT, "%s: there is no unknown piece", s->what);
    MT_TRY(set_normalizer(s, err));
    return set_roles(s, err);
}

mt_rc mt__load_spm(mt_tokenizer *tok, const char *bytes, size_t n, const char *what, mt_err *err)
{
    spm s = { .tok = tok, .what = what, .kind = KIND_UNIGRAM, .dummy_prefix = true, .remove_extra = true, .escape = true };
    mt_rc rc = build(&s, bytes, n, err);
    mt_free(s.scores);
    return rc;
}
