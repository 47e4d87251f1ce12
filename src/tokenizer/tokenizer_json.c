/* tokenizer.json: the file Hugging Face's tokenizers write, read into a tokenizer.  Its "truncation" and "padding" are ignored,
 * as in transformers: the code that makes samples decides lengths. */
#include "tokenizer/json_read.h"
#include "tokenizer/tokenizer_impl.h"

static mt_rc read_vocab(mt_vocab *vocab, const mt_value *model, const char *what, mt_err *err)
{
    const mt_value *map;
    MT_TRY(mt__json_need(model, "vocab", MT_VALUE_MAP, &map, what, err));
    MT_TRY(mt_vocab_reserve(vocab, map->map.n, err));
    for (size_t i = 0; i < map->map.n; i++) {
        const mt_pair *p = &map->map.pairs[i];
        if (p->value.type != MT_VALUE_INT)
            return mt_fail(err, MT_EFORMAT, "%s: the id of token \"%.*s\" is %s, an integer was expected", what,
                           (int)mt_min_i64((int64_t)p->key_n, 60), p->key, mt_value_type_name(&p->value));
        if (mt_vocab_add(vocab, p->key, p->key_n, p->value.i, err)) return mt_note(err, "%s", what);
    }
    return mt_vocab_finish(vocab, what, err);
}

/* May the vocabulary be translated to bytes, so that text need not be spelled in GPT-2's alphabet?  Yes if spelling is
 * the last thing that happens before the model. */
static bool ends_in_bytes(const mt_pretokenizer *pt)
{
    for (size_t i = 0; i + 1 < pt->n; i++)
        if (pt->steps[i].kind == MT_PRETOK_BYTE_LEVEL) return false;
    return pt->n && pt->steps[pt->n - 1].kind == MT_PRETOK_BYTE_LEVEL;
}

static mt_rc load_bpe(mt_tokenizer *tok, const mt_value *model, const char *what, mt_err *err)
{
    mt_word_model *m = &tok->model;
    m->kind = MT_WORD_MODEL_BPE;
    MT_TRY(read_vocab(&m->vocab, model, what, err));
    MT_TRY(mt_bpe_parse(&m->bpe, model, &m->vocab, ends_in_bytes(&tok->pretokenizer), what, err));
    if (m->bpe.raw) tok->pretokenizer.steps[tok->pretokenizer.n - 1].raw = true;
    return MT_OK;
}

static mt_rc load_unigram(mt_tokenizer *tok, const mt_value *model, const char *what, mt_err *err)
{
    tok->model.kind = MT_WORD_MODEL_UNIGRAM;
    MT_TRY(mt_unigram_parse(&tok->model.unigram, model, &tok->model.vocab, what, err));
    return mt_vocab_finish(&tok->model.vocab, what, err);
}

static mt_rc load_words(mt_tokenizer *tok, const mt_value *model, bool whole, const char *what, mt_err *err)
{
    tok->model.kind = whole ? MT_WORD_MODEL_WORDLEVEL : MT_WORD_MODEL_WORDPIECE;
    MT_TRY(read_vocab(&tok->model.vocab, model, what, err));
    return mt_wordpiece_parse(&tok->model.wordpiece, model, &tok->model.vocab, whole, what, err);
}

/* Old files do not say which model they hold; its keys do. */
static mt_rc load_model(mt_tokenizer *tok, const mt_value *model, const char *what, mt_err *err)
{
    const mt_value *type;
    MT_TRY(mt__json_maybe(model, "type", MT_VALUE_STR, &type, what, err));
    const mt_value *vocab = mt_value_get(model, "vocab");
    if (type ? mt_value_is(type, "BPE") : mt_value_get(model, "merges") != NULL) return load_bpe(tok, model, what, err);
    if (type ? mt_value_is(type, "Unigram") : vocab && vocab->type == MT_VALUE_LIST) return load_unigram(tok, model, what, err);
    if (type ? mt_value_is(type, "WordPiece") : mt_value_get(model, "max_input_chars_per_word") != NULL)
        return load_words(tok, model, false, what, err);
    if (!type || mt_value_is(type, "WordLevel")) return load_words(tok, model, true, what, err);
    return mt_fail(err, MT_EUNSUPPORTED, "%s: model \"%.*s\" is not known (BPE, Unigram, WordPiece, WordLevel are)", what,
                   (int)mt_min_i64((int64_t)type->str.n, 60), type->str.s);
}

static bool asks_for_first(const mt_pretokenizer *pt)
{
    for (size_t i = 0; i < pt->n; i++)
        if (pt->steps[i].kind == MT_PRETOK_METASPACE && pt->steps[i].prepend == MT_PREPEND_FIRST) return true;
    return false;
}

static mt_rc tokenizer_json_load(mt_tokenizer *tok, const mt_value *root, const char *what, mt_err *err)
{
    const mt_value *model, *added;
    MT_TRY(mt__json_need(root, "model", MT_VALUE_MAP, &model, what, err));
    MT_TRY(mt_normalizer_parse(&tok->normalizer, mt_value_get(root, "normalizer"), what, err));
    MT_TRY(mt_pretokenizer_parse(&tok->pretokenizer, mt_value_get(root, "pre_tokenizer"), what, err));
    MT_TRY(load_model(tok, model, what, err));
    MT_TRY(mt__parse_post_processor(tok, mt_value_get(root, "post_processor"), what, err));
    MT_TRY(mt_decoder_parse(&tok->decoder, mt_value_get(root, "decoder"), what, err));
    MT_TRY(mt__json_maybe(root, "added_tokens", MT_VALUE_LIST, &added, what, err));
    MT_TRY(mt_added_parse(&tok->added, added, &tok->model.vocab, what, err));
    tok->needs_origin = asks_for_first(&tok->pretokenizer);
    return MT_OK;
}

mt_rc mt__load_tokenizer_json(mt_tokenizer *tok, const char *text, size_t n, const char *what, mt_err *err)
{
    mt_arena arena = { 0 };
    mt_value root;
    mt_rc rc = mt_value_parse_json(&root, &arena, text, n, NULL, what, err);
    if (!rc) rc = tokenizer_json_load(tok, &root, what, err);
    mt_arena_free(&arena);
    return rc;
}
