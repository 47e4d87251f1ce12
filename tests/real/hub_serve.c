/* hub_serve.c - the tests' hub as a program, for the scripts beside it: prints its address, serves until its input ends.
 *
 *     hub_serve [MIB] [NAME=FOLDER ...]
 *
 * It has acme/tiny; with a number, acme/big as well, a model of so many MiB to measure downloads with; and each folder as the
 * model NAME. */
#include "base/file.h"
#include "ckpt/outdir.h"
#include "hub_tiny.h"

static void add_big(hub_server *s, size_t mib)
{
    size_t n = mib << 20;
    uint64_t *data = malloc(n + 8);
    assert_non_null(data);
    for (size_t i = 0; i < n / 8; i++) data[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    hub_repo *r = hub_add_repo(s, "acme/big", false);
    hub_add_file(r, "config.json", "{}", 2, false);
    hub_add_file(r, "tokenizer.json", "{}", 2, false);
    hub_add_file(r, "model.safetensors", data, n, true);
    free(data);
}

static void add_folder(hub_server *s, const char *name, const char *folder)
{
    mt_err err = { 0 };
    mt_dir_names names;
    hub_repo *r = hub_add_repo(s, name, false);
    assert_int_equal(mt_dir_list(&names, folder, &err), MT_OK);
    for (size_t i = 0; i < names.n; i++) {
        mt_map map;
        char *path = mt_path_join(folder, names.items[i]);
        assert_int_equal(mt_map_open(&map, path, &err), MT_OK);
        hub_add_file(r, names.items[i], map.data, map.size, map.size > 1 << 20);
        mt_map_close(&map);
        mt_free(path);
    }
    mt_dir_names_free(&names);
}

int main(int argc, char **argv)
{
    hub_server *s = hub_server_start();
    hub_add_tiny(s);
    for (int i = 1; i < argc; i++) {
        char *is = strchr(argv[i], '=');
        if (is)
            *is = '\0', add_folder(s, argv[i], is + 1);
        else
            add_big(s, strtoul(argv[i], NULL, 10));
    }
    printf("%s\n", s->endpoint);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    hub_server_stop(s);
    return 0;
}
