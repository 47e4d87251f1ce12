/* format_parquet.c - records from Parquet: every row is put together from its columns' entries.
 *
 * An entry of a column is a repetition level, a definition level and, if the latter is full, a value.  A value of the tree is
 * read by looking at its first leaf: a definition level below `def_present` is a null, one below `def_item` an empty list, and a
 * list continues while the next repetition level is its own.  A null or an empty list uses up one entry of every leaf below
 * it. */
#include "data/parquet.h"

#include <string.h>

/* A record with more values or bytes than this is not a training sample; the limits keep a small file from claiming one with long
 * runs and a dictionary. */
enum { MAX_VALUES = 1 << 24, MAX_BYTES = 1 << 30 };

typedef struct parquet_file {
    const mt_record_bytes *src;
    pq_footer footer;
    pq_schema schema;
    pq_column **columns; /* one per leaf; NULL: not wanted */
    size_t group;        /* the next one to open */
    int64_t group_left;  /* rows not yet read of the open one */
    size_t group_start;  /* its first byte */
    mt_name_list names;
    mt_value *stack; /* items of the open lists, innermost last */
    size_t n_stack, cap_stack;
} parquet_file;

/* One row being read. */
typedef struct row {
    parquet_file *f;
    mt_arena *arena;
    size_t n_values, n_bytes;
    const char *trouble; /* a value that spoils the record, not the file */
    const char *trouble_column;
    mt_err *err;
} row;

static mt_rc read_value(row *r, const pq_node *node, mt_value *out);

static bool recognise(const uint8_t *data, size_t size) { return size >= 4 && memcmp(data, "PAR1", 4) == 0; }

/* The leaf's column with its current entry at hand. */
static mt_rc format_parquet_peek(row *r, size_t leaf, pq_column **out)
{
    pq_column *c = r->f->columns[leaf];
    *out = c;
    if (c->at < c->n) return MT_OK;
    bool more;
    MT_TRY(mt__pq_column_fill(c, &more, r->err));
    if (!more)
        return mt_fail(r->err, MT_EFORMAT, "%s: column \"%s\" has fewer rows than the file says", r->f->src->path, c->leaf->name);
    return MT_OK;
}

static void pass_entry(pq_column *c)
{
    c->at_cell += c->def[c->at] == c->leaf->max_def;
    c->at++;
}

static mt_rc pass_leaves(row *r, const pq_node *node)
{
    for (size_t i = 0; i < node->n_leaves; i++) {
        pq_column *c;
        MT_TRY(format_parquet_peek(r, node->first_leaf + i, &c));
        pass_entry(c);
    }
    return MT_OK;
}

static mt_rc cell_value(row *r, const pq_node *leaf, const pq_cell *cell, mt_value *out)
{
    const char *trouble = NULL;
    bool ok = true;
    switch (leaf->type) {
    case PQ_FLOAT:
    case PQ_DOUBLE: *out = mt__scalar_float(cell->f); break;
    case PQ_BOOLEAN: *out = (mt_value){ .type = MT_VALUE_BOOL, .b = cell->i != 0 }; break;
    case PQ_INT32:
    case PQ_INT64: {
        bool narrow = leaf->type == PQ_INT32 && leaf->scalar.kind == MT_SCALAR_UINT;
        ok = mt__scalar_from_int(out, &leaf->scalar, narrow ? (int64_t)(uint32_t)cell->i : cell->i, r->arena);
        break;
    }
    default:
        if (cell->bytes.n > MAX_BYTES - r->n_bytes)
            return mt_fail(r->err, MT_EFORMAT, "%s: a record of more than 1 GiB", r->f->src->path);
        r->n_bytes += cell->bytes.n;
        ok = mt__scalar_from_bytes(out, &leaf->scalar, cell->bytes.p, cell->bytes.n, false, r->arena, &trouble);
    }
    if (trouble && !r->trouble) r->trouble = trouble, r->trouble_column = leaf->name;
    return ok ? MT_OK : mt_no_memory(r->err, "a record of %s", r->f->src->path);
}

static mt_rc read_leaf(row *r, const pq_node *node, pq_column *c, mt_value *out)
{
    pq_cell cell = c->cells[c->at_cell];
    pass_entry(c);
    return cell_value(r, node, &cell, out);
}

static mt_rc read_struct(row *r, const pq_node *node, mt_value *out)
{
    mt_pair *pairs = mt_arena_calloc(r->arena, node->n_children, sizeof *pairs);
    if (!pairs) return mt_no_memory(r->err, "a record of %s", r->f->src->path);
    size_t n = 0;
    for (size_t i = 0; i < node->n_children; i++) {
        const pq_node *child = &node->children[i];
        if (node == &r->f->schema.root && !child->wanted) continue;
        pairs[n].key = child->name;
        pairs[n].key_n = child->name_n;
        MT_TRY(read_value(r, child, &pairs[n++].value));
    }
    *out = (mt_value){ .type = MT_VALUE_MAP };
    out->map.pairs = pairs;
    out->map.n = n;
    return MT_OK;
}

static mt_rc format_parquet_push(row *r, const mt_value *v)
{
    parquet_file *f = r->f;
    if (f->n_stack == f->cap_stack && mt_grow(&f->stack, &f->cap_stack, f->n_stack + 1, sizeof *f->stack, NULL))
        return mt_no_memory(r->err, "a record of %s", r->f->src->path);
    f->stack[f->n_stack++] = *v;
    return MT_OK;
}

/* Key and value of a map, or the item of a list, onto the stack. */
static mt_rc read_item(row *r, const pq_node *node)
{
    for (size_t i = 0; i < node->n_children; i++) {
        mt_value v;
        MT_TRY(read_value(r, &node->children[i], &v));
        MT_TRY(format_parquet_push(r, &v));
    }
    return MT_OK;
}

static mt_rc finish_list(row *r, size_t base, mt_value *out)
{
    size_t n = r->f->n_stack - base;
    mt_value *items = mt_arena_alloc(r->arena, n * sizeof *items);
    if (!items) return mt_no_memory(r->err, "a record of %s", r->f->src->path);
    if (n) memcpy(items, r->f->stack + base, n * sizeof *items);
    *out = (mt_value){ .type = MT_VALUE_LIST };
    out->list.items = items;
    out->list.n = n;
    return MT_OK;
}

static mt_rc finish_map(row *r, size_t base, mt_value *out)
{
    size_t n = (r->f->n_stack - base) / 2;
    return mt__map_from_items(out, n ? r->f->stack + base : NULL, n, r->arena)
               ? MT_OK
               : mt_no_memory(r->err, "a record of %s", r->f->src->path);
}

static mt_rc read_items(row *r, const pq_node *node, mt_value *out)
{
    size_t base = r->f->n_stack;
    pq_column *c;
    MT_TRY(format_parquet_peek(r, node->first_leaf, &c));
    bool any = c->def[c->at] >= node->def_item;
    if (!any) MT_TRY(pass_leaves(r, node));
    for (bool more = any; more;) {
        MT_TRY(read_item(r, node));
        MT_TRY(mt__pq_column_fill(c, &more, r->err));
        more = more && c->rep[c->at] == node->rep_item;
    }
    MT_TRY(node->kind == PQ_LIST ? finish_list(r, base, out) : finish_map(r, base, out));
    r->f->n_stack = base;
    return MT_OK;
}

static mt_rc read_value(row *r, const pq_node *node, mt_value *out)
{
    pq_column *c;
    *out = (mt_value){ 0 };
    if (++r->n_values > MAX_VALUES)
        return mt_fail(r->err, MT_EFORMAT, "%s: a record of more than %d values", r->f->src->path, MAX_VALUES);
    if (node->kind == PQ_STRUCT && node == &r->f->schema.root) return read_struct(r, node, out);
    MT_TRY(format_parquet_peek(r, node->first_leaf, &c));
    if (c->def[c->at] < node->def_present) return pass_leaves(r, node);
    if (node->kind == PQ_LEAF) return read_leaf(r, node, c, out);
    if (node->kind == PQ_STRUCT) return read_struct(r, node, out);
    return read_items(r, node, out);
}

static mt_rc open_column(parquet_file *f, size_t leaf, const pq_chunk *chunk, mt_err *err)
{
    if (!f->columns[leaf]) f->columns[leaf] = mt_calloc(1, sizeof *f->columns[leaf]);
    if (!f->columns[leaf]) return mt_no_memory(err, "a column of %s", f->src->path);
    return mt__pq_column_start(f->columns[leaf], f->src, f->schema.leaves[leaf], chunk, err);
}

static size_t first_byte(const pq_group *g)
{
    uint64_t first = g->chunks[0].start;
    for (size_t i = 1; i < g->n_chunks; i++)
        if (g->chunks[i].start < first) first = g->chunks[i].start;
    return (size_t)first;
}

static mt_rc open_group(parquet_file *f, mt_err *err)
{
    const pq_group *g = &f->footer.groups[f->group++];
    if (g->n_rows == 0) return MT_OK;
    if (g->n_chunks != f->schema.n_leaves)
        return mt_fail(err, MT_EFORMAT, "%s: row group %zu has %zu columns, the schema %zu", f->src->path, f->group - 1,
                       g->n_chunks, f->schema.n_leaves);
    for (size_t i = 0; i < f->schema.root.n_children; i++) {
        const pq_node *top = &f->schema.root.children[i];
        for (size_t k = 0; top->wanted && k < top->n_leaves; k++)
            MT_TRY(open_column(f, top->first_leaf + k, &g->chunks[top->first_leaf + k], err));
    }
    f->group_left = g->n_rows;
    f->group_start = first_byte(g); /* a schema has a leaf, so there is a chunk */
    return MT_OK;
}

/* All columns stand at the start of a row; anything else means that they disagree about lengths. */
static mt_rc check_row_start(row *r)
{
    for (size_t i = 0; i < r->f->schema.n_leaves; i++) {
        pq_column *c;
        if (!r->f->columns[i]) continue;
        MT_TRY(format_parquet_peek(r, i, &c));
        if (c->rep[c->at] != 0)
            return mt_fail(r->err, MT_EFORMAT, "%s: column \"%s\" does not agree with the others about the length of a list",
                           r->f->src->path, c->leaf->name);
    }
    return MT_OK;
}

static mt_rc format_parquet_next(void *reader, mt_arena *arena, mt_value *out, mt_record_place *where, mt_err *err)
{
    parquet_file *f = reader;
    while (f->group_left == 0) {
        if (f->group >= f->footer.n_groups) return mt__record_end(where);
        MT_TRY(open_group(f, err));
    }
    row r = { .f = f, .arena = arena, .err = err };
    f->n_stack = 0;
    MT_TRY(check_row_start(&r));
    MT_TRY(read_value(&r, &f->schema.root, out));
    f->group_left--;
    if (!r.trouble) return MT_OK;
    mt_fail(err, MT_EFORMAT, "column \"%s\": %s", r.trouble_column, r.trouble);
    return mt__record_bad_here(where, err);
}

static void close_parquet(void *reader)
{
    parquet_file *f = reader;
    if (!f) return;
    for (size_t i = 0; f->columns && i < f->schema.n_leaves; i++) {
        if (f->columns[i]) mt__pq_column_free(f->columns[i]);
        mt_free(f->columns[i]);
    }
    mt_free(f->columns);
    mt_free(f->schema.leaves);
    mt_arena_free(&f->footer.arena);
    mt__name_list_free(&f->names);
    mt_free(f->stack);
    mt_free(f);
}

static mt_rc format_parquet_load(parquet_file *f, mt_err *err)
{
    MT_TRY(mt__pq_footer_read(&f->footer, f->src, err));
    MT_TRY(mt__pq_schema_build(&f->schema, &f->footer, f->src, f->src->keep, err));
    f->columns = mt_calloc(f->schema.n_leaves, sizeof *f->columns);
    if (!f->columns) return mt_no_memory(err, "the columns of %s", f->src->path);
    for (size_t i = 0; i < f->schema.root.n_children; i++)
        MT_TRY(mt__name_list_add(&f->names, f->schema.root.children[i].name, f->schema.root.children[i].name_n, err));
    return MT_OK;
}

static mt_rc open_parquet(void **out, const mt_record_bytes *src, mt_err *err)
{
    *out = NULL;
    parquet_file *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "reading %s", src->path);
    f->src = src;
    mt_rc rc = format_parquet_load(f, err);
    if (rc) {
        close_parquet(f);
        return rc;
    }
    *out = f;
    return MT_OK;
}

static int64_t format_parquet_count(void *reader) { return ((parquet_file *)reader)->footer.n_rows; }
static const mt_name_list *columns(const void *reader) { return &((const parquet_file *)reader)->names; }

/* Whole row groups only: inside one, every column is read at its own place. */
static size_t format_parquet_position(const void *reader) { return ((const parquet_file *)reader)->group_start; }

const mt_format mt__format_parquet = {
    .name = "parquet",
    .extensions = ".parquet .pq",
    .recognise = recognise,
    .open = open_parquet,
    .next = format_parquet_next,
    .count = format_parquet_count,
    .columns = columns,
    .position = format_parquet_position,
    .close = close_parquet,
};
