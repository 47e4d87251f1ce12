#include "data/specials.h"

#include <string.h>

typedef struct spelling {
    const char *s;
    size_t n;
    struct spelling *next; /* with the same first byte */
} spelling;

struct mt_specials {
    spelling *by_first[256];
    mt_arena arena;
};

static mt_rc specials_add(mt_specials *s, const char *text, size_t n, mt_err *err)
{
    spelling *p = mt_arena_alloc(&s->arena, sizeof *p);
    char *copy = mt_arena_strndup(&s->arena, text, n);
    if (!p || !copy) return mt_no_memory(err, "the special tokens");
    unsigned char first = (unsigned char)text[0];
    *p = (spelling){ copy, n, s->by_first[first] };
    s->by_first[first] = p;
    return MT_OK;
}

mt_rc mt_specials_create(mt_specials **out, const mt_tokenizer *tok, mt_err *err)
{
    *out = NULL;
    mt_specials *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "the special tokens");
    mt_rc rc = MT_OK;
    size_t n_vocab = mt_tokenizer_vocab_size(tok);
    for (size_t id = 0; !rc && id < n_vocab; id++) {
        size_t n = 0;
        const char *text = mt_tokenizer_is_special(tok, (int32_t)id) ? mt_tokenizer_token(tok, (int32_t)id, &n) : NULL;
        if (text && n >= 3) rc = specials_add(s, text, n, err);
    }
    if (rc) {
        mt_specials_free(s);
        return rc;
    }
    *out = s;
    return MT_OK;
}

static bool in_text(const mt_specials *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (const spelling *p = s->by_first[(unsigned char)text[i]]; p; p = p->next)
            if (p->n <= n - i && memcmp(p->s, text + i, p->n) == 0) return true;
    return false;
}

bool mt_specials_found(const mt_specials *s, const mt_value *v)
{
    if (v->type == MT_VALUE_STR) return in_text(s, v->str.s, v->str.n);
    if (v->type == MT_VALUE_LIST)
        for (size_t i = 0; i < v->list.n; i++)
            if (mt_specials_found(s, &v->list.items[i])) return true;
    if (v->type == MT_VALUE_MAP)
        for (size_t i = 0; i < v->map.n; i++)
            if (mt_specials_found(s, &v->map.pairs[i].value)) return true;
    return false;
}

void mt_specials_free(mt_specials *s)
{
    if (!s) return;
    mt_arena_free(&s->arena);
    mt_free(s);
}
