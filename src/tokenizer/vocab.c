#include "tokenizer/vocab.h"

#include "base/hash.h"

#include <string.h>

enum { MAX_TOKENS = 1 << 23, MAX_TOKEN_BYTES = 1 << 16 };

static uint32_t *find_slot(const mt_vocab *v, const char *s, size_t n)
{
    size_t mask = v->n_slots - 1, at = mt_hash_keyed(s, n) & mask;
    for (;; at = (at + 1) & mask) {
        if (!v->slots[at]) return &v->slots[at];
        const mt_vocab_token *t = &v->tokens[v->slots[at] - 1];
        if (t->n == n && !memcmp(t->s, s, n)) return &v->slots[at];
    }
}

static mt_rc rehash(mt_vocab *v, size_t n_slots, mt_err *err)
{
    uint32_t *slots = mt_calloc(n_slots, sizeof *slots);
    if (!slots) return mt_no_memory(err, "a vocabulary of %zu tokens", v->n);
    mt_free(v->slots);
    v->slots = slots;
    v->n_slots = n_slots;
    for (size_t i = 0; i < v->n; i++) *find_slot(v, v->tokens[i].s, v->tokens[i].n) = (uint32_t)i + 1;
    return MT_OK;
}

mt_rc mt_vocab_reserve(mt_vocab *v, size_t n, mt_err *err)
{
    if (n > MAX_TOKENS) return mt_fail(err, MT_ERANGE, "%zu tokens, at most %d are accepted", n, MAX_TOKENS);
    MT_TRY(mt_grow(&v->tokens, &v->cap, n, sizeof *v->tokens, err));
    size_t n_slots = v->n_slots ? v->n_slots : 64;
    while (n_slots < 2 * n) n_slots *= 2;
    return n_slots == v->n_slots ? MT_OK : rehash(v, n_slots, err);
}

mt_rc mt_vocab_add(mt_vocab *v, const char *s, size_t n, int64_t id, mt_err *err)
{
    if (id < 0 || id > INT32_MAX - 1)
        return mt_fail(err, MT_ERANGE, "the id of \"%.*s\" is %lld, outside 0..2^31-2", (int)(n < 40 ? n : 40), s, (long long)id);
    if (n > MAX_TOKEN_BYTES) return mt_fail(err, MT_ERANGE, "a token of %zu bytes, at most %d are accepted", n, MAX_TOKEN_BYTES);
    if (2 * (v->n + 1) > v->n_slots) MT_TRY(mt_vocab_reserve(v, v->n + v->n / 2 + 16, err));
    uint32_t *slot = find_slot(v, s, n);
    if (*slot && v->tokens[*slot - 1].id == (int32_t)id) return MT_OK;
    MT_TRY(mt_grow(&v->tokens, &v->cap, v->n + 1, sizeof *v->tokens, err));
    const char *copy = mt_arena_strndup(&v->arena, s, n);
    if (!copy) return mt_no_memory(err, "a vocabulary of %zu tokens", v->n);
    v->tokens[v->n++] = (mt_vocab_token){ .s = copy, .n = (uint32_t)n, .id = (int32_t)id };
    *slot = (uint32_t)v->n;
    if (n > v->longest) v->longest = n;
    return MT_OK;
}

mt_rc mt_vocab_finish(mt_vocab *v, const char *what, mt_err *err)
{
    size_t largest = 0, allowed = 16 * v->n + 65536;
    for (size_t i = 0; i < v->n; i++)
        if ((size_t)v->tokens[i].id > largest) largest = (size_t)v->tokens[i].id;
    if (largest > allowed) return mt_fail(err, MT_ERANGE, "%s: an id is %zu, but there are only %zu tokens", what, largest, v->n);
    mt_free(v->by_id);
    v->n_ids = v->n ? largest + 1 : 0;
    v->by_id = mt_calloc(v->n_ids, sizeof *v->by_id);
    if (!v->by_id) return mt_no_memory(err, "%zu token ids", v->n_ids);
    for (size_t i = 0; i < v->n; i++) v->by_id[v->tokens[i].id] = (uint32_t)i + 1;
    return MT_OK;
}

void mt_vocab_deinit(mt_vocab *v)
{
    mt_free(v->tokens);
    mt_free(v->slots);
    mt_free(v->by_id);
    mt_arena_free(&v->arena);
    *v = (mt_vocab){ 0 };
}

int32_t mt_vocab_id(const mt_vocab *v, const char *s, size_t n)
{
    if (!v->n) return -1;
    uint32_t slot = *find_slot(v, s, n);
    return slot ? v->tokens[slot - 1].id : -1;
}

const mt_vocab_token *mt_vocab_at(const mt_vocab *v, int64_t id)
{
    if (id < 0 || (size_t)id >= v->n_ids || !v->by_id[id]) return NULL;
    return &v->tokens[v->by_id[id] - 1];
}
