/* Runs a fuzz target over files and folders of them, with the limits of fuzzing and with those of production: the corpus becomes
 * an ordinary test.  If the target has a generator, its first MT_GENERATED (100) inputs follow. */
#include "harness.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void fuzz_run(const uint8_t *data, size_t n, bool production);

/* From an exact allocation, so that a sanitizer sees a read past the end. */
static int run_both(const uint8_t *data, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact) return fprintf(stderr, "no memory\n"), 1;
    for (size_t i = 0; i < n; i++) exact[i] = data[i];
    fuzz_run(exact, n, false);
    fuzz_run(exact, n, true);
    free(exact);
    return 0;
}

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return fprintf(stderr, "cannot open %s\n", path), 1;
    size_t n = 0, cap = 1 << 16;
    uint8_t *data = malloc(cap);
    for (size_t got; data && (got = fread(data + n, 1, cap - n, f)) > 0;) {
        n += got;
        if (n == cap) data = realloc(data, cap *= 2);
    }
    fclose(f);
    if (!data) return fprintf(stderr, "no memory for %s\n", path), 1;
    int failed = run_both(data, n);
    free(data);
    return failed;
}

static int replay(const char *path, int *n_files)
{
    struct stat st;
    if (stat(path, &st)) return fprintf(stderr, "cannot find %s\n", path), 1;
    if (!S_ISDIR(st.st_mode)) return ++*n_files, replay_file(path);
    DIR *dir = opendir(path);
    if (!dir) return fprintf(stderr, "cannot open %s\n", path), 1;
    int failed = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char inner[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        failed |= replay(inner, n_files);
    }
    closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0, n_files = 0;
    for (int i = 1; i < argc; i++) failed |= replay(argv[i], &n_files);
    const char *given = getenv("MT_GENERATED");
    int n_made = !fuzz_generate ? 0 : given ? atoi(given) : 100;
    for (int i = 0; i < n_made; i++) {
        mt_str made = { 0 };
        fuzz_generate(&(fuzz_rng){ .state = (uint64_t)i }, &made);
        failed |= run_both((const uint8_t *)made.s, made.n);
        mt_str_free(&made);
    }
    printf("%d inputs replayed, %d made\n", n_files, n_made);
    return failed || !n_files;
}
