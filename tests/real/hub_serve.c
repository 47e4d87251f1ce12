/* hub_serve.c - the tests' hub as a program, for tests/real/hub_cache.py: prints its address, serves until its input ends.
 * With a number, it has acme/big as well, a model of so many MiB, to measure downloads with. */
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

int main(int argc, char **argv)
{
    hub_server *s = hub_server_start();
    hub_add_tiny(s);
    if (argc > 1) add_big(s, strtoul(argv[1], NULL, 10));
    printf("%s\n", s->endpoint);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    hub_server_stop(s);
    return 0;
}
