/* unpickle.c - the machine: a stack, a memo, and one function for each thing an opcode does.  unpickle_globals.c decides what a
 * pickle may name and call.
 *
 * Every opcode takes at least a byte and allocates a bounded amount.  A call that copies items counts them (u->copied), and no
 * more are copied than the pickle has bytes.  So memory is bounded by the size of the pickle.  Nothing recurses. */
#include "base/le.h"
#include "ckpt/unpickle_impl.h"

#include <stdio.h>
#include <string.h>

/* -- the stack ------------------------------------------------------------------------------------- */

mt__pk *mt__pk_make(mt__unpickler *u, mt__pk_type type)
{
    mt__pk *v = mt_arena_calloc(&u->arena, 1, sizeof *v);
    if (v) v->type = type;
    return v;
}

static mt_rc unpickle_push(mt__unpickler *u, mt__pk *v, mt_err *err)
{
    if (!v) return pk_no_memory(u, err);
    MT_TRY(mt_grow(&u->stack, &u->cap_stack, u->n_stack + 1, sizeof *u->stack, err));
    u->stack[u->n_stack++] = v;
    return MT_OK;
}

static mt_rc push_int(mt__unpickler *u, mt__pk_type type, int64_t i, mt_err *err)
{
    mt__pk *v = mt__pk_make(u, type);
    if (v) v->i = i;
    return unpickle_push(u, v, err);
}

/* The n-th value from the top, 0 being the last; NULL where there is a mark or nothing. */
static mt__pk *unpickle_peek(const mt__unpickler *u, size_t n)
{
    if (n >= u->n_stack) return NULL;
    mt__pk *v = u->stack[u->n_stack - 1 - n];
    return v->type == MT_PK_MARK ? NULL : v;
}

/* Index of the first value above the topmost mark; false: no mark. */
static bool above_mark(const mt__unpickler *u, size_t *first)
{
    for (size_t i = u->n_stack; i-- > 0;)
        if (u->stack[i]->type == MT_PK_MARK) {
            *first = i + 1;
            return true;
        }
    return false;
}

/* Append the values stack[first ..] to a list, tuple or dict. */
static mt_rc unpickle_append(mt__unpickler *u, mt__pk *to, size_t first, mt_err *err)
{
    size_t more = u->n_stack - first, need = to->list.n + more;
    if (need > to->list.cap) {
        size_t cap = to->type == MT_PK_TUPLE ? need : need * 2; /* old arrays stay in the arena: at most as much again */
        mt__pk **items = mt_arena_calloc(&u->arena, cap, sizeof *items);
        if (!items) return pk_no_memory(u, err);
        if (to->list.n) memcpy(items, to->list.items, to->list.n * sizeof *items);
        to->list.items = items;
        to->list.cap = cap;
    }
    if (more) memcpy(to->list.items + to->list.n, u->stack + first, more * sizeof *u->stack);
    to->list.n = need;
    return MT_OK;
}

/* -- reading arguments ----------------------------------------------------------------------------- */

static bool unpickle_take(mt__unpickler *u, size_t n, const uint8_t **bytes)
{
    if ((size_t)(u->end - u->at) < n) return false;
    *bytes = u->at;
    u->at += n;
    return true;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static mt_rc take_number(mt__unpickler *u, size_t width, uint64_t *out, mt_err *err)
{
    const uint8_t *p;
    if (!unpickle_take(u, width, &p)) return pk_bad(u, "it breaks off", err);
    switch (width) {
    case 1: *out = p[0]; break;
    case 2: *out = mt__le16(p); break;
    case 4: *out = mt__le32(p); break;
    default: *out = mt__le64(p); break;
    }
    return MT_OK;
}

static mt_rc take_line(mt__unpickler *u, const char **s, size_t *n, mt_err *err)
{
    const uint8_t *nl = u->at < u->end ? memchr(u->at, '\n', (size_t)(u->end - u->at)) : NULL;
    if (!nl) return pk_bad(u, "it breaks off", err);
    *s = (const char *)u->at;
    *n = (size_t)(nl - u->at);
    u->at = nl + 1;
    return MT_OK;
}

static mt_rc push_text(mt__unpickler *u, size_t width, mt_err *err)
{
    uint64_t n;
    const uint8_t *s;
    MT_TRY(take_number(u, width, &n, err));
    if (n > SIZE_MAX || !unpickle_take(u, (size_t)n, &s)) return pk_bad(u, "a string reaches past the end", err);
    mt__pk *v = mt__pk_make(u, MT_PK_STR);
    if (!v) return pk_no_memory(u, err);
    v->str.s = mt_arena_strndup(&u->arena, (const char *)s, (size_t)n);
    v->str.n = (size_t)n;
    return v->str.s ? unpickle_push(u, v, err) : pk_no_memory(u, err);
}

/* A little-endian signed integer of any width.  Those past 64 bits (none that weights use) keep their low ones. */
static mt_rc push_long(mt__unpickler *u, size_t width, mt_err *err)
{
    uint64_t n, value = 0;
    const uint8_t *p;
    MT_TRY(take_number(u, width, &n, err));
    if (n > 255 || !unpickle_take(u, (size_t)n, &p)) return pk_bad(u, "an integer reaches past the end", err);
    for (size_t i = 0; i < n && i < 8; i++) value |= (uint64_t)p[i] << 8 * i;
    if (n && n < 8 && p[n - 1] & 0x80) value |= ~UINT64_C(0) << 8 * n;
    return push_int(u, MT_PK_INT, (int64_t)value, err);
}

static mt_rc push_float(mt__unpickler *u, mt_err *err)
{
    const uint8_t *p;
    uint64_t bits = 0;
    if (!unpickle_take(u, 8, &p)) return pk_bad(u, "it breaks off", err);
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i]; /* big-endian, unlike everything else */
    mt__pk *v = mt__pk_make(u, MT_PK_FLOAT);
    if (v) memcpy(&v->f, &bits, sizeof bits);
    return unpickle_push(u, v, err);
}

/* -- opcodes that need more than a line ------------------------------------------------------------- */

static mt_rc push_global(mt__unpickler *u, const char *module, size_t n_module, const char *name, size_t n_name, mt_err *err)
{
    size_t row;
    if (!mt__pk_find_global(module, n_module, name, n_name, &row))
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s: refused: calls %.*s.%.*s\n"
            "  A pickle can run code; this reader takes tensors and nothing else.  If you trust the file, load it with\n"
            "  PyTorch and save its tensors as safetensors",
            u->path, (int)mt_min_i64((int64_t)n_module, 200), module, (int)mt_min_i64((int64_t)n_name, 200), name);
    mt__pk *v = mt__pk_make(u, MT_PK_GLOBAL);
    if (v) v->global = row;
    return unpickle_push(u, v, err);
}

static mt_rc global_line(mt__unpickler *u, mt_err *err)
{
    const char *module, *name;
    size_t n_module, n_name;
    MT_TRY(take_line(u, &module, &n_module, err));
    MT_TRY(take_line(u, &name, &n_name, err));
    return push_global(u, module, n_module, name, n_name, err);
}

static mt_rc global_from_stack(mt__unpickler *u, mt_err *err)
{
    const mt__pk *name = unpickle_peek(u, 0), *module = name ? unpickle_peek(u, 1) : NULL;
    if (!module || name->type != MT_PK_STR || module->type != MT_PK_STR) return pk_bad(u, "a function has no name", err);
    u->n_stack -= 2;
    return push_global(u, module->str.s, module->str.n, name->str.s, name->str.n, err);
}

static mt_rc reduce(mt__unpickler *u, mt_err *err)
{
    const mt__pk *args = unpickle_peek(u, 0), *fn = args ? unpickle_peek(u, 1) : NULL;
    mt__pk *made = NULL;
    if (!fn || args->type != MT_PK_TUPLE || fn->type != MT_PK_GLOBAL)
        return pk_bad(u, "something that is not a function is called", err);
    MT_TRY(mt__pk_call(u, fn, args, &made, err));
    u->n_stack -= 2;
    return unpickle_push(u, made, err);
}

/* State set on an object: state_dicts carry version numbers this way; they are not needed. */
static mt_rc build(mt__unpickler *u, mt_err *err)
{
    const mt__pk *state = unpickle_peek(u, 0), *object = state ? unpickle_peek(u, 1) : NULL;
    if (!object || (object->type != MT_PK_DICT && object->type != MT_PK_TENSOR))
        return pk_bad(u, "state is set on something that has none", err);
    u->n_stack--;
    return MT_OK;
}

static mt_rc persistent(mt__unpickler *u, mt_err *err)
{
    mt__pk *storage;
    MT_TRY(mt__pk_name_storage(u, unpickle_peek(u, 0), &storage, err));
    u->n_stack--;
    return unpickle_push(u, storage, err);
}

static mt_rc tuple_of(mt__unpickler *u, size_t n, mt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!unpickle_peek(u, i)) return pk_bad(u, "a tuple lacks items", err);
    mt__pk *v = mt__pk_make(u, MT_PK_TUPLE);
    if (!v) return pk_no_memory(u, err);
    MT_TRY(unpickle_append(u, v, u->n_stack - n, err));
    u->n_stack -= n;
    return unpickle_push(u, v, err);
}

/* The values above the mark become one new value in the mark's place. */
static mt_rc collect(mt__unpickler *u, mt__pk_type type, mt_err *err)
{
    size_t first;
    if (!above_mark(u, &first)) return pk_bad(u, "there is no mark", err);
    mt__pk *v = mt__pk_make(u, type);
    if (!v) return pk_no_memory(u, err);
    if (type == MT_PK_DICT && (u->n_stack - first) % 2) return pk_bad(u, "a key has no value", err);
    MT_TRY(unpickle_append(u, v, first, err));
    u->n_stack = first - 1;
    return unpickle_push(u, v, err);
}

/* Items from stack[first ..] go into the list or dict below; keep: what remains of the stack. */
static mt_rc add_items(mt__unpickler *u, mt__pk_type type, size_t first, size_t keep, mt_err *err)
{
    if (keep == 0 || u->stack[keep - 1]->type != type) return pk_bad(u, "items are added to something that holds none", err);
    if (type == MT_PK_DICT && (u->n_stack - first) % 2) return pk_bad(u, "a key has no value", err);
    MT_TRY(unpickle_append(u, u->stack[keep - 1], first, err));
    u->n_stack = keep;
    return MT_OK;
}

static mt_rc add_marked(mt__unpickler *u, mt__pk_type type, mt_err *err)
{
    size_t first;
    if (!above_mark(u, &first)) return pk_bad(u, "there is no mark", err);
    return add_items(u, type, first, first - 1, err);
}

static mt_rc add_top(mt__unpickler *u, mt__pk_type type, size_t n, mt_err *err)
{
    for (size_t i = 0; i <= n; i++)
        if (!unpickle_peek(u, i)) return pk_bad(u, "the stack is too short", err);
    return add_items(u, type, u->n_stack - n, u->n_stack - n, err);
}

/* Writers number what they remember from 0, so a number past the pickle's length is invalid. */
static mt_rc remember(mt__unpickler *u, uint64_t i, mt_err *err)
{
    mt__pk *v = unpickle_peek(u, 0);
    if (!v || i > (uint64_t)(u->end - u->begin)) return pk_bad(u, "something impossible is remembered", err);
    MT_TRY(mt_grow(&u->memo, &u->cap_memo, (size_t)i + 1, sizeof *u->memo, err));
    while (u->n_memo <= i) u->memo[u->n_memo++] = NULL;
    u->memo[i] = v;
    return MT_OK;
}

static mt_rc remember_numbered(mt__unpickler *u, size_t width, mt_err *err)
{
    uint64_t i;
    MT_TRY(take_number(u, width, &i, err));
    return remember(u, i, err);
}

static mt_rc recall(mt__unpickler *u, size_t width, mt_err *err)
{
    uint64_t i;
    MT_TRY(take_number(u, width, &i, err));
    if (i >= u->n_memo || !u->memo[i]) return pk_bad(u, "something is recalled that was never remembered", err);
    return unpickle_push(u, u->memo[i], err);
}

static mt_rc push_number(mt__unpickler *u, size_t width, mt_err *err)
{
    uint64_t i;
    MT_TRY(take_number(u, width, &i, err));
    return push_int(u, MT_PK_INT, width == 4 ? (int32_t)(uint32_t)i : (int64_t)i, err);
}

static mt_rc protocol(mt__unpickler *u, mt_err *err)
{
    uint64_t version;
    MT_TRY(take_number(u, 1, &version, err));
    if (version >= 2 && version <= 5) return MT_OK;
    return mt_fail(err, MT_EUNSUPPORTED, "%s: pickle protocol %d; 2 to 5 are read", u->path, (int)version);
}

static mt_rc pop(mt__unpickler *u, mt_err *err)
{
    if (!u->n_stack) return pk_bad(u, "the stack is empty", err);
    u->n_stack--;
    return MT_OK;
}

static mt_rc unknown(const mt__unpickler *u, uint8_t op, mt_err *err)
{
    static const struct {
        uint8_t op;
        const char *name;
    } known[] = { { 'i', "INST" },  { 'o', "OBJ" },   { 0x81, "NEWOBJ" }, { 0x92, "NEWOBJ_EX" },
                  { 0x82, "EXT1" }, { 0x83, "EXT2" }, { 0x84, "EXT4" },   { 'P', "PERSID" } };
    for (size_t i = 0; i < MT_COUNT(known); i++)
        if (known[i].op == op)
            return mt_fail(err, MT_EUNSUPPORTED,
                           "%s: refused: the pickle uses %s (byte %zu), which makes objects of any class; weights do not need it",
                           u->path, known[i].name, (size_t)(u->at - u->begin) - 1);
    char text[40];
    snprintf(text, sizeof text, "opcode 0x%02x is none weights use,", op);
    return pk_bad(u, text, err);
}

/* -- the machine ------------------------------------------------------------------------------------- */

static mt_rc unpickle_step(mt__unpickler *u, uint8_t op, mt_err *err)
{
    uint64_t skipped;
    switch (op) {
    case 0x80: return protocol(u, err);
    case 0x95: return take_number(u, 8, &skipped, err); /* FRAME: a hint for buffering */
    case '(': return unpickle_push(u, mt__pk_make(u, MT_PK_MARK), err);
    case ')': return unpickle_push(u, mt__pk_make(u, MT_PK_TUPLE), err);
    case ']': return unpickle_push(u, mt__pk_make(u, MT_PK_LIST), err);
    case '}': return unpickle_push(u, mt__pk_make(u, MT_PK_DICT), err);
    case 'N': return unpickle_push(u, mt__pk_make(u, MT_PK_NONE), err);
    case 0x88: return push_int(u, MT_PK_BOOL, 1, err);
    case 0x89: return push_int(u, MT_PK_BOOL, 0, err);
    case 'K': return push_number(u, 1, err);
    case 'M': return push_number(u, 2, err);
    case 'J': return push_number(u, 4, err);
    case 0x8a: return push_long(u, 1, err);
    case 0x8b: return push_long(u, 4, err);
    case 'G': return push_float(u, err);
    case 'X':
    case 'T':
    case 'B': return push_text(u, 4, err); /* text, and bytes of two vintages */
    case 0x8c:
    case 'U':
    case 'C': return push_text(u, 1, err);
    case 0x8d:
    case 0x8e: return push_text(u, 8, err);
    case 't': return collect(u, MT_PK_TUPLE, err);
    case 'l': return collect(u, MT_PK_LIST, err);
    case 'd': return collect(u, MT_PK_DICT, err);
    case 0x85: return tuple_of(u, 1, err);
    case 0x86: return tuple_of(u, 2, err);
    case 0x87: return tuple_of(u, 3, err);
    case 'a': return add_top(u, MT_PK_LIST, 1, err);
    case 'e': return add_marked(u, MT_PK_LIST, err);
    case 's': return add_top(u, MT_PK_DICT, 2, err);
    case 'u': return add_marked(u, MT_PK_DICT, err);
    case 'q': return remember_numbered(u, 1, err);
    case 'r': return remember_numbered(u, 4, err);
    case 0x94: return remember(u, u->n_memo, err);
    case 'h': return recall(u, 1, err);
    case 'j': return recall(u, 4, err);
    case 'c': return global_line(u, err);
    case 0x93: return global_from_stack(u, err);
    case 'R': return reduce(u, err);
    case 'b': return build(u, err);
    case 'Q': return persistent(u, err);
    case '0': return pop(u, err);
    default: return unknown(u, op, err);
    }
}

mt_rc mt__unpickle(mt__unpickler *u, const uint8_t *bytes, size_t n, size_t *used, mt__pk **out, mt_err *err)
{
    u->begin = u->at = bytes;
    u->end = bytes + (n < MT_PK_MAX_BYTES ? n : MT_PK_MAX_BYTES);
    u->n_stack = u->n_memo = u->copied = 0;
    for (;;) {
        if (u->at == u->end)
            return pk_bad(u, n > MT_PK_MAX_BYTES ? "it is longer than any list of tensors" : "it breaks off", err);
        uint8_t op = *u->at++;
        if (op == '.') break;
        MT_TRY(unpickle_step(u, op, err));
    }
    if (u->n_stack != 1 || !unpickle_peek(u, 0)) return pk_bad(u, "it does not end in one value", err);
    if (!used && u->at != u->end) return pk_bad(u, "something follows its end", err);
    *out = u->stack[0];
    if (used) *used = (size_t)(u->at - bytes);
    return MT_OK;
}

void mt__unpickler_deinit(mt__unpickler *u)
{
    mt_arena_free(&u->arena);
    mt__names_deinit(&u->keys);
    mt_free(u->storages);
    mt_free(u->stack);
    mt_free(u->memo);
    *u = (mt__unpickler){ 0 };
}

const mt__pk *mt__pk_get(const mt__pk *v, const char *key)
{
    if (!v || v->type != MT_PK_DICT) return NULL;
    for (size_t i = v->list.n; i >= 2; i -= 2) { /* the last one set counts */
        const mt__pk *k = v->list.items[i - 2];
        if (k->type == MT_PK_STR && strcmp(k->str.s, key) == 0) return v->list.items[i - 1];
    }
    return NULL;
}
