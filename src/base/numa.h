/* numa.h - memory on machines of several nodes (sockets): each has memory of its own, and the way to another's is narrower. */
#ifndef MT_BASE_NUMA_H
#define MT_BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nodes with cores that this machine has, a bit each (the first 64), read below `root` ("": the real one); never 0. */
uint64_t mt_numa_nodes(const char *root);
/* The pages of [p, p + bytes), a mapping nobody has touched yet, in turn from each of these nodes.  False: the system did not. */
bool mt_numa_interleave(void *p, size_t bytes, uint64_t nodes);
/* The same over all of the machine's nodes; nothing to do where there is one, or the process was given a policy of its own. */
void mt_numa_spread(void *p, size_t bytes);

#endif
