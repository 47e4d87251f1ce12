/* parquet_schema.c - the flat list of schema elements becomes a tree of values.
 *
 * Lists are written in three levels (group (LIST) { repeated group list { element } }) and, by old writers, in two; the rules to
 * distinguish them are in parquet-format's LogicalTypes.md.  A repeated field outside a LIST is a list, too. */
#include "base/utf8.h"
#include "data/parquet.h"

#include <string.h>

/* A list of numbers, the most that is written around one column, takes three elements. */
enum { MAX_DEPTH = 48, MAX_LEAVES = 10000, MAX_ELEMENTS = 4 * MAX_LEAVES };

typedef struct builder {
    const pq_footer *footer;
    const mt_record_bytes *src;
    mt_arena *arena;
    size_t next;       /* element to read */
    size_t n_promised; /* elements that have a place: the root, and the fields of all groups so far */
    pq_schema *schema;
    size_t cap_leaves;
    int depth;
    mt_err *err;
} builder;

typedef struct levels {
    int def, rep;
} levels;

static mt_rc parquet_schema_bad(const builder *b, const char *message)
{
    return mt_fail(b->err, MT_EFORMAT, "%s: Parquet schema: %s", b->src->path, message);
}

static mt_rc build(builder *b, pq_node *out, levels at);

/* Levels inside a value of this repetition; the null, if it can be one, is the level below. */
static levels below(levels at, int repetition)
{
    return (levels){ at.def + (repetition != PQ_REQUIRED), at.rep + (repetition == PQ_REPEATED) };
}

static bool is_group(const pq_element *e) { return e->type < 0; }

static const pq_element *parquet_schema_peek(const builder *b, size_t ahead)
{
    return ahead < b->footer->n_elements - b->next ? &b->footer->elements[b->next + ahead] : NULL;
}

/* What a leaf's values mean, where its physical type allows that meaning. */
static mt_rc leaf_scalar(const builder *b, const pq_element *e, mt_scalar *out)
{
    static const mt_scalar_kind plain[PQ_TYPES] = {
        [PQ_BOOLEAN] = MT_SCALAR_BOOL, [PQ_INT32] = MT_SCALAR_INT,        [PQ_INT64] = MT_SCALAR_INT,
        [PQ_INT96] = MT_SCALAR_INT96,  [PQ_FLOAT] = MT_SCALAR_FLOAT,      [PQ_DOUBLE] = MT_SCALAR_FLOAT,
        [PQ_FIXED] = MT_SCALAR_BYTES,  [PQ_BYTE_ARRAY] = MT_SCALAR_BYTES,
    };
    *out = (mt_scalar){ .kind = plain[e->type] };
    if (e->note != PQ_NOTE_SCALAR) return MT_OK;
    bool whole = e->type == PQ_INT32 || e->type == PQ_INT64, bytes = e->type == PQ_FIXED || e->type == PQ_BYTE_ARRAY;
    bool fits = false;
    switch (e->scalar.kind) {
    case MT_SCALAR_DECIMAL: fits = whole || bytes; break;
    case MT_SCALAR_TIME:
    case MT_SCALAR_TIMESTAMP: fits = whole && e->scalar.per_second; break;
    case MT_SCALAR_INT:
    case MT_SCALAR_UINT:
    case MT_SCALAR_DATE: fits = whole; break;
    case MT_SCALAR_HALF: fits = e->type == PQ_FIXED && e->type_length == 2; break;
    case MT_SCALAR_UUID: fits = e->type == PQ_FIXED && e->type_length == 16; break;
    case MT_SCALAR_BYTES: fits = bytes; break;
    default: break;
    }
    if (!fits) return parquet_schema_bad(b, "a column's logical type does not fit its physical one");
    *out = e->scalar;
    out->big_endian = bytes;
    return MT_OK;
}

static mt_rc build_leaf(builder *b, const pq_element *e, pq_node *out, levels in)
{
    pq_schema *s = b->schema;
    if (e->type >= PQ_TYPES) return parquet_schema_bad(b, "an unknown physical type");
    if (e->type == PQ_FIXED && (e->type_length <= 0 || e->type_length > 1 << 20))
        return parquet_schema_bad(b, "a fixed-length column without a sane length");
    if (s->n_leaves >= MAX_LEAVES) return parquet_schema_bad(b, "more than 10000 columns");
    out->kind = PQ_LEAF;
    out->type = (pq_type)e->type;
    out->width = e->type == PQ_FIXED ? (size_t)e->type_length : 0;
    out->max_def = in.def;
    out->max_rep = in.rep;
    out->n_leaves = 1;
    MT_TRY(leaf_scalar(b, e, &out->scalar));
    MT_TRY(mt_grow(&s->leaves, &b->cap_leaves, s->n_leaves + 1, sizeof *s->leaves, b->err));
    s->leaves[s->n_leaves++] = out;
    return MT_OK;
}

static mt_rc build_fields(builder *b, const pq_element *e, pq_node *out, levels in)
{
    out->kind = PQ_STRUCT;
    /* An element is a field of one group only, so all groups together have no more fields than there are elements: groups
     * that each claim what follows would take much memory for a small file. */
    if (e->n_children <= 0 || (uint64_t)e->n_children > b->footer->n_elements - b->n_promised)
        return parquet_schema_bad(b, "a group without its fields");
    out->n_children = (size_t)e->n_children;
    b->n_promised += out->n_children;
    out->children = mt_arena_calloc(b->arena, out->n_children, sizeof *out->children);
    if (!out->children) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    for (size_t i = 0; i < out->n_children; i++) MT_TRY(build(b, &out->children[i], in));
    return MT_OK;
}

/* The repeated group is the item itself, not a wrapper around it (two-level lists). */
static bool is_item_itself(const pq_element *repeated, const char *list_name)
{
    if (!is_group(repeated) || repeated->n_children != 1) return true;
    size_t n = strlen(list_name);
    return strcmp(repeated->name, "array") == 0 ||
           (strncmp(repeated->name, list_name, n) == 0 && strcmp(repeated->name + n, "_tuple") == 0);
}

static mt_rc name_node(builder *b, pq_node *out, const char *name)
{
    out->name_n = strlen(name);
    if (!mt_utf8_valid(name, out->name_n, NULL)) return parquet_schema_bad(b, "a column name that is not UTF-8");
    out->name = mt_arena_strndup(b->arena, name, out->name_n); /* the footer's copy does not live as long */
    return out->name ? MT_OK : mt_no_memory(b->err, "the schema of %s", b->src->path);
}

/* The value of one element, its repetition already accounted for in `in`. */
static mt_rc build_content(builder *b, const pq_element *e, pq_node *out, levels in)
{
    if (!is_group(e)) return build_leaf(b, e, out, in);
    return build_fields(b, e, out, in);
}

/* A node for the item of a list; items are never null by themselves here. */
static mt_rc build_item(builder *b, const pq_element *repeated, pq_node *item, levels in)
{
    item->first_leaf = b->schema->n_leaves;
    item->def_present = in.def;
    MT_TRY(name_node(b, item, repeated->name));
    MT_TRY(build_content(b, repeated, item, in));
    item->n_leaves = b->schema->n_leaves - item->first_leaf;
    return MT_OK;
}

static mt_rc build_list(builder *b, const pq_element *e, pq_node *out, levels in)
{
    const pq_element *repeated = parquet_schema_peek(b, 0);
    levels inside = below(in, PQ_REPEATED);
    b->next++;
    out->kind = PQ_LIST;
    out->def_item = inside.def;
    out->rep_item = inside.rep;
    out->n_children = 1;
    out->children = mt_arena_calloc(b->arena, 1, sizeof *out->children);
    if (!out->children) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    if (is_item_itself(repeated, e->name)) return build_item(b, repeated, out->children, inside);
    return build(b, out->children, inside);
}

static mt_rc build_map(builder *b, pq_node *out, levels in)
{
    levels inside = below(in, PQ_REPEATED);
    b->next++;
    out->kind = PQ_MAP;
    out->def_item = inside.def;
    out->rep_item = inside.rep;
    out->n_children = 2;
    out->children = mt_arena_calloc(b->arena, 2, sizeof *out->children);
    if (!out->children) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    MT_TRY(build(b, &out->children[0], inside));
    return build(b, &out->children[1], inside);
}

static bool holds_repeated(const builder *b, const pq_element *e)
{
    const pq_element *child = parquet_schema_peek(b, 0);
    return is_group(e) && e->n_children == 1 && child && child->repetition == PQ_REPEATED;
}

static mt_rc build_annotated(builder *b, const pq_element *e, pq_node *out, levels in)
{
    if (e->note == PQ_NOTE_LIST && holds_repeated(b, e)) return build_list(b, e, out, in);
    if (e->note == PQ_NOTE_MAP && holds_repeated(b, e) && is_group(parquet_schema_peek(b, 0)) &&
        parquet_schema_peek(b, 0)->n_children == 2)
        return build_map(b, out, in);
    return build_content(b, e, out, in);
}

/* A repeated field on its own: a list that is never null. */
static mt_rc build_bare_repeated(builder *b, const pq_element *e, pq_node *out, levels at)
{
    levels inside = below(at, PQ_REPEATED);
    out->kind = PQ_LIST;
    out->def_present = at.def;
    out->def_item = inside.def;
    out->rep_item = inside.rep;
    out->n_children = 1;
    out->children = mt_arena_calloc(b->arena, 1, sizeof *out->children);
    if (!out->children) return mt_no_memory(b->err, "the schema of %s", b->src->path);
    return build_item(b, e, out->children, inside);
}

/* The next element and all below it. */
static mt_rc build(builder *b, pq_node *out, levels at)
{
    const pq_element *e = parquet_schema_peek(b, 0);
    if (!e) return parquet_schema_bad(b, "it ends too early");
    if (++b->depth > MAX_DEPTH) return parquet_schema_bad(b, "nested deeper than 48 levels");
    if (e->repetition < PQ_REQUIRED || e->repetition > PQ_REPEATED) return parquet_schema_bad(b, "an unknown repetition");
    b->next++;
    out->first_leaf = b->schema->n_leaves;
    MT_TRY(name_node(b, out, e->name));
    levels in = below(at, e->repetition);
    out->def_present = in.def;
    MT_TRY(e->repetition == PQ_REPEATED ? build_bare_repeated(b, e, out, at) : build_annotated(b, e, out, in));
    out->n_leaves = b->schema->n_leaves - out->first_leaf;
    b->depth--;
    return MT_OK;
}

mt_rc mt__pq_schema_build(pq_schema *out, const pq_footer *footer, const mt_record_bytes *src, mt_arena *arena, mt_err *err)
{
    *out = (pq_schema){ 0 };
    builder b = { .footer = footer, .src = src, .arena = arena, .schema = out, .err = err };
    const pq_element *root = parquet_schema_peek(&b, 0);
    if (!root || !is_group(root)) return parquet_schema_bad(&b, "it has no root");
    if (footer->n_elements > MAX_ELEMENTS) return parquet_schema_bad(&b, "more than 40000 elements");
    b.next = b.n_promised = 1;
    MT_TRY(build_fields(&b, root, &out->root, (levels){ 0 }));
    out->root.n_leaves = out->n_leaves;
    for (size_t i = 0; i < out->root.n_children; i++)
        out->root.children[i].wanted = mt__column_wanted(&src->opt, out->root.children[i].name);
    return MT_OK;
}
