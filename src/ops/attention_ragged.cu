/* attention_ragged.cu - packed rows described for cuDNN: the start of each document, in elements of every tensor, and its length.
 * The graphs are in attention_cudnn.c. */
#include "ops/attention.cuh"

extern "C" {
#include "base/log.h"
#include "ops/attention_cudnn.h"
}

typedef struct ragged {
    int64_t n_docs, docs, n_chunks, offsets_ld, lengths_ld;
    int64_t ld[MT_OFFSETS];
    const int32_t *doc_start;
    int64_t *offsets; /* [n_chunks][MT_OFFSETS][offsets_ld] */
    int32_t *lengths; /* [n_chunks][queries, keys][lengths_ld] */
} ragged;

/* A thread for each place of each chunk, one past the end included.  Places without a document are empty ones at the end. */
__global__ void ragged_kernel(ragged r)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, chunk = at / (r.docs + 1), i = at % (r.docs + 1);
    if (chunk >= r.n_chunks) return;
    int64_t doc = chunk * r.docs + i;
    int64_t row = r.doc_start[doc < r.n_docs ? doc : r.n_docs];
    for (int k = 0; k < MT_OFFSETS; k++) r.offsets[(chunk * MT_OFFSETS + k) * r.offsets_ld + i] = row * r.ld[k];
    if (i >= r.docs) return;
    int32_t *lengths = r.lengths + chunk * 2 * r.lengths_ld + i;
    lengths[0] = lengths[r.lengths_ld] = doc < r.n_docs ? r.doc_start[doc + 1] - (int32_t)row : 0;
}

static mt_rc tell_documents(mt_stream *s, const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, mt_err *err)
{
    char *scratch = (char *)a->scratch;
    ragged r = { .n_docs = a->n_docs,
                 .docs = l->size.docs,
                 .n_chunks = l->n_chunks,
                 .offsets_ld = l->offsets_ld,
                 .lengths_ld = l->lengths_ld,
                 .ld = { 0 },
                 .doc_start = a->doc_start,
                 .offsets = (int64_t *)(scratch + l->offsets),
                 .lengths = (int32_t *)(scratch + l->lengths) };
    mt_cudnn_offset_lds(a, way, l, r.ld);
    ragged_kernel<<<(unsigned)div_up(r.n_chunks * (r.docs + 1), 128), 128, 0, mt_cuda_raw(s)>>>(r);
    return mt__cuda_launched(s, "documents for cuDNN", err);
}

/* The same for the documents of a parcel, which need not be contiguous.  A chunk is a piece of the keys, with the queries from
 * its first row on. */
typedef struct listed {
    mt_cudnn_parcel p;
    int64_t offsets_ld, lengths_ld;
    int64_t ld[MT_OFFSETS];
    int64_t *offsets;
    int32_t *lengths;
} listed;

__global__ void listed_kernel(listed r)
{
    int i = (int)threadIdx.x, last = (int)r.p.n_docs - 1;
    int64_t chunk = blockIdx.x, from = chunk * r.p.size.keys,
            row = i <= last ? from + r.p.row[i] : r.p.row[last] + r.p.length[last];
    for (int k = 0; k < MT_OFFSETS; k++) {
        bool apart = k == MT_OFF_DQ && r.p.size.keys != r.p.size.longest; /* separate, independent of earlier rows */
        r.offsets[(chunk * MT_OFFSETS + k) * r.offsets_ld + i] = (apart ? row - r.p.row[0] : row) * r.ld[k];
    }
    if (i >= r.p.size.docs) return;
    int64_t queries = i <= last ? r.p.length[i] - from : 0;
    int32_t *lengths = r.lengths + chunk * 2 * r.lengths_ld + i;
    lengths[0] = (int32_t)queries;
    lengths[r.lengths_ld] = (int32_t)(queries < r.p.size.keys ? queries : r.p.size.keys);
}

static mt_rc tell_parcel(mt_stream *s, const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l,
                         const mt_cudnn_parcel *p, mt_err *err)
{
    char *scratch = (char *)a->scratch;
    listed r = { .p = *p,
                 .offsets_ld = l->offsets_ld,
                 .lengths_ld = l->lengths_ld,
                 .ld = { 0 },
                 .offsets = (int64_t *)(scratch + l->offsets),
                 .lengths = (int32_t *)(scratch + l->lengths) };
    mt_cudnn_offset_lds(a, way, l, r.ld);
    listed_kernel<<<(unsigned)l->n_chunks, (unsigned)p->size.docs + 1, 0, mt_cuda_raw(s)>>>(r);
    return mt__cuda_launched(s, "documents for cuDNN", err);
}

/* -- gradients on their way from the scratch to their places ----------------------------------------- */

enum { PIECE = 8 }; /* elements of 16 bytes: rows have no others (wide_rows) */

typedef struct part {
    bf16 *to;
    const bf16 *from;
    int64_t ld_from, pieces; /* pieces: of a row */
} part;

typedef struct parts {
    part of[3];
    int n;
    int64_t N, ld_to;
} parts;

__global__ void place_kernel(parts p)
{
    part q = p.of[blockIdx.y];
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / q.pieces, d = at % q.pieces * PIECE;
    if (row < p.N) store<bf16, PIECE>(q.to + row * p.ld_to + d, load<bf16, PIECE>(q.from + row * q.ld_from + d));
}

static void add_part(parts *p, void *to, const void *from, int64_t ld_from, int64_t width)
{
    p->of[p->n++] = (part){ (bf16 *)to, (const bf16 *)from, ld_from, width / PIECE };
}

/* dk and dv of grouped heads are packed in the scratch, and so is dq if cuDNN cannot write it in place. */
static mt_rc place_rows(mt_stream *s, const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, mt_err *err)
{
    const char *scratch = (const char *)a->scratch;
    int64_t kv = a->K * a->Dh, ld_dq = mt_cudnn_ld_dq(a, way), widest = ld_dq != a->ld_d ? a->H * a->Dh : kv;
    parts p = { .n = 0, .N = a->N, .ld_to = a->ld_d };
    if (a->H != a->K) add_part(&p, a->dk, scratch + l->dk, kv, kv);
    if (a->H != a->K) add_part(&p, a->dv, scratch + l->dv, kv, kv);
    if (ld_dq != a->ld_d) add_part(&p, a->dq, scratch + l->dq, ld_dq, a->H * a->Dh);
    if (!p.n || !a->N) return MT_OK;
    place_kernel<<<dim3((unsigned)div_up(a->N * (widest / PIECE), 256), (unsigned)p.n), 256, 0, mt_cuda_raw(s)>>>(p);
    return mt__cuda_launched(s, "attention backward", err);
}

/* PIECE elements of n parts, added in their order. */
__device__ __forceinline__ vec<bf16, PIECE> sum_of(const bf16 *from, int64_t step, int n)
{
    float sum[PIECE] = { 0 };
    for (int j = 0; j < n; j++) {
        vec<bf16, PIECE> x = load<bf16, PIECE>(from + j * step);
#pragma unroll
        for (int i = 0; i < PIECE; i++) sum[i] += to_f32(x.at[i]);
    }
    vec<bf16, PIECE> y;
#pragma unroll
    for (int i = 0; i < PIECE; i++) y.at[i] = from_f32<bf16>(sum[i]);
    return y;
}

typedef struct key_sums {
    bf16 *to[2];
    const bf16 *from[2];      /* [N, H, Dh] */
    int64_t N, ld_to, pieces; /* pieces: of a row of all key heads */
    int group, head;          /* query heads of a key head; pieces of a head */
} key_sums;

__global__ void sum_keys_kernel(key_sums s)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / s.pieces, piece = at % s.pieces, kv = piece / s.head,
            d = piece % s.head;
    if (row >= s.N) return;
    const bf16 *from = s.from[blockIdx.y] + (row * s.pieces * s.group + kv * s.group * s.head + d) * PIECE;
    store<bf16, PIECE>(s.to[blockIdx.y] + row * s.ld_to + piece * PIECE, sum_of(from, (int64_t)s.head * PIECE, s.group));
}

/* Gradients of keys and values, of all heads that read them. */
static mt_rc sum_keys(mt_stream *s, const mt_attention *a, const mt_cudnn_layout *l, mt_err *err)
{
    const char *scratch = (const char *)a->scratch;
    if (a->H == a->K) return MT_OK; /* they are at their place */
    key_sums p = { .to = { (bf16 *)a->dk, (bf16 *)a->dv },
                   .from = { (const bf16 *)(scratch + l->dkf), (const bf16 *)(scratch + l->dvf) },
                   .N = a->N,
                   .ld_to = a->ld_d,
                   .pieces = a->K * a->Dh / PIECE,
                   .group = (int)(a->H / a->K),
                   .head = (int)(a->Dh / PIECE) };
    sum_keys_kernel<<<dim3((unsigned)div_up(p.N * p.pieces, 256), 2), 256, 0, mt_cuda_raw(s)>>>(p);
    return mt__cuda_launched(s, "attention backward", err);
}

typedef struct query_sums {
    bf16 *to;
    const bf16 *from;                       /* [piece of keys][longest, heads, Dh] */
    int64_t n, longest, keys, ld_to, apart; /* apart: elements from head to head */
    int head, heads;                        /* pieces of 16 bytes: of a head, of all */
} query_sums;

__global__ void sum_queries_kernel(query_sums s)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / s.heads, i = at % s.heads, d = i % s.head * PIECE,
            ld = s.heads * PIECE;
    if (row >= s.n) return;
    store<bf16, PIECE>(s.to + row * s.ld_to + i / s.head * s.apart + d,
                       sum_of(s.from + row * ld + i * PIECE, s.longest * ld, (int)(row / s.keys) + 1));
}

/* Gradients of a launch's queries, of all pieces of the keys that they see. */
static mt_rc sum_queries(mt_stream *s, const mt_attention *a, const mt_cudnn_layout *l, const mt_cudnn_parcel *p, int64_t head,
                         mt_err *err)
{
    int64_t apart = p->size.heads == a->H ? a->Dh : a->H / a->K * a->Dh;
    query_sums q = { .to = (bf16 *)a->dq + p->row[0] * a->ld_d + head * a->Dh,
                     .from = (const bf16 *)((const char *)a->scratch + l->dq),
                     .n = p->length[0],
                     .longest = p->size.longest,
                     .keys = p->size.keys,
                     .ld_to = a->ld_d,
                     .apart = apart,
                     .head = (int)(a->Dh / PIECE),
                     .heads = (int)(p->size.heads * a->Dh / PIECE) };
    sum_queries_kernel<<<(unsigned)div_up(q.n * q.heads, 256), 256, 0, mt_cuda_raw(s)>>>(q);
    return mt__cuda_launched(s, "attention backward", err);
}

static void close_state(void *state) { mt_cudnn_attention_close((mt_cudnn_attention *)state); }

/* Can it compile anything here?  It needs NVRTC for that, which may be missing. */
static mt_rc try_out(mt_cudnn_attention *state, mt_err *err)
{
    mt_attention a;
    size_t workspace;
    memset(&a, 0, sizeof a);
    a.t = MT_DTYPE_BF16;
    a.N = a.longest = 128;
    a.n_docs = a.H = a.K = 1;
    a.Dh = a.ldq = a.ldk = a.ldv = a.ldo = 128;
    a.scale = 1;
    return mt_cudnn_attention_prepare(state, &a, false, MT_ATTENTION_CUDNN, &workspace, err);
}

/* The device's cuDNN, loaded on first use; NULL: no suitable version. */
static mt_cudnn_attention *state_of(mt_cuda_device *d)
{
    mt_err why;
    mt_cudnn_attention *state = NULL;
    if (d->cudnn_tried) return (mt_cudnn_attention *)d->cudnn;
    d->cudnn_tried = true;
    if (!d->hopper) return NULL; /* tried on no other */
    mt_rc rc = mt_cudnn_attention_open(&state, NULL, &why);
    if (!rc) rc = try_out(state, &why);
    if (rc) {
        mt_cudnn_attention_close(state);
        state = NULL;
        mt_info("attention uses megatrain's own kernels, which are slower: %s", why.msg);
    }
    d->cudnn = state;
    d->cudnn_close = close_state;
    return state;
}

void mt__attention_use_cuda(mt_device *dev, mt_attention_use *use)
{
    use->ways = 1u << MT_ATTENTION_PLAIN | 1u << MT_ATTENTION_FLASH;
    if (mt__cuda_ready(dev, NULL)) return;
    mt_cudnn_attention *state = state_of((mt_cuda_device *)dev);
    if (!state) return;
    use->ways |= 1u << MT_ATTENTION_CUDNN | 1u << MT_ATTENTION_CUDNN_FAST;
    use->cudnn_head = mt_cudnn_attention_head(state);
}

static mt_rc none_here(mt_err *err)
{
    return mt_fail(err, MT_EUNSUPPORTED, "found no suitable cuDNN; install cuDNN 9.14 or newer");
}

mt_rc mt__attention_cudnn_fwd(mt_stream *s, const mt_attention *a, mt_err *err)
{
    mt_cudnn_attention *state = state_of(mt_cuda_device_of(s));
    if (!state) return none_here(err);
    mt_cudnn_layout l = mt_cudnn_layout_of(a, MT_ATTENTION_CUDNN, false);
    MT_TRY(tell_documents(s, a, MT_ATTENTION_CUDNN, &l, err));
    return mt_cudnn_attention_fwd(state, mt_cuda_raw(s), a, err);
}

/* All heads of a parcel, at once or a few at a time. */
static mt_rc backward_of_parcel(mt_stream *s, mt_cudnn_attention *state, const mt_attention *a, mt_attention_way way,
                                const mt_cudnn_layout *l, const mt_cudnn_parcel *p, mt_err *err)
{
    bool whole = p->size.heads == a->H;
    int64_t group = whole ? 1 : a->H / a->K, n_kv = whole ? 1 : a->K, step = whole ? 1 : p->size.heads;
    MT_TRY(tell_parcel(s, a, way, l, p, err));
    for (int64_t kv = 0; kv < n_kv; kv += step)
        for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
            for (int64_t chunk = 0; chunk < l->n_chunks; chunk++)
                MT_TRY(mt_cudnn_attention_bwd(state, mt_cuda_raw(s), a, way, l, mt_cudnn_launch{ chunk, head, kv }, err));
            if (p->size.keys != p->size.longest) MT_TRY(sum_queries(s, a, l, p, head, err));
        }
    return MT_OK;
}

/* Documents by length.  Where some are too long for all their heads at once, the gradients of keys and values of every query head end up in
 * the scratch, whether cuDNN has summed them as well or not, and are summed here. */
static mt_rc backward_by_parcels(mt_stream *s, mt_cudnn_attention *state, const mt_attention *a, mt_attention_way way,
                                 const mt_cudnn_layout *whole, mt_err *err)
{
    mt_cudnn_layout l = *whole;
    mt_cudnn_parcel p;
    memset(&p, 0, sizeof p);
    if (!a->host_start) return mt_fail(err, MT_EINTERNAL, "attention of documents whose lengths the host does not know");
    int64_t left = a->host_start[a->n_docs] - a->host_start[0];
    while (mt_cudnn_parcel_next(a, &p)) {
        l.size = p.size;
        l.n_chunks = p.size.keys == p.size.longest ? 1 : div_up(p.length[0], p.size.keys);
        if (l.n_chunks > whole->n_chunks)
            return mt_fail(err, MT_EINTERNAL, "a document of %d rows in %lld pieces and scratch for %lld", (int)p.length[0],
                           (long long)l.n_chunks, (long long)whole->n_chunks);
        MT_TRY(backward_of_parcel(s, state, a, way, &l, &p, err));
        for (int64_t i = 0; i < p.n_docs; i++) left -= p.length[i];
    }
    if (left) return mt_fail(err, MT_EINTERNAL, "attention whose parcels leave out %lld rows", (long long)left);
    return mt_cudnn_whole(a, whole->size) ? place_rows(s, a, way, whole, err) : sum_keys(s, a, whole, err);
}

void mt__attention_cudnn_expect(mt_stream *s, const mt_attention *a)
{
    const uint32_t ways = 1u << MT_ATTENTION_CUDNN | 1u << MT_ATTENTION_CUDNN_FAST;
    bool may = (a->use.ways & ways) && a->t == MT_DTYPE_BF16 && (a->softcap == 0 || a->use.caps) && a->alibi == 0 &&
               mt_cudnn_widths(a) && a->Dh <= a->use.cudnn_head;
    mt_cudnn_attention *state = may ? state_of(mt_cuda_device_of(s)) : NULL;
    if (state) mt_cudnn_attention_expect(state, a);
}

mt_rc mt__attention_cudnn_bwd(mt_stream *s, const mt_attention *a, mt_attention_way way, mt_err *err)
{
    mt_cudnn_attention *state = state_of(mt_cuda_device_of(s));
    if (!state) return none_here(err);
    mt_cudnn_layout l = mt_cudnn_layout_of(a, way, true);
    if (l.parcels) return backward_by_parcels(s, state, a, way, &l, err);
    MT_TRY(tell_documents(s, a, way, &l, err));
    for (int64_t chunk = 0; chunk < l.n_chunks; chunk++)
        MT_TRY(mt_cudnn_attention_bwd(state, mt_cuda_raw(s), a, way, &l, mt_cudnn_launch{ chunk, 0, 0 }, err));
    return place_rows(s, a, way, &l, err);
}
