/* numa.c - by system calls: it is one call, and a library would have to be there on every machine. */
#define _GNU_SOURCE
#include "base/numa.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "0-3,5" */
static uint64_t parse_list(const char *p)
{
    uint64_t nodes = 0;
    for (bool more = true; more;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        if (end == p) break;
        if (*end == '-') to = strtol(end + 1, &end, 10);
        for (long n = from; n <= to && n >= 0 && n < 64; n++) nodes |= UINT64_C(1) << n;
        more = *end == ',';
        p = end + 1;
    }
    return nodes;
}

static uint64_t read_list(const char *root, const char *name)
{
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/sys/devices/system/node/%s", root, name);
    FILE *f = fopen(path, "re");
    uint64_t nodes = f && fgets(line, sizeof line, f) ? parse_list(line) : 0;
    if (f) fclose(f);
    return nodes;
}

/* Nodes without cores are a GPU's own memory, or slow. */
uint64_t mt_numa_nodes(const char *root)
{
    uint64_t nodes = read_list(root, "has_cpu");
    if (!nodes) nodes = read_list(root, "online");
    return nodes ? nodes : 1;
}

bool mt_numa_interleave(void *p, size_t bytes, uint64_t nodes)
{
    unsigned long mask = nodes;
    /* The kernel takes one from the count. */
    return syscall(SYS_mbind, p, bytes, MPOL_INTERLEAVE, &mask, 8 * sizeof mask + 1, 0) == 0;
}

void mt_numa_spread(void *p, size_t bytes)
{
    int policy = MPOL_DEFAULT;
    uint64_t nodes = mt_numa_nodes("");
    /* By numactl, whose user knows better. */
    bool said = syscall(SYS_get_mempolicy, &policy, NULL, 0UL, NULL, 0UL) == 0 && policy != MPOL_DEFAULT;
    /* If the system refuses, as in containers, pages are placed on the node that touches them first. */
    if (!said && (nodes & (nodes - 1))) (void)mt_numa_interleave(p, bytes, nodes);
}
