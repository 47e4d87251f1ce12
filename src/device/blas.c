#include "device/blas.h"

#include "base/mem.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* OpenBLAS's exported helpers; its header declares them only in some builds. */
extern char *openblas_get_corename(void);

void mt_blas_single_thread(void) { openblas_set_num_threads(1); }

void mt_blas_name(char *out, size_t n) { snprintf(out, n, "OpenBLAS %s", openblas_get_corename()); }

/* x86 core names, by what they use. */
static int level_of(const char *core)
{
    static const struct {
        const char *name;
        int level; /* 1: AVX2, 2: AVX-512 */
    } cores[] = {
        { "Haswell", 1 }, { "Zen", 1 },      { "Excavator", 1 },  { "SkylakeX", 2 },
        { "Cooperlake", 2 }, { "Sapphirerapids", 2 },
    };
    for (size_t i = 0; i < MT_COUNT(cores); i++)
        if (strcasecmp(core, cores[i].name) == 0) return cores[i].level;
    return 0;
}

const char *mt_blas_better_core(const char *running, bool has_avx2, bool has_avx512)
{
    int deserved = has_avx512 ? 2 : has_avx2 ? 1 : 0;
    if (level_of(running) >= deserved) return NULL;
    return deserved == 2 ? "SkylakeX" : "Haswell";
}

void mt_blas_reexec_if_slow(char **argv)
{
#if defined(__x86_64__)
    if (getenv("OPENBLAS_CORETYPE")) return; /* the user's choice, or ours the first time round */
    __builtin_cpu_init();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    const char *core = mt_blas_better_core(openblas_get_corename(), __builtin_cpu_supports("avx2"), avx512);
    if (!core || setenv("OPENBLAS_CORETYPE", core, 1)) return;
    execv("/proc/self/exe", argv);
#else
    (void)argv;
#endif
}

double mt_blas_gflops(void)
{
    enum { N = 384, ROUNDS = 12 };
    float *m = mt_calloc(3 * N * N, sizeof *m);
    double best = 0;
    if (!m) return 0;
    for (int i = 0; i < 2 * N * N; i++) m[i] = (float)(i % 7) - 3.0f;
    mt_blas_single_thread();
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1.0f, m, N, m + N * N, N, 0.0f, m + 2 * N * N, N);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec), rate = 2.0 * N * N * N / s * 1e-9;
        if (rate > best) best = rate;
    }
    mt_free(m);
    return best;
}
