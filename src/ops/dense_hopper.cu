/* dense_hopper.cu - our own kernel for dense products (dense_tiles.cuh), for large ones on a Hopper at its power limit.
 *
 * Tiles are 256 x 192, and a unit of the walk is two of them side by side.  Clusters of 2x2 blocks read the least, but the number of
 * processors in a group of them (a GPC) is not always a multiple of four: 30 clusters take 120 of 132 processors.  So there are two
 * launches: one in clusters of 2x2, and beside it one in clusters of 1x2 on the remaining processors.  Each takes its share of every
 * round of one walk.
 *
 * In this file the product is D [M, N] = A B': M is the library's n, N its m, and A what it calls B. */
#include "ops/dense_tiles.cuh"

extern "C" {
#include "ops/matmul.h"
}

enum { HALVES = 2, TEAMS = 2, COLS = 192, ACROSS = 2 }; /* the tile; the columns of a cluster */
static const dense_walk WALK = { 10, 1, 1 };

static dense_product kind_of(const mt_matmul *p)
{
    if (p->trans_a) return DENSE_FORWARD;
    return p->trans_b ? DENSE_DW : DENSE_DX;
}

static bool is_copied(const void *p, int64_t ld, size_t each) { return is_aligned(p, 16) && (size_t)ld * each % 16 == 0; }

bool mt__dense_fits(const mt_stream *s, const mt_matmul *p)
{
    const mt_cuda_device *d = mt_cuda_device_of(s);
    const bool dw = kind_of(p) == DENSE_DW;
    const size_t each = dw ? sizeof(float) : sizeof(bf16);
    if (!d->hopper || d->n_sms < 4 || d->shared_bytes < 232448) return false;
    if (p->t != MT_DTYPE_BF16 || p->td != (dw ? MT_DTYPE_F32 : MT_DTYPE_BF16) || (p->trans_a && p->trans_b)) return false;
    if (p->alpha != 1.0f || (p->beta != 0.0f && p->beta != 1.0f)) return false;
    if (dw && (p->bias || p->c != p->d || p->ldc != p->ldd)) return false;
    if (p->m % 8 != 0 || p->m > INT32_MAX / 2 || p->n > INT32_MAX / 2 || p->k > INT32_MAX / 2) return false;
    return is_copied(p->a, p->lda, sizeof(bf16)) && is_copied(p->b, p->ldb, sizeof(bf16)) && is_copied(p->c, p->ldc, each) &&
           is_copied(p->d, p->ldd, each);
}

/* The boxes of an operand.  `sharers` blocks fetch a part of its tile each: some rows of a deep one, some summed numbers of a wide one. */
static mt_rc describe_operand(CUtensorMap *map, const void *base, int64_t ld, bool is_wide, int64_t rows, int64_t k,
                              int tile_rows, int sharers, mt_err *err)
{
    const copied_matrix m = {
        base, sizeof(bf16), is_wide ? rows : k, is_wide ? k : rows, ld, 0, (is_wide ? (int)BK : tile_rows) / sharers
    };
    return mt__describe_matrix(map, &m, err);
}

template <int CM, dense_product KIND>
static mt_rc describe(dense_maps *maps, const mt_matmul *p, const dense_args *args, mt_err *err)
{
    typedef dense_shape<HALVES, TEAMS, COLS, CM, ACROSS, KIND> S;
    const copied_matrix sums = { p->d, sizeof(float), p->m, p->n, p->ldd, 0, BOX },
                        c = { p->c, sizeof(bf16), p->m, p->n, p->ldc, 0, S::TEAM_ROWS };
    memset(maps, 0, sizeof *maps);
    MT_TRY(describe_operand(&maps->a, p->b, p->ldb, KIND == DENSE_DW, p->n, p->k, S::BM, ACROSS, err));
    MT_TRY(describe_operand(&maps->b, p->a, p->lda, KIND != DENSE_FORWARD, p->m, p->k, S::BN, CM, err));
    if (KIND == DENSE_DW) return mt__describe_matrix(&maps->c, &sums, err);
    return args->adds ? mt__describe_matrix(&maps->c, &c, err) : MT_OK;
}

typedef struct launch_form {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t how;
} launch_form;

/* In clusters of CM x 2.  beside: begins while the launch before it runs. */
template <int CM, dense_product KIND>
static mt_rc form_launch(launch_form *f, mt_stream *s, int clusters, bool beside, mt_err *err)
{
    typedef dense_shape<HALVES, TEAMS, COLS, CM, ACROSS, KIND> S;
    auto kernel = dense_kernel<HALVES, TEAMS, COLS, CM, ACROSS, KIND>;
    *f = {};
    f->attributes[0].id = cudaLaunchAttributeClusterDimension;
    f->attributes[0].val.clusterDim = { S::CLUSTER, 1, 1 };
    f->attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    f->attributes[1].val.programmaticStreamSerializationAllowed = 1;
    f->how.gridDim = (unsigned)(clusters * S::CLUSTER);
    f->how.blockDim = S::THREADS;
    f->how.dynamicSmemBytes = S::BYTES;
    f->how.stream = mt_cuda_raw(s);
    f->how.attrs = f->attributes;
    f->how.numAttrs = beside ? 2 : 1;
    return mt__cuda_check(s->dev, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES),
                          "shared memory for a product", err);
}

template <int CM, dense_product KIND>
static mt_rc launch(mt_stream *s, const mt_matmul *p, const dense_args *args, int clusters, mt_err *err)
{
    auto kernel = dense_kernel<HALVES, TEAMS, COLS, CM, ACROSS, KIND>;
    launch_form f;
    dense_maps maps;
    if (clusters == 0) return MT_OK;
    MT_TRY((describe<CM, KIND>(&maps, p, args, err)));
    MT_TRY((form_launch<CM, KIND>(&f, s, clusters, args->first > 0, err)));
    return mt__cuda_check(s->dev, cudaLaunchKernelEx(&f.how, kernel, *args, (const dense_maps)maps), "a product", err);
}

/* How many clusters of 2x2 run at a time; 0 if the driver does not know.  Asks it once per device and kernel. */
template <dense_product KIND> static mt_rc count_fours(mt_stream *s, int *out, mt_err *err)
{
    auto kernel = dense_kernel<HALVES, TEAMS, COLS, 2, ACROSS, KIND>;
    mt_cuda_device *d = mt_cuda_device_of(s);
    launch_form f;
    *out = d->fours[KIND];
    if (*out >= 0) return MT_OK;
    MT_TRY((form_launch<2, KIND>(&f, s, 1, false, err)));
    if (cudaOccupancyMaxActiveClusters(out, kernel, &f.how) != cudaSuccess) {
        cudaGetLastError();
        *out = 0;
    }
    *out = (int)mt_clamp_i64(*out, 0, d->n_sms / 4);
    d->fours[KIND] = *out;
    return MT_OK;
}

template <dense_product KIND> static mt_rc launch_both(mt_stream *s, const mt_matmul *p, void *workspace, mt_err *err)
{
    int fours, pairs = mt_cuda_device_of(s)->n_sms / 4 * 2; /* an even number, so that a cluster's two units are neighbors */
    dense_args args = {};
    MT_TRY(count_fours<KIND>(s, &fours, err));
    args.d = (bf16 *)p->d, args.ldd = p->ldd;
    args.bias = (const bf16 *)p->bias;
    args.adds = p->beta != 0;
    args.M = (int)p->n, args.N = (int)p->m, args.K = (int)p->k;
    args.how = WALK;
    args.met = (unsigned *)workspace;
    args.unit_rows = 1;
    args.per_round = pairs;
    args.blocks = 2 * pairs;
    MT_TRY(mt__cuda_check(s->dev, cudaMemsetAsync(args.met, 0, sizeof *args.met, mt_cuda_raw(s)), "a product", err));
    MT_TRY((launch<2, KIND>(s, p, &args, fours, err)));
    args.first = 2 * fours;
    return launch<1, KIND>(s, p, &args, pairs - 2 * fours, err);
}

mt_rc mt__dense_by_hopper(mt_stream *s, const mt_matmul *p, void *workspace, mt_err *err)
{
    mt_cuda_device_of(s)->n_own++;
    switch (kind_of(p)) {
    case DENSE_FORWARD: return launch_both<DENSE_FORWARD>(s, p, workspace, err);
    case DENSE_DX: return launch_both<DENSE_DX>(s, p, workspace, err);
    case DENSE_DW: return launch_both<DENSE_DW>(s, p, workspace, err);
    }
    return mt_fail(err, MT_EINTERNAL, "a product of an unknown kind");
}
