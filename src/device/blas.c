#include "device/blas.h"

#include "base/mem.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
        { "Haswell", 1 }, { "Zen", 1 }, { "Excavator", 1 }, { "SkylakeX", 2 }, { "Cooperlake", 2 }, { "Sapphirerapids", 2 },
    };
    for (size_t i = 0; i < MT_COUNT(cores); i++)
        if (strcasecmp(core, cores[i].name) == 0) return cores[i].level;
    return 0;
}

const char *mt_blas_better_core(const char *running, bool has_avx2, bool has_avx512)
{
    int deserved = has_avx512 ? 2 : has_avx2;
    if (level_of(running) >= deserved) return NULL;
    return deserved == 2 ? "SkylakeX" : "Haswell";
}

/* The OPENBLAS_CORETYPE to set, or NULL. */
static const char *core_to_set(void)
{
#if defined(__x86_64__)
    if (getenv("OPENBLAS_CORETYPE")) return NULL; /* the user's choice, or ours the first time round */
    __builtin_cpu_init();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512dq");
    return mt_blas_better_core(openblas_get_corename(), __builtin_cpu_supports("avx2"), avx512);
#else
    return NULL;
#endif
}

/* ulimit -v, or a system that promises no more memory than it has. */
static bool space_is_limited(void)
{
    struct rlimit l;
    char word[8] = "";
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY) return true;
    FILE *f = fopen("/proc/sys/vm/overcommit_memory", "re");
    if (f && !fgets(word, sizeof word, f)) word[0] = '\0';
    if (f) fclose(f);
    return word[0] == '2';
}

void mt_blas_reexec(char **argv)
{
    const char *core = core_to_set();
    /* Its threads, which we never use, each request a buffer when the library is loaded, and retry forever if there is no room. */
    bool no_threads = !getenv("OPENBLAS_NUM_THREADS") && space_is_limited();
    if (!core && !no_threads) return;
    if (core && setenv("OPENBLAS_CORETYPE", core, 1)) return;
    if (no_threads && setenv("OPENBLAS_NUM_THREADS", "1", 1)) return;
    execv("/proc/self/exe", argv);
}

/* -- its buffers ----------------------------------------------------------------------------------- */

/* Exported by OpenBLAS, declared nowhere; other libraries of the same interface have no such thing. */
extern void *blas_memory_alloc(int where) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

enum { BUFFER_BYTES = 160 << 20, MOST_BUFFERS = 48 }; /* 128 MiB in builds for x86-64; its table holds at least 50 */

static bool room_for_a_buffer(void)
{
    void *p = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, BUFFER_BYTES);
    return true;
}

mt_rc mt_blas_reserve(int n_threads, mt_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int reserved;
    void *buffers[MOST_BUFFERS];
    int want = n_threads < MOST_BUFFERS ? n_threads : MOST_BUFFERS, n = 0;
    if (!blas_memory_alloc || !blas_memory_free) return MT_OK;
    pthread_mutex_lock(&lock);
    bool enough = reserved >= want;
    while (!enough && n < want && room_for_a_buffer()) buffers[n++] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++) blas_memory_free(buffers[i]); /* they stay the library's, for any thread that multiplies */
    if (n == want) reserved = want;
    pthread_mutex_unlock(&lock);
    if (enough || n == want) return MT_OK;
    return mt_fail(err, MT_ENOMEM,
                   "OpenBLAS needs %d MiB of address space for each of %d threads, and there is room for %d: raise the limit "
                   "(ulimit -v, or vm.overcommit_memory), or use fewer cores (taskset)",
                   BUFFER_BYTES >> 20, want, n);
}

double mt_blas_gflops(void)
{
    enum { N = 384, ROUNDS = 12 };
    float *m = mt_calloc(3 * N * N, sizeof *m);
    double best = 0;
    if (!m || mt_blas_reserve(1, NULL)) {
        mt_free(m);
        return 0;
    }
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
