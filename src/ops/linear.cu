/* linear.cu - products by cuBLASLt: y = alpha (x w' (+ b)) (+ add);   dx (+)= alpha dy w,   dw (+)= alpha dy' x,   db += alpha column sums of dy.
 *
 * Shapes: x [M, K], w [N, K], y [M, N].  bf16 operands, fp32 sums; fp32 operands multiply in true fp32.  Products are described
 * column by column (matmul.h).
 *
 * Bias and residual ride in the product's epilogue, and weight gradients accumulate in fp32 as beta = 1: no extra pass.  The
 * kernel of a shape is chosen once, on first use: the library's first choice, or another of its choices or our own kernel
 * (matmul.h) if that is faster at the card's power limit (the same on every run and for all lanes: choices.h), or, on request,
 * the fastest of them all, timed once per machine (tuned.h).
 * Micro-batches differ in rows, and choosing takes longer than multiplying: a kernel is chosen for a rounded number of rows and
 * used for all that round to it, so a run soon needs no new choice.  Split sums meet in the workspace, never by atomics, so a
 * product is repeatable. */
#include "ops/ops_cuda.cuh"

extern "C" {
#include "base/log.h"
#include "device/choices.h"
#include "ops/linear_tiles.h"
#include "ops/matmul.h"
}

enum { N_CHOICES = 8, N_TIMED = 3 };

/* The library's descriptions of a product, in our own memory: making them allocates nothing. */
typedef struct descs {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
} descs;

static cudaDataType type_of(mt_dtype t) { return t == MT_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* No kernel needs more than 16 bytes, and promising more would let a buffer's address, or the first row of a product, choose the
 * kernel and so the bits. */
static uint32_t alignment(const void *p, int64_t ld, mt_dtype t)
{
    uintptr_t bits = (uintptr_t)p | (uintptr_t)ld * mt_dtype_bytes(t);
    uint32_t bytes = 16;
    while (bytes > 1 && bits % bytes) bytes /= 2;
    return bytes;
}

static bool set_op(descs *x, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(&x->op, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool make_op(descs *x, const mt_matmul *p)
{
    cublasOperation_t yes = CUBLAS_OP_T, no = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType bias_type = type_of(p->t);
    bool ok = cublasLtMatmulDescInit(&x->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    ok = ok && set_op(x, CUBLASLT_MATMUL_DESC_TRANSA, p->trans_a ? &yes : &no, sizeof yes);
    ok = ok && set_op(x, CUBLASLT_MATMUL_DESC_TRANSB, p->trans_b ? &yes : &no, sizeof yes);
    if (!p->bias) return ok;
    ok = ok && set_op(x, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    ok = ok && set_op(x, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    return ok && set_op(x, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
}

static bool make_layout(cublasLtMatrixLayoutOpaque_t *out, mt_dtype t, int64_t rows, int64_t cols, int64_t ld)
{
    return cublasLtMatrixLayoutInit(out, type_of(t), (uint64_t)rows, (uint64_t)cols, ld) == CUBLAS_STATUS_SUCCESS;
}

static bool make_preference(cublasLtMatmulPreferenceOpaque_t *pref, const mt_matmul *p)
{
    size_t workspace = MT_DEVICE_WORKSPACE_BYTES;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or none: never in place, which needs atomics */
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t bytes;
    } aligned[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p->a, p->lda, p->t) },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p->b, p->ldb, p->t) },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p->c, p->ldc, p->td) },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p->d, p->ldd, p->td) } };
    bool ok = cublasLtMatmulPreferenceInit(pref) == CUBLAS_STATUS_SUCCESS;
    ok =
        ok && !cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    ok = ok && !cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    for (size_t i = 0; i < MT_COUNT(aligned); i++)
        ok = ok && !cublasLtMatmulPreferenceSetAttribute(pref, aligned[i].what, &aligned[i].bytes, sizeof aligned[i].bytes);
    return ok;
}

static bool make_descs(descs *x, const mt_matmul *p)
{
    return make_op(x, p) && make_layout(&x->a, p->t, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda) &&
           make_layout(&x->b, p->t, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb) &&
           make_layout(&x->c, p->td, p->m, p->n, p->ldc) && make_layout(&x->d, p->td, p->m, p->n, p->ldd);
}

static cublasStatus_t multiply_by_library(mt_stream *s, const descs *x, const mt_matmul *p, const cublasLtMatmulAlgo_t *algo,
                                          void *workspace)
{
    return cublasLtMatmul(mt_cuda_device_of(s)->lt, (cublasLtMatmulDesc_t)&x->op, &p->alpha, p->a, (cublasLtMatrixLayout_t)&x->a,
                          p->b, (cublasLtMatrixLayout_t)&x->b, &p->beta, p->c, (cublasLtMatrixLayout_t)&x->c, p->d,
                          (cublasLtMatrixLayout_t)&x->d, algo, workspace, MT_DEVICE_WORKSPACE_BYTES, mt_cuda_raw(s));
}

/* What marks our own kernel (dense_hopper.cu) among the library's. */
static cublasLtMatmulAlgo_t own_kernel(void)
{
    cublasLtMatmulAlgo_t own;
    memset(&own, 0xff, sizeof own);
    return own;
}
static bool is_own(const cublasLtMatmulAlgo_t *algo) { return algo->data[0] == UINT64_MAX; }

/* MT_OK with CUBLAS_STATUS_SUCCESS: it is queued.  Any other status is the library's. */
static mt_rc multiply_by(mt_stream *s, const descs *x, const mt_matmul *p, const cublasLtMatmulAlgo_t *algo, void *workspace,
                         cublasStatus_t *status, mt_err *err)
{
    *status = CUBLAS_STATUS_SUCCESS;
    if (is_own(algo)) return mt__dense_by_hopper(s, p, workspace, err);
    *status = multiply_by_library(s, x, p, algo, workspace);
    return MT_OK;
}

/* -- choosing a kernel ----------------------------------------------------------------------------- */

/* Rows round up to four leading bits: at most an eighth more, and eight sizes for each doubling. */
static int64_t rounded_rows(int64_t rows)
{
    int64_t step = 1;
    while (rows > 16 * step) step *= 2;
    return div_up(rows, step) * step;
}

/* The product that p's kernel is chosen for. */
static mt_matmul rounded(const mt_matmul *p)
{
    mt_matmul q = *p;
    int64_t *rows = p->rows_in_k ? &q.k : &q.n;
    *rows = rounded_rows(*rows);
    return q;
}

/* A weight gradient that is written has the kernel of one that is added, and so its bits: which of the two it is follows from
 * where shares are computed. */
static bool adds(const mt_matmul *p) { return p->beta != 0 || p->rows_in_k; }

static void make_key(const mt_matmul *p, bool own_fits, int64_t key[MT_TUNED_KEY])
{
    const int64_t values[MT_TUNED_KEY] = { p->m,
                                           p->n,
                                           p->k,
                                           p->trans_a | p->trans_b << 1,
                                           own_fits,
                                           p->t,
                                           p->td,
                                           p->lda,
                                           p->ldb,
                                           p->ldc,
                                           p->ldd,
                                           adds(p),
                                           p->bias != NULL,
                                           (int64_t)alignment(p->a, p->lda, p->t) << 16 | alignment(p->b, p->ldb, p->t),
                                           (int64_t)alignment(p->c, p->ldc, p->td) << 16 | alignment(p->d, p->ldd, p->td),
                                           p->c == p->d };
    memcpy(key, values, sizeof values);
}

/* Milliseconds of one product, or a negative number if it fails. */
static float time_choice(mt_stream *s, const descs *x, const mt_matmul *p, const cublasLtMatmulAlgo_t *algo, void *workspace,
                         cudaEvent_t from, cudaEvent_t to)
{
    float ms = -1;
    mt_err err = {};
    cublasStatus_t status;
    if (multiply_by(s, x, p, algo, workspace, &status, &err) || status != CUBLAS_STATUS_SUCCESS) return -1;
    cudaEventRecord(from, mt_cuda_raw(s));
    for (int i = 0; i < N_TIMED; i++) multiply_by(s, x, p, algo, workspace, &status, &err);
    cudaEventRecord(to, mt_cuda_raw(s));
    if (cudaEventSynchronize(to) != cudaSuccess || cudaEventElapsedTime(&ms, from, to) != cudaSuccess) return -1;
    return ms;
}

static bool adds_to_itself(const mt_matmul *p) { return adds(p) && p->c == p->d; }

/* A product that adds to its own output is timed into other memory, which the device took when it was opened: whether there is
 * room follows from the shape alone. */
static bool can_be_timed(const mt_cuda_device *d, const mt_matmul *like)
{
    return d->tuned &&
           (!adds_to_itself(like) || (size_t)(like->ldd * like->n) * mt_dtype_bytes(like->td) <= MT_CUDA_TIMING_BYTES);
}

/* Index of the fastest of n choices; -1: none could be timed. */
static int fastest(mt_stream *s, const descs *x, const mt_matmul *p, const cublasLtMatmulAlgo_t *choices, int n, void *workspace)
{
    mt_matmul q = *p;
    cudaEvent_t from, to;
    int best = -1;
    float best_ms = -1;
    if (adds_to_itself(p)) q.c = q.d = mt_cuda_device_of(s)->timing;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = 0; i < n; i++) {
        float ms = time_choice(s, x, &q, &choices[i], workspace, from, to);
        if (ms < 0 || (best_ms >= 0 && ms >= best_ms)) continue;
        best = i;
        best_ms = ms;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best;
}

static int config_of(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    int value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

static int best_of(const mt_cuda_device *d, const mt_matmul *p, const cublasLtMatmulAlgo_t *choices, int n)
{
    mt_tile_choice tiles[N_CHOICES + 1];
    mt_tiled tiled = { .m = p->m, .n = p->n, .k = p->k, .bias = p->bias != NULL, .dw = p->rows_in_k, .n_sms = d->n_sms };
    if (!d->hopper || p->t != MT_DTYPE_BF16) return 0;
    for (int i = 0; i < n; i++) {
        const bool own = is_own(&choices[i]);
        tiles[i].tile = own ? MT_TILE_OWN : config_of(&choices[i], CUBLASLT_ALGO_CONFIG_TILE_ID);
        tiles[i].split = own ? 1 : config_of(&choices[i], CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    }
    return mt_tile_best(&tiled, tiles, n);
}

/* What was timed before, if it still is a kernel for this.  (The key includes whether our own fits.) */
static bool remembered(const mt_cuda_device *d, descs *x, const int64_t key[MT_TUNED_KEY], cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t result;
    if (!mt_tuned_find(d->tuned, key, algo->data)) return false;
    if (is_own(algo)) return true;
    return cublasLtMatmulAlgoCheck(d->lt, &x->op, &x->a, &x->b, &x->c, &x->d, algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= MT_DEVICE_WORKSPACE_BYTES;
}

/* A request for a kernel. */
typedef struct question {
    mt_stream *s;
    const mt_matmul *like; /* what the kernel is chosen for */
    const mt_matmul *p;    /* the product that is timed, described by */
    const descs *x;
    void *workspace;
    int64_t key[MT_TUNED_KEY];
    cublasStatus_t status; /* of choosing */
} question;

/* What the library proposes for the first lane's GPU and can run; how many. */
static int ask_library(question *q, const descs *y, cublasLtMatmulAlgo_t choices[N_CHOICES])
{
    mt_cuda_device *d = mt_cuda_device_of(q->s);
    cublasLtMatmulHeuristicResult_t proposed[N_CHOICES];
    cublasLtMatmulPreferenceOpaque_t pref;
    descs z = *y;
    int n = 0, n_usable = 0;
    q->status = CUBLAS_STATUS_INVALID_VALUE;
    if (!make_preference(&pref, q->like)) return 0;
    cudaSetDevice(d->first->index);
    q->status = cublasLtMatmulAlgoGetHeuristic(d->first->lt, &z.op, &z.a, &z.b, &z.c, &z.d, &pref, N_CHOICES, proposed, &n);
    cudaSetDevice(d->index);
    if (q->status != CUBLAS_STATUS_SUCCESS) return 0;
    for (int i = 0; i < n; i++)
        if (proposed[i].state == CUBLAS_STATUS_SUCCESS) choices[n_usable++] = proposed[i].algo;
    if (n_usable == 0) q->status = CUBLAS_STATUS_NOT_SUPPORTED;
    return n_usable;
}

/* Under the lock of the table that lanes share. */
static bool choose(void *arg, uint64_t choice[MT_TUNED_CHOICE])
{
    question *q = (question *)arg;
    mt_cuda_device *d = mt_cuda_device_of(q->s);
    cublasLtMatmulAlgo_t choices[N_CHOICES + 1], algo;
    descs y;
    static_assert(sizeof algo.data == MT_TUNED_CHOICE * sizeof(uint64_t), "a choice is an algorithm");
    q->status = CUBLAS_STATUS_INVALID_VALUE;
    if (!make_descs(&y, q->like)) return false;
    if (d->tuned && remembered(d, &y, q->key, &algo)) {
        q->status = CUBLAS_STATUS_SUCCESS;
        memcpy(choice, algo.data, sizeof algo.data);
        return true;
    }
    int n = ask_library(q, &y, choices);
    if (mt__dense_fits(q->s, q->like)) {
        choices[n++] = own_kernel();
        q->status = CUBLAS_STATUS_SUCCESS; /* even if the library has none */
    }
    if (!n) return false;
    int best = can_be_timed(d, q->like) ? fastest(q->s, q->x, q->p, choices, n, q->workspace) : -1;
    algo = choices[best < 0 ? best_of(d->first, q->like, choices, n) : best];
    if (best >= 0) mt_tuned_add(d->tuned, q->key, algo.data);
    memcpy(choice, algo.data, sizeof algo.data);
    return true;
}

/* The kernel for products like this one, chosen if it is new. */
static cublasStatus_t kernel_for(question *q, cublasLtMatmulAlgo_t *algo)
{
    q->status = CUBLAS_STATUS_NOT_SUPPORTED; /* of those that had none before */
    make_key(q->like, mt__dense_fits(q->s, q->like), q->key);
    return mt_choices_find(mt_cuda_device_of(q->s)->choices, q->key, choose, q, algo->data) ? CUBLAS_STATUS_SUCCESS : q->status;
}

/* -- without the library --------------------------------------------------------------------------- */

/* For products that no library kernel supports (rows at odd addresses, say): correct but slow.  One thread per element of D. */
template <typename T, typename TD> __global__ void plain_kernel(mt_matmul p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i >= p.m) return;
    const T *a = (const T *)p.a, *b = (const T *)p.b;
    float sum = 0;
    for (int64_t l = 0; l < p.k; l++)
        sum += to_f32(a[p.trans_a ? i * p.lda + l : l * p.lda + i]) * to_f32(b[p.trans_b ? l * p.ldb + j : j * p.ldb + l]);
    sum *= p.alpha;
    if (p.bias) sum += to_f32(((const T *)p.bias)[i]);
    if (p.beta != 0) sum += p.beta * to_f32(((const TD *)p.c)[j * p.ldc + i]);
    ((TD *)p.d)[j * p.ldd + i] = from_f32<TD>(sum);
}

static mt_rc multiply_plainly(mt_stream *s, const mt_matmul *p, mt_err *err)
{
    for (int64_t from = 0; from < p->n; from += 65535) {
        mt_matmul q = *p;
        q.n = mt_min_i64(p->n - from, 65535);
        size_t size_b = p->t == MT_DTYPE_BF16 ? 2 : 4, size_d = p->td == MT_DTYPE_BF16 ? 2 : 4;
        q.b = (const char *)p->b + (size_t)(p->trans_b ? from : from * p->ldb) * size_b;
        q.c = (const char *)p->c + (size_t)(from * p->ldc) * size_d;
        q.d = (char *)p->d + (size_t)(from * p->ldd) * size_d;
        dim3 grid((unsigned)div_up(p->m, 128), (unsigned)q.n);
        if (p->t == MT_DTYPE_F32)
            plain_kernel<float, float><<<grid, 128, 0, mt_cuda_raw(s)>>>(q);
        else if (p->td == MT_DTYPE_F32)
            plain_kernel<bf16, float><<<grid, 128, 0, mt_cuda_raw(s)>>>(q);
        else
            plain_kernel<bf16, bf16><<<grid, 128, 0, mt_cuda_raw(s)>>>(q);
        MT_TRY(mt__cuda_launched(s, "a product", err));
    }
    return MT_OK;
}

static mt_rc multiply_like(mt_stream *s, const mt_matmul *like, const descs *x, const mt_matmul *p, void *workspace,
                           cublasStatus_t *status, mt_err *err)
{
    question q = { .s = s, .like = like, .p = p, .x = x, .workspace = workspace };
    cublasLtMatmulAlgo_t algo;
    *status = kernel_for(&q, &algo);
    return *status == CUBLAS_STATUS_SUCCESS ? multiply_by(s, x, p, &algo, workspace, status, err) : MT_OK;
}

/* The library is well, and has no kernel for this. */
static bool is_unserved(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

/* Small ones are over before anybody waits. */
static void tell_slow(mt_cuda_device *d, const mt_matmul *p)
{
    if (d->told_slow || 2.0 * (double)p->m * (double)p->n * (double)p->k < 1e9) return;
    d->told_slow = true;
    mt_warn("cuBLAS has no kernel for a product of %lld x %lld x %lld; it is done by a plain one, which is slow", (long long)p->m,
            (long long)p->n, (long long)p->k);
}

static mt_rc multiply(mt_stream *s, const mt_matmul *p, mt_err *err)
{
    descs x;
    void *workspace;
    cublasStatus_t status;
    mt_matmul like = rounded(p);
    MT_TRY(mt__cuda_workspace(s, &workspace, err));
    if (!make_descs(&x, p)) return mt_fail(err, MT_EDEVICE, "cuBLAS refused a product's description");
    /* The kernel of the rounded product may not support this one: then choose one for it, or none. */
    MT_TRY(multiply_like(s, &like, &x, p, workspace, &status, err));
    if (is_unserved(status)) MT_TRY(multiply_like(s, p, &x, p, workspace, &status, err));
    if (is_unserved(status)) {
        tell_slow(mt_cuda_device_of(s), p);
        return multiply_plainly(s, p, err);
    }
    MT_TRY(mt__cuda_launched(s, "a product", err));
    if (status == CUBLAS_STATUS_SUCCESS) return MT_OK;
    return mt_fail(err, MT_EDEVICE,
                   "a product of %lld x %lld x %lld: cuBLAS %zu reports \"%s\"; does its version fit the GPU and the driver?",
                   (long long)p->m, (long long)p->n, (long long)p->k, cublasLtGetVersion(), cublasLtGetStatusString(status));
}

/* -- the op ---------------------------------------------------------------------------------------- */

/* What the epilogue cannot do: y = cap(y + alpha bias) + add.  T: of bias and add; TY: of y. */
template <typename T, typename TY>
__global__ void finish_kernel(mt_linear a, int64_t first, int64_t ldy, int64_t ldadd, float alpha)
{
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = first + blockIdx.y;
    if (j >= a.N) return;
    TY *y = (TY *)a.y + i * ldy + j;
    float v = to_f32(*y);
    if (a.b) v += alpha * to_f32(((const T *)a.b)[j]);
    if (a.softcap != 0) v = a.softcap * tanhf(v / a.softcap);
    if (a.add) v += to_f32(((const T *)a.add)[i * ldadd + j]);
    *y = from_f32<TY>(v);
}

/* Column sums of SUM_ROWS rows of dy each. */
template <typename T> __global__ void column_sums_kernel(float *share, const T *dy, int64_t M, int64_t N, int64_t ld, float alpha)
{
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, from = (int64_t)blockIdx.y * SUM_ROWS;
    if (j >= N) return;
    float sum = 0;
    if (from + SUM_ROWS <= M) {
#pragma unroll 8
        for (int i = 0; i < SUM_ROWS; i++) sum += to_f32(dy[(from + i) * ld + j]);
    } else {
        for (int64_t i = from; i < M; i++) sum += to_f32(dy[i * ld + j]);
    }
    share[(int64_t)blockIdx.y * N + j] = alpha * sum;
}

typedef struct lds {
    int64_t x, y, add;
} lds;

static lds lds_of(const mt_linear *a)
{
    lds l = { .x = a->ldx ? a->ldx : a->K, .y = a->ldy ? a->ldy : a->N, .add = a->ldadd ? a->ldadd : a->N };
    return l;
}

static float alpha_of(const mt_linear *a) { return a->alpha != 0 ? a->alpha : 1.0f; }

static mt_rc finish(mt_stream *s, const mt_linear *a, lds l, mt_err *err)
{
    for (int64_t first = 0; first < a->M; first += 65535) {
        dim3 grid((unsigned)div_up(a->N, 256), (unsigned)mt_min_i64(a->M - first, 65535));
        if (a->t == MT_DTYPE_F32)
            finish_kernel<float, float><<<grid, 256, 0, mt_cuda_raw(s)>>>(*a, first, l.y, l.add, alpha_of(a));
        else if (a->y_f32)
            finish_kernel<bf16, float><<<grid, 256, 0, mt_cuda_raw(s)>>>(*a, first, l.y, l.add, alpha_of(a));
        else
            finish_kernel<bf16, bf16><<<grid, 256, 0, mt_cuda_raw(s)>>>(*a, first, l.y, l.add, alpha_of(a));
    }
    return mt__cuda_launched(s, "the end of a product", err);
}

/* What is left to do after the product: a bias that alpha multiplies, a cap, and what follows them; with bf16 operands and an fp32
 * result, all of it.  `b` and `add` are kept where they are still to be added. */
static mt_linear late_part(const mt_linear *a)
{
    mt_linear late = *a;
    bool mixes = a->y_f32 && a->t == MT_DTYPE_BF16;
    if (!mixes && alpha_of(a) == 1.0f) late.b = NULL;
    if (!mixes && a->softcap == 0) late.add = NULL;
    return late;
}

mt_rc mt__linear_fwd_cuda(mt_stream *s, const mt_linear *a, mt_err *err)
{
    lds l = lds_of(a);
    mt_linear late = late_part(a);
    const void *add = late.add ? NULL : a->add;
    mt_matmul p = { 0 };
    p.m = a->N, p.n = a->M, p.k = a->K;
    p.trans_a = true;
    p.t = a->t, p.td = a->y_f32 ? MT_DTYPE_F32 : a->t;
    p.a = a->w, p.lda = a->K;
    p.b = a->x, p.ldb = l.x;
    p.d = a->y, p.ldd = l.y;
    p.c = add ? add : a->y, p.ldc = add ? l.add : l.y;
    p.alpha = alpha_of(a);
    p.beta = add ? 1.0f : 0.0f;
    p.bias = late.b ? NULL : a->b;
    if (a->M == 0) return MT_OK;
    if (late.add && late.add == a->y) return mt_fail(err, MT_EUNSUPPORTED, "a soft-capped product that adds to its own output");
    MT_TRY(multiply(s, &p, err));
    return late.b || late.add || late.softcap != 0 ? finish(s, &late, l, err) : MT_OK;
}

static mt_rc weight_gradient(mt_stream *s, const mt_linear *a, lds l, mt_err *err)
{
    mt_matmul p = { 0 };
    p.m = a->K, p.n = a->N, p.k = a->M;
    p.rows_in_k = true;
    p.trans_b = true;
    p.t = a->t, p.td = MT_DTYPE_F32;
    p.a = a->x, p.lda = l.x;
    p.b = a->dy, p.ldb = l.y;
    p.c = p.d = a->dw, p.ldc = p.ldd = a->K;
    p.alpha = alpha_of(a);
    p.beta = a->dw_set ? 0.0f : 1.0f;
    return multiply(s, &p, err);
}

static mt_rc bias_gradient(mt_stream *s, const mt_linear *a, lds l, mt_err *err)
{
    int64_t blocks = sum_blocks(a->M);
    float *shares = (float *)a->scratch;
    dim3 grid((unsigned)div_up(a->N, 128), (unsigned)blocks);
    if (blocks > 65535) return mt_fail(err, MT_EUNSUPPORTED, "a bias gradient over %lld rows", (long long)a->M);
    if (a->t == MT_DTYPE_BF16)
        column_sums_kernel<bf16><<<grid, 128, 0, mt_cuda_raw(s)>>>(shares, (const bf16 *)a->dy, a->M, a->N, l.y, alpha_of(a));
    else
        column_sums_kernel<float><<<grid, 128, 0, mt_cuda_raw(s)>>>(shares, (const float *)a->dy, a->M, a->N, l.y, alpha_of(a));
    MT_TRY(mt__cuda_launched(s, "a bias gradient", err));
    return mt__sum_rows_cuda(s, a->db, shares, blocks, a->N, a->N, err);
}

static mt_rc input_gradient(mt_stream *s, const mt_linear *a, lds l, mt_err *err)
{
    mt_matmul p = { 0 };
    p.m = a->K, p.n = a->M, p.k = a->N;
    p.t = p.td = a->t;
    p.a = a->w, p.lda = a->K;
    p.b = a->dy, p.ldb = l.y;
    p.c = p.d = a->dx, p.ldc = p.ldd = l.x;
    p.alpha = alpha_of(a);
    p.beta = a->dx_add ? 1.0f : 0.0f;
    return multiply(s, &p, err);
}

mt_rc mt__linear_bwd_cuda(mt_stream *s, const mt_linear *a, mt_err *err)
{
    lds l = lds_of(a);
    if (a->M == 0) return a->dw && a->dw_set ? mt_fill(s, a->dw, 0, (size_t)(a->N * a->K) * sizeof(float), err) : MT_OK;
    if (a->dw) MT_TRY(weight_gradient(s, a, l, err));
    if (a->db) MT_TRY(bias_gradient(s, a, l, err));
    return a->dx ? input_gradient(s, a, l, err) : MT_OK;
}
