/* The "post_processor" of a tokenizer.json.  For one text (we never encode pairs) each kind reduces to tokens before it and
 * tokens after it. */
#include "tokenizer/json_read.h"
#include "tokenizer/tokenizer_impl.h"

#include <string.h>

enum { MAX_AROUND = 1024 };

mt_rc mt__id_list_push(mt_id_list *list, int64_t id, mt_err *err)
{
    if (id < 0 || id > INT32_MAX - 1)
        return mt_fail(err, MT_ERANGE, "a post-processor names id %lld, outside 0..2^31-2", (long long)id);
    if (list->n >= MAX_AROUND) return mt_fail(err, MT_ERANGE, "a post-processor adds more than %d tokens", MAX_AROUND);
    MT_TRY(mt_grow(&list->ids, &list->cap, list->n + 1, sizeof *list->ids, err));
    list->ids[list->n++] = (int32_t)id;
    return MT_OK;
}

/* Sequences of post-processors wrap what the one before made, so a new prefix goes in front. */
static mt_rc push_front(mt_id_list *list, size_t at, int64_t id, mt_err *err)
{
    MT_TRY(mt__id_list_push(list, id, err));
    memmove(list->ids + at + 1, list->ids + at, (list->n - 1 - at) * sizeof *list->ids);
    list->ids[at] = (int32_t)id;
    return MT_OK;
}

/* "sep": ["</s>", 2] */
static mt_rc named_id(const mt_value *v, const char *key, int64_t *id, const char *what, mt_err *err)
{
    const mt_value *pair;
    MT_TRY(mt__json_need(v, key, MT_VALUE_LIST, &pair, what, err));
    if (pair->list.n != 2 || pair->list.items[1].type != MT_VALUE_INT)
        return mt_fail(err, MT_EFORMAT, "%s: \"%s\" of the post-processor is not [\"token\", id]", what, key);
    *id = pair->list.items[1].i;
    return MT_OK;
}

static mt_rc parse_cls_sep(mt_tokenizer *tok, const mt_value *v, const char *what, mt_err *err)
{
    int64_t cls = -1, sep = -1;
    MT_TRY(named_id(v, "cls", &cls, what, err));
    MT_TRY(named_id(v, "sep", &sep, what, err));
    MT_TRY(push_front(&tok->prefix, 0, cls, err));
    return mt__id_list_push(&tok->suffix, sep, err);
}

/* The ids that one special token's name stands for. */
static mt_rc template_token(mt_tokenizer *tok, const mt_value *table, const mt_value *piece, bool seen_text, size_t *n_front,
                            const char *what, mt_err *err)
{
    const mt_value *name, *entry = NULL, *ids;
    MT_TRY(mt__json_need(piece, "id", MT_VALUE_STR, &name, what, err));
    for (size_t i = 0; i < table->map.n; i++)
        if (table->map.pairs[i].key_n == name->str.n && !memcmp(table->map.pairs[i].key, name->str.s, name->str.n))
            entry = &table->map.pairs[i].value;
    if (!entry)
        return mt_fail(err, MT_EFORMAT, "%s: the template uses \"%.*s\", which is not among its \"special_tokens\"", what,
                       (int)mt_min_i64((int64_t)name->str.n, 60), name->str.s);
    MT_TRY(mt__json_need(entry, "ids", MT_VALUE_LIST, &ids, what, err));
    for (size_t i = 0; i < ids->list.n; i++) {
        if (ids->list.items[i].type != MT_VALUE_INT)
            return mt_fail(err, MT_EFORMAT, "%s: \"ids\" of a special token are not integers", what);
        if (seen_text)
            MT_TRY(mt__id_list_push(&tok->suffix, ids->list.items[i].i, err));
        else
            MT_TRY(push_front(&tok->prefix, (*n_front)++, ids->list.items[i].i, err));
    }
    return MT_OK;
}

static mt_rc parse_template(mt_tokenizer *tok, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *pieces, *table, *piece;
    static const mt_value empty = { .type = MT_VALUE_MAP };
    MT_TRY(mt__json_need(v, "single", MT_VALUE_LIST, &pieces, what, err));
    MT_TRY(mt__json_maybe(v, "special_tokens", MT_VALUE_MAP, &table, what, err));
    int n_text = 0;
    size_t n_front = 0;
    for (size_t i = 0; i < pieces->list.n; i++) {
        MT_TRY(mt__json_maybe(&pieces->list.items[i], "Sequence", MT_VALUE_MAP, &piece, what, err));
        n_text += piece != NULL;
        if (piece) continue;
        MT_TRY(mt__json_need(&pieces->list.items[i], "SpecialToken", MT_VALUE_MAP, &piece, what, err));
        MT_TRY(template_token(tok, table ? table : &empty, piece, n_text > 0, &n_front, what, err));
    }
    if (n_text != 1)
        return mt_fail(err, MT_EUNSUPPORTED, "%s: the template has the text %d times, once was expected", what, n_text);
    return MT_OK;
}

static mt_rc parse_sequence(mt_tokenizer *tok, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *list;
    MT_TRY(mt__json_need(v, "processors", MT_VALUE_LIST, &list, what, err));
    for (size_t i = 0; i < list->list.n; i++) MT_TRY(mt__parse_post_processor(tok, &list->list.items[i], what, err));
    return MT_OK;
}

mt_rc mt__parse_post_processor(mt_tokenizer *tok, const mt_value *v, const char *what, mt_err *err)
{
    const mt_value *type;
    if (!v || v->type == MT_VALUE_NULL) return MT_OK;
    MT_TRY(mt__json_need(v, "type", MT_VALUE_STR, &type, what, err));
    if (mt_value_is(type, "ByteLevel")) return MT_OK; /* it only trims offsets */
    if (mt_value_is(type, "TemplateProcessing")) return parse_template(tok, v, what, err);
    if (mt_value_is(type, "BertProcessing") || mt_value_is(type, "RobertaProcessing")) return parse_cls_sep(tok, v, what, err);
    if (mt_value_is(type, "Sequence")) return parse_sequence(tok, v, what, err);
    return mt_fail(err, MT_EUNSUPPORTED, "%s: post-processor \"%.*s\" is not known", what,
                   (int)mt_min_i64((int64_t)type->str.n, 60), type->str.s);
}
