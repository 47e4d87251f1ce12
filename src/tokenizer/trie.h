/* trie.h - the longest, or every, entry of a set of byte strings that a text begins with.
 *
 * Build it from entries in any order (equal keys: the later wins); read-only afterwards.  Children of a node are contiguous,
 * sorted by byte, so the whole trie is two flat arrays. */
#ifndef MT_TOKENIZER_TRIE_H
#define MT_TOKENIZER_TRIE_H

#include "base/mem.h"

typedef struct mt_trie_key {
    const char *s; /* borrowed while building */
    size_t n;      /* at least 1: an empty key would match everywhere */
    int32_t value; /* 0 or more */
} mt_trie_key;

typedef struct mt_trie_node {
    uint32_t child; /* index of the first child */
    uint16_t n_children;
    uint8_t byte;  /* on the edge that leads here */
    int32_t value; /* -1: no key ends here */
} mt_trie_node;

typedef struct mt_trie {
    mt_trie_node *nodes; /* [0] is the root */
    size_t n, cap;
    uint32_t root[256]; /* the root's child for each first byte, 0: none */
} mt_trie;

/* Sorts keys in place. */
mt_rc mt_trie_build(mt_trie *t, mt_trie_key *keys, size_t n, mt_err *err);
void mt_trie_deinit(mt_trie *t);

/* One step down from node `at` (0 is the root); 0 if the edge does not exist. */
static inline uint32_t mt_trie_step(const mt_trie *t, uint32_t at, uint8_t byte)
{
    if (!at) return t->root[byte];
    const mt_trie_node *node = &t->nodes[at];
    uint32_t lo = node->child, hi = lo + node->n_children;
    while (hi - lo > 8) {
        uint32_t mid = (lo + hi) / 2;
        if (t->nodes[mid].byte <= byte)
            lo = mid;
        else
            hi = mid;
    }
    for (; lo < hi; lo++)
        if (t->nodes[lo].byte == byte) return lo;
    return 0;
}

/* Bytes of the longest key that s starts with, 0 if none; its value in *value. */
size_t mt_trie_longest(const mt_trie *t, const char *s, size_t n, int32_t *value);

#endif
