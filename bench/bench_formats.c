/* bench_formats.c - how fast records come out of data files: MB/s of the file, CPU time of one thread.
 *
 *     bench_formats FILE...
 *     bench_formats --print FILE...      the records as JSON Lines instead, for comparing
 *
 * bench_formats.py reads the same files with pyarrow and Hugging Face datasets. */
#include "base/mem.h"
#include "data/records.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* one thread, files in the page cache */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_record(const mt_value *v, const mt_record_place *where, const mt_err *err)
{
    mt_str s = { 0 };
    if (where->state == MT_RECORD_BAD)
        mt_str_printf(&s, "bad: %s", err->msg);
    else
        mt_value_write_json(&s, v);
    puts(mt_str_ok(&s) ? s.s : "no memory");
    mt_str_free(&s);
}

static mt_rc read_all(const char *path, bool print, int64_t *n, mt_err *err)
{
    mt_records *r;
    mt_arena arena = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    MT_TRY(mt_records_open(&r, path, NULL, err));
    mt_rc rc = MT_OK;
    for (*n = 0; !rc; ++*n) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &v, &where, err);
        if (where.state == MT_RECORD_END) break;
        if (print && !rc) print_record(&v, &where, err);
    }
    mt_arena_free(&arena);
    mt_records_close(r);
    return rc;
}

static mt_rc measure(const char *path, mt_err *err)
{
    double best = 1e30;
    int64_t n = 0;
    struct stat st = { 0 };
    for (int pass = 0; pass < 5; pass++) {
        double t = seconds();
        MT_TRY(read_all(path, false, &n, err));
        t = seconds() - t;
        if (t < best) best = t;
    }
    (void)stat(path, &st);
    printf("megatrain  %-28s %8lld records  %7.3f s  %8.1f MB/s of the file\n", path, (long long)n, best,
           (double)st.st_size / best * 1e-6);
    return MT_OK;
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    int64_t n;
    bool print = argc > 1 && strcmp(argv[1], "--print") == 0;
    for (int i = 1 + print; i < argc; i++)
        if (print ? read_all(argv[i], true, &n, &err) : measure(argv[i], &err)) {
            fprintf(stderr, "error: %s\n", err.msg);
            return 1;
        }
    return 0;
}
