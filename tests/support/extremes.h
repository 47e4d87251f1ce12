/* extremes.h - configurations in which one key has an extreme value: the config.json of every golden model, and the keys of all
 * of them.  A key that belongs to another family counts, too: many are read by several. */
#ifndef MT_TEST_EXTREMES_H
#define MT_TEST_EXTREMES_H

#include "base/json.h"
#include "ckpt/outdir.h"

#include <stdio.h>
#include <string.h>

static const char *const extreme_values[] = { "null",
                                              "true",
                                              "false",
                                              "0",
                                              "-1",
                                              "1",
                                              "3",
                                              "2147483648",
                                              "4611686018427387904",
                                              "9223372036854775807",
                                              "-9223372036854775808",
                                              "18446744073709551616",
                                              "1e-320",
                                              "1e96",
                                              "NaN",
                                              "-Infinity",
                                              "\"\"",
                                              "\"x\"",
                                              "[]",
                                              "[-9223372036854775808]",
                                              "{}",
                                              "{\"rope_type\": \"yarn\", \"factor\": 1e-9}" };

enum { EXTREMES_DOCS = 256, EXTREMES_KEYS = 512, EXTREMES_MAPS = 16 };

typedef struct extremes {
    const mt_value *docs[EXTREMES_DOCS];
    size_t n_docs;
    const char *keys[EXTREMES_KEYS]; /* of any map of any document */
    size_t n_keys;
} extremes;

static inline void extremes_learn(extremes *e, const mt_value *map)
{
    for (size_t i = 0; i < mt_value_pairs(map); i++) {
        size_t k = 0;
        while (k < e->n_keys && strcmp(e->keys[k], map->map.pairs[i].key) != 0) k++;
        if (k == e->n_keys && k < EXTREMES_KEYS) e->keys[e->n_keys++] = map->map.pairs[i].key;
        extremes_learn(e, &map->map.pairs[i].value);
    }
}

static inline void extremes_close(extremes *e)
{
    for (size_t i = 0; i < e->n_docs; i++) mt_json_free(e->docs[i]);
    *e = (extremes){ 0 };
}

/* models: the folder of golden models. */
static inline mt_rc extremes_open(extremes *e, const char *models, mt_err *err)
{
    mt_dir_names names;
    mt_rc rc = mt_dir_list(&names, models, err);
    *e = (extremes){ 0 };
    if (rc) return rc;
    for (size_t i = 0; i < names.n && !rc && e->n_docs < EXTREMES_DOCS; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s/config.json", models, names.items[i]);
        if (!mt_json_read(&e->docs[e->n_docs], path, err)) extremes_learn(e, e->docs[e->n_docs++]);
    }
    mt_dir_names_free(&names);
    return e->n_docs ? MT_OK : mt_fail(err, MT_ENOENT, "%s has no models", models);
}

/* The document's maps, itself first; returns their number. */
static inline size_t extremes_maps(const mt_value *v, const mt_value *maps[EXTREMES_MAPS], size_t n)
{
    if (mt_value_has(v, MT_VALUE_MAP) && n < EXTREMES_MAPS) maps[n++] = v;
    for (size_t i = 0; i < mt_value_pairs(v); i++) n = extremes_maps(&v->map.pairs[i].value, maps, n);
    return n;
}

/* The document with another value at a key of one of its maps. */
static inline void extremes_write(mt_str *out, const mt_value *v, const mt_value *map, const char *key, const char *value)
{
    if (!mt_value_has(v, MT_VALUE_MAP)) {
        mt_value_write_json(out, v);
        return;
    }
    const char *comma = "";
    mt_str_puts(out, "{");
    for (size_t i = 0; i < mt_value_pairs(v); i++) {
        const mt_pair *p = &v->map.pairs[i];
        if (v == map && strcmp(p->key, key) == 0) continue;
        mt_str_printf(out, "%s\"%s\": ", comma, p->key);
        extremes_write(out, &p->value, map, key, value);
        comma = ", ";
    }
    if (v == map) mt_str_printf(out, "%s\"%s\": %s", comma, key, value);
    mt_str_puts(out, "}");
}

#endif
