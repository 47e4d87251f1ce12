/* attention_ways.c - the table of implementations, fastest first.  The measurements for the order are in docs/notebook. */
#include "ops/attention_ways.h"

#include "base/mem.h"
#include "ops/ops_cpu.h"

#include <assert.h>
#include <stdio.h>

enum { TILE = 128, PART_ALIGN = 512, NARROW = 512, LONG = 4096 };

static bool aligned(const void *p, int64_t ld) { return (uintptr_t)p % 16 == 0 && ld % 8 == 0; }

/* True if tensor-core kernels can compute it: bf16 in rows of 16-byte pieces. */
static bool wide_rows(const mt_attention *a, bool backward)
{
    const int64_t Dv = mt_value_width(a->Dh, a->Dv);
    bool fits = a->t == MT_DTYPE_BF16 && a->Dh % 8 == 0 && a->Dh <= 256 && Dv % 8 == 0 && Dv <= 256 && a->scale > 0 &&
                a->H <= 65535 && aligned(a->q, a->ldq) && aligned(a->k, a->ldk) && aligned(a->v, a->ldv) && aligned(a->o, a->ldo);
    return fits && (!backward ||
                    (aligned(a->d_o, a->ldo) && aligned(a->dq, a->ld_d) && aligned(a->dk, a->ld_d) && aligned(a->dv, a->ld_d)));
}

static bool allows(const mt_attention *a, mt_attention_way way) { return a->use.ways >> way & 1; }

static bool any(const mt_attention *a, bool backward)
{
    (void)a, (void)backward;
    return true;
}

bool mt_cudnn_widths(const mt_attention *a)
{
    const int64_t Dv = mt_value_width(a->Dh, a->Dv);
    return a->Dh % 16 == 0 && a->Dh >= 32 && (Dv == a->Dh || (a->Dh == 192 && Dv == 128 && a->H == a->K));
}

static bool cudnn_knows(const mt_attention *a, bool backward)
{
    return wide_rows(a, backward) && mt_cudnn_widths(a) && (!backward || a->Dh <= a->use.cudnn_head) &&
           (a->softcap == 0 || a->use.caps) && a->alibi == 0 && !(a->chunk && a->chunk < a->longest);
}

/* Launches of parts of a document that are too small for the GPU are slower than our own kernels. */
static bool fills(const mt_attention *a, mt_cudnn_size s)
{
    return mt_cudnn_whole(a, s) || (s.longest > LONG && s.heads * s.keys >= (a->Dh >= 128 ? 128 : 224) * TILE);
}

/* The repeatable backward computes whole squares, even with a window. */
static bool cudnn_fits(const mt_attention *a, bool backward)
{
    if (!backward || !cudnn_knows(a, true)) return cudnn_knows(a, backward);
    mt_cudnn_size size = mt_cudnn_size_of(a, true);
    return size.docs && !(a->window && a->window < a->longest) && (fills(a, size) || !allows(a, MT_ATTENTION_FLASH));
}

/* Narrow windows are ours, and short documents are faster without atomics where both can be had. */
static bool atomics_pay(const mt_attention *a, bool backward)
{
    if (!backward || !cudnn_knows(a, true) || (a->window && a->window < NARROW && a->window < a->longest)) return false;
    int64_t without = a->Dh == 128 ? 1024 : 512;
    return !(allows(a, MT_ATTENTION_CUDNN) && a->longest <= without && cudnn_fits(a, true));
}

static const struct {
    mt_attention_way way;
    const char *name;
    bool repeatable;
    bool (*serves)(const mt_attention *a, bool backward);
} rows[] = {
    { MT_ATTENTION_CUDNN_FAST, "cudnn-fast", false, atomics_pay },
    { MT_ATTENTION_CUDNN, "cudnn", true, cudnn_fits },
    { MT_ATTENTION_FLASH, "flash", true, wide_rows },
    { MT_ATTENTION_PLAIN, "plain", true, any },
};

static const uint32_t OURS = 1u << MT_ATTENTION_PLAIN | 1u << MT_ATTENTION_FLASH;

mt_attention_way mt_attention_choose(const mt_attention *a, bool backward)
{
    uint32_t ways = a->use.ways ? a->use.ways : OURS;
    for (size_t i = 0; i < MT_COUNT(rows); i++)
        if (ways >> rows[i].way & 1 && rows[i].serves(a, backward)) return rows[i].way;
    return MT_ATTENTION_PLAIN;
}

const char *mt_attention_way_name(mt_attention_way way)
{
    for (size_t i = 0; i < MT_COUNT(rows); i++)
        if (rows[i].way == way) return rows[i].name;
    return "unknown";
}

void mt_attention_use_text(const mt_attention_use *use, char *out, size_t n)
{
    uint32_t ways = use->ways ? use->ways : OURS;
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < MT_COUNT(rows) && at < n; i++)
        if (ways >> rows[i].way & 1) at += (size_t)snprintf(out + at, n - at, "%s%s", at ? ", " : "", rows[i].name);
}

/* A 64th of the device, in powers of two so that a little more or less free memory changes no bits; past 2 GiB it buys little.
 * Twice of both for documents in parts. */
uint64_t mt_attention_workspace(const mt_attention_use *use, size_t device_bytes)
{
    uint64_t most = (uint64_t)2 << 30, bytes = 1 << 20;
    if (!(use->ways >> MT_ATTENTION_CUDNN & 1)) return 0;
    while (bytes < most && bytes * 2 <= device_bytes / 64) bytes *= 2;
    return use->parts ? 2 * bytes : bytes;
}

/* Whatever could go in parts goes by atomic additions where those are allowed. */
static bool may_part(const mt_attention_use *use)
{
    return use->ways >> MT_ATTENTION_CUDNN & 1 && !(use->ways >> MT_ATTENTION_CUDNN_FAST & 1);
}

static mt_attention_use allowed(mt_attention_use use, bool deterministic, size_t device_bytes)
{
    for (size_t i = 0; i < MT_COUNT(rows); i++)
        if (deterministic && !rows[i].repeatable) use.ways &= ~(1u << rows[i].way);
    use.parts = may_part(&use);
    use.workspace = mt_attention_workspace(&use, device_bytes);
    use.caps = use.ways >> MT_ATTENTION_CUDNN & 1;
    return use;
}

mt_attention_use mt_attention_use_of(mt_device *dev, bool deterministic, bool plain, size_t device_bytes)
{
    mt_attention_use has = { .ways = 1u << MT_ATTENTION_PLAIN };
    if (!plain) mt_ops_of(dev)->attention_use(dev, &has);
    return allowed(has, deterministic, device_bytes);
}

mt_attention_use mt_attention_use_typical(bool deterministic, bool plain, size_t device_bytes)
{
    mt_attention_use has = { .ways = plain ? 1u << MT_ATTENTION_PLAIN : (1u << MT_ATTENTION_WAYS) - 1,
                             .cudnn_head = plain ? 0 : 256 };
    return allowed(has, deterministic, device_bytes);
}

/* -- sizes ----------------------------------------------------------------------------------------- */

static int64_t docs_of(const mt_attention *a) { return a->use.docs ? a->use.docs : a->n_docs; }
static int64_t longest_of(const mt_attention *a) { return a->use.longest ? a->use.longest : a->longest; }

/* Powers of two, at most what the run or a launch can have. */
static int64_t power_of_two(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

int64_t mt_cudnn_longest(const mt_attention *a) { return (int64_t)mt_round_up((size_t)longest_of(a), TILE); }

/* cuDNN writes the scores' gradients of all its documents at once, in bf16. */
static uint64_t square_bytes(mt_cudnn_size s)
{
    return (uint64_t)(s.docs * s.heads) * (uint64_t)s.longest * (uint64_t)s.keys * 2;
}

/* The second half of a workspace for parts is for one document at a time: several at once, which are short, gain nothing from
 * it. */
static bool fits(const mt_attention *a, int64_t docs, int64_t longest, int64_t heads, int64_t keys)
{
    return square_bytes((mt_cudnn_size){ docs, longest, heads, keys }) <=
           (a->use.parts && docs > 1 ? a->use.workspace / 2 : a->use.workspace);
}

/* This many heads of one document, its keys in as few pieces as fit, at most `most`; docs 0: they do not fit so. */
static mt_cudnn_size in_pieces(const mt_attention *a, int64_t longest, int64_t heads, int64_t most)
{
    for (int64_t pieces = 1; pieces <= most; pieces *= 2) {
        int64_t keys = (int64_t)mt_round_up((size_t)((longest + pieces - 1) / pieces), TILE);
        if (pieces > 1 && keys < MT_CUDNN_FEWEST_KEYS) break;
        if (fits(a, 1, longest, heads, keys)) return (mt_cudnn_size){ 1, longest, heads, keys };
    }
    return (mt_cudnn_size){ 0 };
}

/* One document, a few heads or keys at a time.  A launch needs many tiles of keys to fill the GPU, preferably from many heads,
 * because every piece of the keys makes gradients of all later queries.  The measurements are in docs/notebook.  Heads divide the
 * number of key heads, so that one kernel works for all. */
static mt_cudnn_size part_of(const mt_attention *a, int64_t longest)
{
    mt_cudnn_size part = in_pieces(a, longest, a->H, 4);
    for (int64_t heads = a->K; heads && !part.docs; heads--)
        if (a->K % heads == 0) part = in_pieces(a, longest, heads, 2);
    return part.docs ? part : in_pieces(a, longest, 1, longest / MT_CUDNN_FEWEST_KEYS);
}

/* The documents and rows of one launch; docs 0: none fits. */
static mt_cudnn_size most_of(const mt_attention *a, bool squares, int64_t longest)
{
    mt_cudnn_size most = { power_of_two(docs_of(a), MT_CUDNN_MOST_DOCS), longest, a->H, longest };
    while (squares && most.docs && !fits(a, most.docs, longest, a->H, longest)) most.docs /= 2;
    if (most.docs) return most;
    return a->use.parts ? part_of(a, longest) : (mt_cudnn_size){ 0 };
}

int mt_cudnn_sizes(const mt_attention *a, bool squares, mt_cudnn_size out[MT_CUDNN_SIZES])
{
    int n = 0;
    int64_t cap = mt_cudnn_longest(a);
    for (int64_t step = squares ? MT_CUDNN_SMALLEST : cap;; step *= 2) {
        if (squares && a->window && step / 2 >= a->window) return n; /* of documents that the window cuts: never requested */
        mt_cudnn_size most = most_of(a, squares, mt_min_i64(step, cap));
        for (int64_t docs = 1; docs <= most.docs && n < MT_CUDNN_SIZES; docs *= 2)
            out[n++] = (mt_cudnn_size){ docs, most.longest, most.heads, most.keys };
        if (step >= cap || !most.docs) return n;
    }
}

mt_cudnn_size mt_cudnn_size_of(const mt_attention *a, bool squares)
{
    int64_t cap = mt_cudnn_longest(a), longest = squares ? MT_CUDNN_SMALLEST : cap;
    while (longest < a->longest) longest *= 2;
    longest = mt_min_i64(longest, cap);
    mt_cudnn_size size = most_of(a, squares, longest);
    if (size.docs) size.docs = power_of_two(a->n_docs, size.docs);
    return size;
}

int64_t mt_cudnn_pieces(mt_cudnn_size size) { return (size.longest + size.keys - 1) / size.keys; }

bool mt_cudnn_parcel_next(const mt_attention *a, mt_cudnn_parcel *p)
{
    int64_t cap = mt_cudnn_longest(a);
    if (!p->upto) p->upto = mt_min_i64(MT_CUDNN_SMALLEST, cap);
    for (;;) {
        mt_cudnn_size most = most_of(a, true, p->upto);
        assert(most.docs); /* shorter documents take less than the longest, which fits */
        for (p->n_docs = 0; p->next < a->n_docs && p->n_docs < most.docs; p->next++) {
            int32_t row = a->host_start[p->next], length = a->host_start[p->next + 1] - row;
            if (length <= p->above || length > p->upto) continue;
            p->row[p->n_docs] = row;
            p->length[p->n_docs++] = length;
        }
        p->size = (mt_cudnn_size){ power_of_two(p->n_docs, most.docs), most.longest, most.heads, most.keys };
        if (p->n_docs) return true;
        if (p->upto >= a->longest) return false;
        p->above = p->upto;
        p->upto = mt_min_i64(2 * p->upto, cap);
        p->next = 0;
    }
}

/* -- scratch --------------------------------------------------------------------------------------- */

static size_t attention_ways_take(size_t *at, uint64_t bytes)
{
    size_t here = *at;
    *at += mt_round_up((size_t)bytes, PART_ALIGN);
    return here;
}

/* The fast backward ignores the row layout of its accumulator and uses q's: results are 40% off with another one. */
int64_t mt_cudnn_ld_dq(const mt_attention *a, mt_attention_way way) { return way == MT_ATTENTION_CUDNN_FAST ? a->ldq : a->ld_d; }

/* Bytes of scratch that launches of a size use.  Of parcels the most that any may: a shorter document may have more pieces than
 * the longest. */
typedef struct need {
    uint64_t squares, dq; /* bytes; dq: where it is made in pieces */
    int64_t pieces;
} need;

static need need_of(const mt_attention *a, mt_cudnn_size s)
{
    int64_t pieces = mt_cudnn_pieces(s);
    return (need){ square_bytes(s), pieces > 1 ? (uint64_t)(pieces * s.longest * s.heads * a->Dh) * 2 : 0, pieces };
}

static need need_of_parcels(const mt_attention *a)
{
    mt_cudnn_size sizes[MT_CUDNN_SIZES];
    need all = { 0 };
    for (int i = 0, n = mt_cudnn_sizes(a, true, sizes); i < n; i++) {
        need one = need_of(a, sizes[i]);
        if (one.squares > all.squares) all.squares = one.squares;
        if (one.dq > all.dq) all.dq = one.dq;
        all.pieces = mt_max_i64(all.pieces, one.pieces);
    }
    return all;
}

/* Gradients: of the sums of o * do, of queries where they do not go to their place, of grouped keys and values before and after
 * summing. */
static void lay_out_backward(mt_cudnn_layout *l, const mt_attention *a, bool squares, uint64_t dq_bytes)
{
    uint64_t rows_of_heads = (uint64_t)(a->N * a->H * a->Dh), rows_of_kv = (uint64_t)(a->N * a->K * a->Dh);
    /* 0: a plan's question. */
    int64_t ld_dq = mt_cudnn_ld_dq(a, MT_ATTENTION_CUDNN_FAST), ld = ld_dq ? ld_dq : (a->H + 2 * a->K) * a->Dh;
    l->delta = attention_ways_take(&l->bytes, (uint64_t)(a->N * a->H) * 4);
    if (!squares) l->acc = attention_ways_take(&l->bytes, (uint64_t)(a->N * ld) * 4);
    if (!squares && (ld_dq == 0 || ld_dq != a->ld_d)) l->dq = attention_ways_take(&l->bytes, (uint64_t)(a->N * ld) * 2);
    if (squares) l->dq = attention_ways_take(&l->bytes, dq_bytes);
    if (a->H != a->K) {
        l->dkf = attention_ways_take(&l->bytes, rows_of_heads * 2);
        l->dvf = attention_ways_take(&l->bytes, rows_of_heads * 2);
        l->dk = attention_ways_take(&l->bytes, rows_of_kv * 2);
        l->dv = attention_ways_take(&l->bytes, rows_of_kv * 2);
    }
}

bool mt_cudnn_whole(const mt_attention *a, mt_cudnn_size size) { return size.heads == a->H && size.keys == size.longest; }

/* One long document among many short ones would make each of them a separate launch. */
static bool by_parcels(const mt_attention *a, mt_cudnn_size size, bool squares)
{
    return !mt_cudnn_whole(a, size) || (squares && a->use.parts && size.docs < a->n_docs && size.docs < MT_CUDNN_MOST_DOCS);
}

static mt_cudnn_layout layout_for(const mt_attention *a, mt_cudnn_size size, bool squares, bool backward)
{
    mt_cudnn_layout l = { .size = size,
                          .n_chunks = (a->n_docs + size.docs - 1) / size.docs,
                          .parcels = by_parcels(a, size, squares) };
    need n = l.parcels ? need_of_parcels(a) : need_of(a, size);
    int64_t docs = l.parcels ? MT_CUDNN_MOST_DOCS : size.docs;
    if (l.parcels) l.n_chunks = n.pieces;
    l.offsets_ld = (int64_t)mt_round_up((size_t)docs + 1, 2); /* cuDNN is promised 16-byte alignment */
    l.lengths_ld = (int64_t)mt_round_up((size_t)docs, 4);
    l.offsets = attention_ways_take(&l.bytes, (uint64_t)(l.n_chunks * MT_OFFSETS * l.offsets_ld) * 8);
    l.lengths = attention_ways_take(&l.bytes, (uint64_t)(l.n_chunks * 2 * l.lengths_ld) * 4);
    if (backward) lay_out_backward(&l, a, squares, n.dq);
    l.workspace_bytes = MT_CUDNN_SMALL_WORKSPACE + (squares ? (size_t)n.squares : 0);
    l.workspace = attention_ways_take(&l.bytes, l.workspace_bytes);
    return l;
}

mt_cudnn_layout mt_cudnn_layout_of(const mt_attention *a, mt_attention_way way, bool backward)
{
    bool squares = backward && way == MT_ATTENTION_CUDNN;
    return layout_for(a, mt_cudnn_size_of(a, squares), squares, backward);
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

size_t mt_sinks_scratch(const mt_attention *a) { return a->sinks ? mt_round_up(mt_sum_scratch(a->N, a->H), PART_ALIGN) : 0; }

/* Without sinks and chunks. */
static size_t scratch_of_ways(const mt_attention *a)
{
    mt_cudnn_size sizes[MT_CUDNN_SIZES];
    size_t bytes = (size_t)(a->N * a->H) * sizeof(float); /* delta */
    bool cudnn = allows(a, MT_ATTENTION_CUDNN), fast = allows(a, MT_ATTENTION_CUDNN_FAST);
    if (!(cudnn || fast) || a->N == 0 || !cudnn_knows(a, false)) return bytes;
    bool backward = a->Dh <= a->use.cudnn_head;
    for (int i = 0, n = mt_cudnn_sizes(a, false, sizes); i < n; i++)
        bytes = most(bytes, layout_for(a, sizes[i], false, fast && backward).bytes);
    for (int i = 0, n = cudnn && backward ? mt_cudnn_sizes(a, true, sizes) : 0; i < n; i++)
        bytes = most(bytes, layout_for(a, sizes[i], true, true).bytes);
    return bytes;
}

/* Enough for every kernel that a call of the run may use: if documents are short, chunks cut none of them. */
size_t mt_attention_scratch(const mt_attention *a)
{
    mt_attention whole = *a;
    whole.chunk = 0;
    return mt_sinks_scratch(a) + scratch_of_ways(&whole);
}
