#include "base/yaml.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

/* A key of a map, or an anchor (map NULL).  An anchor is added after its node is complete, so no node can contain itself. */
typedef struct named {
    const mt_yaml *map;
    const char *name;    /* NULL: a free slot */
    const mt_yaml *node; /* the key's, or what the anchor stands for */
    int n_nodes;         /* an alias of it counts this many */
} named;

typedef struct reader {
    yaml_parser_t parser;
    mt_arena *arena;
    const char *name;
    named *names; /* keys and anchors by hash; a later anchor of the same name replaces the earlier */
    size_t n_names, n_slots;
    int n_nodes, depth;
} reader;

static mt_rc syntax_error(reader *r, mt_err *err)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return mt_no_memory(err, "the contents of %s", r->name);
    const char *problem = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_READER_ERROR) return mt_fail(err, MT_EFORMAT, "%s: byte %zu: %s", r->name, p->problem_offset, problem);
    char context[96] = "";
    if (p->context) snprintf(context, sizeof context, ", %s that starts in line %zu", p->context, p->context_mark.line + 1);
    bool tab = strstr(problem, "cannot start any token") || strstr(problem, "tab character");
    return mt_fail(err, MT_EFORMAT, "%s:%zu:%zu: %s%s%s", r->name, p->problem_mark.line + 1, p->problem_mark.column + 1, problem,
                   strstr(problem, "cannot start") ? "" : context,
                   tab ? " (indent with spaces: YAML does not allow tabs there)" : "");
}

static mt_rc next_event(reader *r, yaml_event_t *event, mt_err *err)
{
    if (!yaml_parser_parse(&r->parser, event)) return syntax_error(r, err);
    return MT_OK;
}

static mt_rc count_nodes(reader *r, int n, int line, mt_err *err)
{
    r->n_nodes += n; /* both are at most a little above the bound, so the sum cannot overflow */
    if (r->n_nodes > MT_YAML_MAX_NODES)
        return mt_fail(err, MT_EFORMAT, "%s:%d: more than %d values in one file (an alias counts as many as it stands for)",
                       r->name, line, MT_YAML_MAX_NODES);
    return MT_OK;
}

/* No type tag, or one of YAML's own scalar and collection tags. */
static mt_rc check_tag(reader *r, const yaml_char_t *tag, int line, bool *is_str, mt_err *err)
{
    static const char *const known[] = { "str", "int", "float", "bool", "null", "map", "seq" };
    static const char prefix[] = "tag:yaml.org,2002:";
    *is_str = false;
    if (!tag) return MT_OK;
    const char *t = (const char *)tag;
    if (strcmp(t, "!") == 0) return *is_str = true, MT_OK;
    if (strncmp(t, prefix, sizeof prefix - 1) == 0)
        for (size_t i = 0; i < MT_COUNT(known); i++)
            if (strcmp(t + sizeof prefix - 1, known[i]) == 0) return *is_str = i == 0, MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "%s:%d: the tag %.60s has no meaning here; remove it", r->name, line, t);
}

/* The slot of a key of this map (of an anchor: NULL), or the free one where it belongs; NULL: no slots yet. */
static named *slot_of(const reader *r, const mt_yaml *map, const char *name)
{
    if (!r->n_slots) return NULL;
    size_t mask = r->n_slots - 1;
    uint64_t hash = mt_hash_keyed(name, strlen(name)) ^ mt_hash_keyed(&map, sizeof map);
    named *at = &r->names[hash & mask];
    while (at->name && (at->map != map || strcmp(at->name, name) != 0)) at = &r->names[(size_t)(at - r->names + 1) & mask];
    return at;
}

static const named *find_name(const reader *r, const mt_yaml *map, const char *name)
{
    const named *at = slot_of(r, map, name);
    return at && at->name ? at : NULL;
}

static mt_rc add_name(reader *r, named entry, mt_err *err)
{
    if (2 * (r->n_names + 1) > r->n_slots) {
        reader wider = { .n_slots = r->n_slots ? 2 * r->n_slots : 64 };
        wider.names = mt_calloc(wider.n_slots, sizeof *wider.names);
        if (!wider.names) return mt_no_memory(err, "the contents of %s", r->name);
        for (size_t i = 0; i < r->n_slots; i++)
            if (r->names[i].name) *slot_of(&wider, r->names[i].map, r->names[i].name) = r->names[i];
        mt_free(r->names);
        r->names = wider.names;
        r->n_slots = wider.n_slots;
    }
    named *at = slot_of(r, entry.map, entry.name);
    r->n_names += !at->name;
    *at = entry;
    return MT_OK;
}

static mt_rc find_anchor(reader *r, const char *name, int line, const mt_yaml **out, mt_err *err)
{
    const named *a = find_name(r, NULL, name);
    if (!a)
        return mt_fail(err, MT_EFORMAT, "%s:%d: *%.60s refers to an anchor that is not complete before this line", r->name, line,
                       name);
    *out = a->node;
    return count_nodes(r, a->n_nodes, line, err);
}

static mt_rc yaml_append(reader *r, mt_yaml_item ***tail, const mt_yaml *key, const mt_yaml *value, mt_err *err)
{
    mt_yaml_item *item = mt_arena_alloc(r->arena, sizeof *item);
    if (!item) return mt_no_memory(err, "the contents of %s", r->name);
    *item = (mt_yaml_item){ key, value, NULL };
    **tail = item;
    *tail = &item->next;
    return MT_OK;
}

static bool is_merge(const mt_yaml *key) { return key && !key->quoted && strcmp(key->text, "<<") == 0; }

static mt_rc merge_map(reader *r, mt_yaml *map, mt_yaml_item ***tail, const mt_yaml *from, int line, mt_err *err)
{
    if (from->kind != MT_YAML_MAP)
        return mt_fail(err, MT_EFORMAT, "%s:%d: << takes a section (<<: *name) or a list of sections", r->name, line);
    for (const mt_yaml_item *it = from->items; it; it = it->next) {
        MT_TRY(count_nodes(r, 1, line, err));           /* keys that lose count too: looking at them is work */
        if (find_name(r, map, it->key->text)) continue; /* what the map says itself, or an earlier merge, wins */
        MT_TRY(add_name(r, (named){ map, it->key->text, it->key, 0 }, err));
        MT_TRY(yaml_append(r, tail, it->key, it->value, err));
    }
    return MT_OK;
}

/* Replace `<<` items by what they refer to. */
static mt_rc resolve_merges(reader *r, mt_yaml *map, mt_err *err)
{
    mt_yaml_item *merges = NULL, **merge_tail = &merges, **tail = &map->items;
    while (*tail) {
        mt_yaml_item *it = *tail;
        if (is_merge(it->key)) {
            *tail = it->next;
            it->next = NULL;
            *merge_tail = it;
            merge_tail = &it->next;
        } else
            tail = &it->next;
    }
    for (const mt_yaml_item *m = merges; m; m = m->next) {
        if (m->value->kind != MT_YAML_LIST) {
            MT_TRY(merge_map(r, map, &tail, m->value, m->key->line, err));
            continue;
        }
        for (const mt_yaml_item *it = m->value->items; it; it = it->next)
            MT_TRY(merge_map(r, map, &tail, it->value, m->key->line, err));
    }
    return MT_OK;
}

static mt_rc read_node(reader *r, yaml_event_t *event, const mt_yaml **out, mt_err *err);

static mt_rc read_key(reader *r, yaml_event_t *event, const mt_yaml *map, const mt_yaml **key, mt_err *err)
{
    MT_TRY(read_node(r, event, key, err));
    if ((*key)->kind != MT_YAML_SCALAR)
        return mt_fail(err, MT_EFORMAT, "%s:%d: a key must be a word, not a list or a section", r->name, (*key)->line);
    const named *twin = find_name(r, map, (*key)->text);
    if (twin && !is_merge(*key))
        return mt_fail(err, MT_EFORMAT, "%s:%d: \"%.60s\" is given twice; the first is in line %d", r->name, (*key)->line,
                       (*key)->text, twin->node->line);
    return twin ? MT_OK : add_name(r, (named){ map, (*key)->text, *key, 0 }, err);
}

static mt_rc read_children(reader *r, mt_yaml *node, yaml_event_type_t end, mt_err *err)
{
    mt_yaml_item **tail = &node->items;
    for (;;) {
        yaml_event_t event;
        const mt_yaml *key = NULL, *value;
        MT_TRY(next_event(r, &event, err));
        if (event.type == end) {
            yaml_event_delete(&event);
            return node->kind == MT_YAML_MAP ? resolve_merges(r, node, err) : MT_OK;
        }
        if (node->kind == MT_YAML_MAP) {
            MT_TRY(read_key(r, &event, node, &key, err));
            MT_TRY(next_event(r, &event, err));
        }
        MT_TRY(read_node(r, &event, &value, err));
        MT_TRY(yaml_append(r, &tail, key, value, err));
    }
}

static mt_rc read_scalar(reader *r, const yaml_event_t *event, mt_yaml *node, mt_err *err)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    bool is_str;
    MT_TRY(check_tag(r, event->data.scalar.tag, node->line, &is_str, err));
    if (memchr(text, 0, n)) return mt_fail(err, MT_EFORMAT, "%s:%d: a NUL byte inside a text", r->name, node->line);
    node->kind = MT_YAML_SCALAR;
    node->quoted = is_str || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = mt_arena_strndup(r->arena, text, n);
    return node->text ? MT_OK : mt_no_memory(err, "the contents of %s", r->name);
}

static mt_rc read_collection(reader *r, const yaml_event_t *event, mt_yaml *node, mt_err *err)
{
    bool map = event->type == YAML_MAPPING_START_EVENT, is_str;
    MT_TRY(check_tag(r, map ? event->data.mapping_start.tag : event->data.sequence_start.tag, node->line, &is_str, err));
    if (++r->depth > MT_YAML_MAX_DEPTH)
        return mt_fail(err, MT_EFORMAT, "%s:%d: nested deeper than %d levels", r->name, node->line, MT_YAML_MAX_DEPTH);
    node->kind = map ? MT_YAML_MAP : MT_YAML_LIST;
    MT_TRY(read_children(r, node, map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, err));
    r->depth--;
    return MT_OK;
}

static const char *anchor_name(const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_ALIAS_EVENT: return (const char *)e->data.alias.anchor;
    case YAML_SCALAR_EVENT: return (const char *)e->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT: return (const char *)e->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT: return (const char *)e->data.mapping_start.anchor;
    default: return NULL;
    }
}

/* The node that starts with `event`, which is taken over and released on every path. */
static mt_rc read_node(reader *r, yaml_event_t *event, const mt_yaml **out, mt_err *err)
{
    int line = (int)event->start_mark.line + 1;
    const char *name = anchor_name(event), *kept = NULL;
    int before = r->n_nodes;
    mt_yaml *node = mt_arena_calloc(r->arena, 1, sizeof *node);
    mt_rc rc = node ? count_nodes(r, 1, line, err) : mt_no_memory(err, "the contents of %s", r->name);
    if (!rc && name && !(kept = mt_arena_strndup(r->arena, name, strlen(name))))
        rc = mt_no_memory(err, "the contents of %s", r->name);
    if (rc) goto done;
    node->line = line;
    *out = node;
    if (event->type == YAML_ALIAS_EVENT)
        rc = find_anchor(r, kept, line, out, err);
    else if (event->type == YAML_SCALAR_EVENT)
        rc = read_scalar(r, event, node, err);
    else
        rc = read_collection(r, event, node, err);
    if (!rc && kept && event->type != YAML_ALIAS_EVENT) rc = add_name(r, (named){ NULL, kept, node, r->n_nodes - before }, err);
done:
    yaml_event_delete(event);
    return rc;
}

/* Stream start, at most one document, stream end. */
static mt_rc read_stream(reader *r, const mt_yaml **out, mt_err *err)
{
    for (int n_documents = 0;;) {
        yaml_event_t event;
        MT_TRY(next_event(r, &event, err));
        yaml_event_type_t type = event.type;
        int line = (int)event.start_mark.line + 1;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT) return MT_OK;
        if (type != YAML_DOCUMENT_START_EVENT) continue; /* stream start, document end */
        if (n_documents++)
            return mt_fail(err, MT_EFORMAT, "%s:%d: a second document starts here; keep one per file", r->name, line);
        MT_TRY(next_event(r, &event, err));
        MT_TRY(read_node(r, &event, out, err));
    }
}

mt_rc mt_yaml_parse(const mt_yaml **out, mt_arena *arena, const char *text, size_t n, const char *name, mt_err *err)
{
    *out = NULL;
    size_t bad_at;
    if (n > MT_YAML_MAX_BYTES)
        return mt_fail(err, MT_EFORMAT, "%s: %zu bytes; a configuration has at most %d", name, n, MT_YAML_MAX_BYTES);
    if (!mt_utf8_valid(text, n, &bad_at)) return mt_fail(err, MT_EFORMAT, "%s: byte %zu is not valid UTF-8", name, bad_at);
    size_t mark = mt_utf8_mark(text, n); /* libyaml would count it as a column of the first line */
    reader r = { .arena = arena, .name = name };
    if (!yaml_parser_initialize(&r.parser)) return mt_no_memory(err, "the contents of %s", r.name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text + mark, n - mark);
    mt_rc rc = read_stream(&r, out, err);
    yaml_parser_delete(&r.parser);
    mt_free(r.names);
    if (rc)
        *out = NULL;
    else if (*out && (*out)->kind == MT_YAML_SCALAR && mt_yaml_is_null(*out))
        *out = NULL;
    return rc;
}

bool mt_yaml_is_null(const mt_yaml *node)
{
    if (node->kind != MT_YAML_SCALAR || node->quoted) return false;
    const char *t = node->text;
    return !*t || strcmp(t, "~") == 0 || strcmp(t, "null") == 0 || strcmp(t, "Null") == 0 || strcmp(t, "NULL") == 0;
}

bool mt_yaml_bool(const char *text, bool *out)
{
    static const char *const words[] = { "false", "true", "no", "yes", "off", "on" };
    for (size_t i = 0; i < MT_COUNT(words); i++)
        if (strcasecmp(text, words[i]) == 0) return *out = i % 2, true;
    return false;
}

bool mt_yaml_number(const char *text, double *out)
{
    char digits[64];
    size_t n = 0;
    const char *p = text + (*text == '+' || *text == '-');
    if (strcasecmp(p, ".inf") == 0) return *out = *text == '-' ? -INFINITY : INFINITY, true;
    for (const char *c = text; *c; c++) {
        if (*c == '_' && n && c[1]) continue;
        if (!strchr("0123456789+-.eE", *c) || n + 1 >= sizeof digits) return false;
        digits[n++] = *c;
    }
    digits[n] = '\0';
    char *end;
    *out = strtod(digits, &end);
    return n && !*end && isfinite(*out);
}

void mt_yaml_describe(const mt_yaml *node, char out[96])
{
    if (node->kind == MT_YAML_SCALAR) {
        size_t n = strlen(node->text), cut = n;
        if (n > 60)
            for (cut = 60; cut && ((unsigned char)node->text[cut] & 0xc0) == 0x80;) cut--;
        snprintf(out, 96, "\"%.*s%s\"", (int)cut, node->text, cut < n ? "..." : "");
    } else
        snprintf(out, 96, "%s", node->kind == MT_YAML_LIST ? "a list" : "a section");
}
