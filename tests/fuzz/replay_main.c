/* Runs a fuzz target over files and folders of them: the corpus becomes an ordinary test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read past the end */
    if (!exact) return 1;
    for (size_t i = 0; i < n; i++) exact[i] = data[i];
    free(data);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
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
    printf("%d inputs replayed\n", n_files);
    return failed || !n_files;
}
