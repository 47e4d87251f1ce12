/* How fast a tokenizer encodes, on one thread:  bench_tokenizer DIR|FILE TEXTS
 * TEXTS holds documents separated by NUL bytes.  Prints one line of JSON: megabytes a second (10^6) and the ids made. */
#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* CPU time: the machine may have other work. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every document once; the ids are counted and dropped. */
static mt_rc encode_all(const mt_tokenizer *tok, mt_tok_scratch *sc, const mt_map *texts, size_t *n_ids, mt_err *err)
{
    mt_tokens out = { 0 };
    const char *s = (const char *)texts->data, *end = s + texts->size;
    mt_rc rc = MT_OK;
    while (s < end && !rc) {
        const char *stop = memchr(s, '\0', (size_t)(end - s));
        if (!stop) stop = end;
        out.n = 0;
        rc = mt_tokenizer_encode(tok, sc, s, (size_t)(stop - s), MT_ENCODE_SPECIAL, &out, err);
        *n_ids += out.n;
        s = stop + 1;
    }
    mt_tokens_free(&out);
    return rc;
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    mt_map texts;
    mt_tokenizer *tok = NULL;
    mt_tok_scratch *sc = NULL;
    size_t n_ids = 0;
    if (argc != 3) return fprintf(stderr, "usage: bench_tokenizer DIR|FILE TEXTS\n"), 2;
    double t0 = now();
    mt_rc rc = mt_dir_exists(argv[1]) ? mt_tokenizer_open(&tok, argv[1], &err) : mt_tokenizer_open_file(&tok, argv[1], &err);
    double t1 = now();
    if (!rc) rc = mt_tok_scratch_create(&sc, tok, &err);
    if (!rc) rc = mt_map_open(&texts, argv[2], &err);
    double t2 = now();
    if (!rc) rc = encode_all(tok, sc, &texts, &n_ids, &err);
    double t3 = now();
    if (rc) return fprintf(stderr, "error: %s\n", err.msg), 1;
    printf("{\"open_s\": %.3f, \"encode_s\": %.3f, \"mb_per_s\": %.1f, \"ids\": %zu}\n", t1 - t0, t3 - t2,
           1e-6 * (double)texts.size / (t3 - t2), n_ids);
    mt_map_close(&texts);
    mt_tok_scratch_free(sc);
    mt_tokenizer_close(tok);
    return 0;
}
