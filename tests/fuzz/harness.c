/* harness.c - runs a target, one input in 32 on a small stack with the limits of production.  Under libFuzzer an input that
 * takes too long is a find (scripts/fuzz.sh bounds memory with -rss_limit_mb and -malloc_limit_mb). */
#define _GNU_SOURCE
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#undef LLVMFuzzerTestOneInput
int fuzz_target(const uint8_t *data, size_t n); /* the target's LLVMFuzzerTestOneInput */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
void fuzz_run(const uint8_t *data, size_t n, bool production);

bool fuzz_production;

#if defined __SANITIZE_ADDRESS__ || defined MT_FUZZING
enum { STACK_BYTES = 1 << 20, MAX_SECONDS = 60 }; /* frames of instrumented code are some four times as large, and it is slow */
#else
enum { STACK_BYTES = 256 << 10, MAX_SECONDS = 20 };
#endif

typedef struct input {
    const uint8_t *data;
    size_t n;
    double seconds;
} input;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run(void *arg)
{
    input *in = arg;
    double start = cpu_seconds();
    (void)fuzz_target(in->data, in->n);
    in->seconds = cpu_seconds() - start;
    return NULL;
}

static void run_on_small_stack(input *in)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (pthread_create(&thread, &attr, run, in)) abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

void fuzz_run(const uint8_t *data, size_t n, bool production)
{
    input in = { .data = data, .n = n };
    fuzz_production = production;
    if (production)
        run_on_small_stack(&in);
    else
        run(&in);
#ifdef MT_FUZZING
    if (in.seconds > MAX_SECONDS) {
        fprintf(stderr, "%zu bytes took %.1f s%s\n", n, in.seconds, production ? " with the limits of production" : "");
        abort();
    }
#endif
}

#ifdef MT_FUZZING
static uint64_t hash(const uint8_t *data, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ data[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_run(data, n, hash(data, n) % 32 == 0);
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned int seed)
{
    fuzz_rng r = { .state = (uint64_t)seed << 32 ^ n };
    if (!fuzz_generate || !fuzz_once_in(&r, 4)) return LLVMFuzzerMutate(data, n, max);
    mt_str made = { 0 };
    fuzz_generate(&r, &made);
    size_t n_made = made.n < max ? made.n : max;
    if (n_made) memcpy(data, made.s, n_made);
    mt_str_free(&made);
    return n_made ? n_made : LLVMFuzzerMutate(data, n, max);
}
#endif
