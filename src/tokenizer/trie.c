#include "tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 26 };

static int by_bytes(const void *a, const void *b)
{
    const mt_trie_key *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Keys [first, last) share their first `depth` bytes and lead to one node. */
typedef struct job {
    size_t first, last, depth;
    uint32_t node;
} job;

typedef struct builder {
    mt_trie *t;
    const mt_trie_key *keys;
    job *queue;
    size_t head, n, cap;
} builder;

static mt_rc add_child(builder *b, const job *j, size_t first, size_t last, mt_err *err)
{
    mt_trie *t = b->t;
    if (t->n >= MAX_NODES) return mt_fail(err, MT_ERANGE, "a set of strings needs more than %d nodes", MAX_NODES);
    MT_TRY(mt_grow(&t->nodes, &t->cap, t->n + 1, sizeof *t->nodes, err));
    MT_TRY(mt_grow(&b->queue, &b->cap, b->n + 1, sizeof *b->queue, err));
    t->nodes[t->n] = (mt_trie_node){ .byte = (uint8_t)b->keys[first].s[j->depth], .value = -1 };
    b->queue[b->n++] = (job){ first, last, j->depth + 1, (uint32_t)t->n };
    t->n++;
    t->nodes[j->node].n_children++;
    return MT_OK;
}

static mt_rc expand(builder *b, job j, mt_err *err)
{
    const mt_trie_key *keys = b->keys;
    while (j.first < j.last && keys[j.first].n == j.depth) b->t->nodes[j.node].value = keys[j.first++].value;
    b->t->nodes[j.node].child = (uint32_t)b->t->n;
    for (size_t i = j.first; i < j.last;) {
        size_t end = i + 1;
        while (end < j.last && keys[end].s[j.depth] == keys[i].s[j.depth]) end++;
        MT_TRY(add_child(b, &j, i, end, err));
        i = end;
    }
    return MT_OK;
}

mt_rc mt_trie_build(mt_trie *t, mt_trie_key *keys, size_t n, mt_err *err)
{
    *t = (mt_trie){ 0 };
    if (n) qsort(keys, n, sizeof *keys, by_bytes);
    builder b = { .t = t, .keys = keys };
    mt_rc rc = mt_grow(&t->nodes, &t->cap, 1, sizeof *t->nodes, err);
    if (!rc) t->nodes[t->n++] = (mt_trie_node){ .value = -1 };
    if (!rc) rc = expand(&b, (job){ 0, n, 0, 0 }, err);
    while (!rc && b.head < b.n) rc = expand(&b, b.queue[b.head++], err);
    mt_free(b.queue);
    if (rc) {
        mt_trie_deinit(t);
        return rc;
    }
    for (uint32_t i = 0; i < t->nodes[0].n_children; i++) t->root[t->nodes[t->nodes[0].child + i].byte] = t->nodes[0].child + i;
    return MT_OK;
}

void mt_trie_deinit(mt_trie *t)
{
    mt_free(t->nodes);
    *t = (mt_trie){ 0 };
}

size_t mt_trie_longest(const mt_trie *t, const char *s, size_t n, int32_t *value)
{
    size_t best = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at = mt_trie_step(t, at, (uint8_t)s[i]);
        if (!at) break;
        if (t->nodes[at].value < 0) continue;
        best = i + 1;
        *value = t->nodes[at].value;
    }
    return best;
}
