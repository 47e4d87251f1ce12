/* bench_pipeline TOKENIZER_DIR CHAT.jsonl WORKERS OUT - conversations ({"messages": [...]}) to a store of samples: read, render,
 * tokenize, mask, write. Prints wall seconds, CPU seconds, samples, tokens and the most memory held, in MiB.  compare_pipeline.py
 * runs it beside datasets + transformers. */
#include "data/store_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The most this program has held; ru_maxrss would count what its parent held before exec. */
static long memory_mib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    if (f) fclose(f);
    return kib / 1024;
}

static mt_rc run(char **argv, mt_err *err)
{
    mt_tokenizer *tok = NULL;
    mt_sampler *sampler = NULL;
    mt_store *store = NULL;
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_OPENAI);
    mt_rc rc = mt_tokenizer_open(&tok, argv[1], err);
    if (!rc) rc = mt_sampler_open(&sampler, tok, &layout, &(mt_sampler_config){ .max_seq_len = 2048 }, err);
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (!rc) {
        mt_store_job job = { .what = argv[2],
                             .path = argv[2],
                             .maker = mt_sample_maker_of(sampler),
                             .vocab = (int64_t)mt_tokenizer_vocab_size(tok),
                             .n_workers = atoi(argv[3]) };
        rc = mt_store_build(argv[4], 1, &job, err);
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    long mib = memory_mib();
    if (!rc) rc = mt_store_map(&store, argv[4], 1, err);
    if (!rc) {
        const mt_store_counts *c = mt_store_counted(store);
        printf("%.3f %.3f %lld %lld %ld\n", wall, cpu, (long long)c->n_samples, (long long)c->n_tokens, mib);
    }
    mt_store_close(store);
    mt_sampler_close(sampler);
    mt_tokenizer_close(tok);
    return rc;
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    if (argc != 5) return fprintf(stderr, "usage: bench_pipeline TOKENIZER_DIR CHAT.jsonl WORKERS OUT\n"), 2;
    if (run(argv, &err)) return fprintf(stderr, "error: %s\n", err.msg), 1;
    return 0;
}
