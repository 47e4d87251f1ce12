#include "tokenizer/charsmap.h"

#include "base/le.h"

#include <string.h>
#include <utf8proc.h>

enum { MAX_GRAPHEME_BYTES = 6 }; /* clusters this long or longer are taken apart */

mt_rc mt_charsmap_init(mt_charsmap *map, const char *blob, size_t n, const char *what, mt_err *err)
{
    *map = (mt_charsmap){ 0 };
    if (n < 4) return mt_fail(err, MT_EFORMAT, "%s: the character map has %zu bytes, at least 4 were expected", what, n);
    uint32_t trie_bytes = mt__le32(blob);
    if (trie_bytes % 4 || trie_bytes > n - 4)
        return mt_fail(err, MT_EFORMAT, "%s: the character map says its trie has %u bytes, %zu are there", what, trie_bytes,
                       n - 4);
    map->n_units = trie_bytes / 4;
    map->n_strings = n - 4 - trie_bytes;
    map->units = mt_malloc(trie_bytes);
    map->strings = mt_strndup(blob + 4 + trie_bytes, map->n_strings);
    if (!map->units || !map->strings) {
        mt_charsmap_deinit(map);
        return mt_no_memory(err, "a character map");
    }
    for (size_t i = 0; i < map->n_units; i++) map->units[i] = mt__le32(blob + 4 + 4 * i);
    if (mt_utf8_valid(map->strings, map->n_strings, NULL)) return MT_OK;
    mt_charsmap_deinit(map);
    return mt_fail(err, MT_EFORMAT, "%s: the character map's replacements are not valid UTF-8", what);
}

void mt_charsmap_deinit(mt_charsmap *map)
{
    mt_free(map->units);
    mt_free(map->strings);
    *map = (mt_charsmap){ 0 };
}

/* How a unit of a double-array trie is packed (darts-clone's layout). */
static uint32_t unit_offset(uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); }
static uint32_t unit_label(uint32_t u) { return u & ((1u << 31) | 0xff); }
static bool unit_has_leaf(uint32_t u) { return u >> 8 & 1; }
static uint32_t unit_value(uint32_t u) { return u & 0x7fffffffu; }

/* Walk s; for each entry it starts with remember bytes and value, the first only if `shortest`. */
static size_t charsmap_walk(const mt_charsmap *map, const char *s, size_t n, bool shortest, uint32_t *value)
{
    size_t used = 0;
    if (!map->n_units) return 0;
    uint32_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)s[i];
        at ^= byte;
        if (!byte || at >= map->n_units || unit_label(map->units[at]) != byte) break;
        uint32_t unit = map->units[at];
        at ^= unit_offset(unit);
        if (at >= map->n_units) break;
        if (!unit_has_leaf(unit)) continue;
        used = i + 1;
        *value = unit_value(map->units[at]);
        if (shortest) break;
    }
    return used;
}

static size_t lookup(const mt_charsmap *map, const char *s, size_t n, bool shortest, const char **to, size_t *n_to)
{
    uint32_t value = 0;
    size_t used = charsmap_walk(map, s, n, shortest, &value);
    if (!used || value > map->n_strings) return 0;
    /* An offset inside a character can only come from a damaged file; it would make invalid UTF-8. */
    if (value < map->n_strings && ((unsigned char)map->strings[value] & 0xc0) == 0x80) return 0;
    *to = map->strings + value;
    *n_to = strlen(*to);
    return used;
}

size_t mt_charsmap_longest(const mt_charsmap *map, const char *s, size_t n, const char **to, size_t *n_to)
{
    size_t used = lookup(map, s, n, false, to, n_to);
    /* An entry must end on a character, or the rest would not be UTF-8. */
    return used < n && ((unsigned char)s[used] & 0xc0) == 0x80 ? 0 : used;
}

static size_t grapheme_end(const mt_view *in, size_t i)
{
    utf8proc_int32_t state = 0;
    uint32_t cp, next;
    i += mt_cp_at(in->s, in->n, i, &cp);
    while (i < in->n) {
        size_t len = mt_cp_at(in->s, in->n, i, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state)) break;
        cp = next;
        i += len;
    }
    return i;
}

static bool replace(const mt_charsmap *map, const mt_view *in, size_t start, size_t n, mt_text *out)
{
    const char *to;
    size_t n_to;
    if (!lookup(map, in->s + start, n, true, &to, &n_to)) return false; /* the shortest entry */
    mt_text_put(out, to, n_to, mt_view_lo(in, start), mt_view_hi(in, start + n - 1));
    return true;
}

void mt_charsmap_apply(const mt_charsmap *map, const mt_view *in, mt_text *out)
{
    for (size_t i = 0; i < in->n;) {
        size_t end = grapheme_end(in, i);
        if (end - i < MAX_GRAPHEME_BYTES && replace(map, in, i, end - i, out)) i = end;
        while (i < end) {
            uint32_t cp;
            size_t len = mt_cp_at(in->s, in->n, i, &cp);
            if (!replace(map, in, i, len, out)) mt_text_copy(out, in, i, len);
            i += len;
        }
    }
}
