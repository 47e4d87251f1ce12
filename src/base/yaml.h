/* yaml.h - one YAML document as a tree that remembers where everything was written.
 *
 * libyaml reads; this keeps kinds, text and lines, and decides nothing about types: whether `1e-5` is a number is up to the
 * caller, who knows the expected type.  Anchors, aliases and merge keys (`<<`) are resolved here; a map's items are those after
 * merging.  Keys are scalars and unique.  Files are untrusted: size, depth and number of nodes are bounded, tags other than the
 * plain ones are refused.  An alias counts as many nodes as it stands for, so a walk over the whole tree visits no more nodes
 * than the bound. */
#ifndef MT_BASE_YAML_H
#define MT_BASE_YAML_H

#include "base/arena.h"

enum { MT_YAML_MAX_BYTES = 256 << 10, MT_YAML_MAX_DEPTH = 16, MT_YAML_MAX_NODES = 10000 };

typedef enum mt_yaml_kind { MT_YAML_SCALAR, MT_YAML_LIST, MT_YAML_MAP } mt_yaml_kind;

typedef struct mt_yaml mt_yaml;
typedef struct mt_yaml_item mt_yaml_item;

struct mt_yaml {
    mt_yaml_kind kind;
    bool quoted;         /* a scalar in quotes, a block scalar or tagged !!str: always text */
    int line;            /* from 1 */
    const char *text;    /* scalar: NUL-terminated valid UTF-8 without NULs inside */
    mt_yaml_item *items; /* list and map, in order */
};

struct mt_yaml_item {
    const mt_yaml *key; /* NULL in a list */
    const mt_yaml *value;
    mt_yaml_item *next;
};

/* Everything lives in the arena.  `name` is the file in messages ("name:line:column: ...").  *out is NULL
 * for a document that is empty. */
mt_rc mt_yaml_parse(const mt_yaml **out, mt_arena *arena, const char *text, size_t n, const char *name, mt_err *err);

/* A plain scalar that means nothing was given: null, ~ or nothing at all. */
bool mt_yaml_is_null(const mt_yaml *node);
/* true/false, yes/no, on/off in any of YAML's spellings. */
bool mt_yaml_bool(const char *text, bool *out);
/* A decimal number: 12, -0.5, 1e-5, 1_000, .inf.  NaN and hexadecimal are not numbers here. */
bool mt_yaml_number(const char *text, double *out);

/* "a list", "a section", or the scalar's text in quotes, cut after 60 bytes. */
void mt_yaml_describe(const mt_yaml *node, char out[96]);

#endif
