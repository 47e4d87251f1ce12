/* hub_serve.c - the tests' hub as a program, for tests/real/hub_cache.py: prints its address, serves until its input ends. */
#include "hub_tiny.h"

int main(void)
{
    hub_server *s = hub_server_start();
    hub_add_tiny(s);
    printf("%s\n", s->endpoint);
    fflush(stdout);
    while (getchar() != EOF) {}
    hub_server_stop(s);
    return 0;
}
