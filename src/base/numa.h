/* numa.h - memory on machines of several nodes (sockets): each node has its own memory, and access to another node's is
 * slower. */
#ifndef MT_BASE_NUMA_H
#define MT_BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nodes with cores that this machine has, a bit each (the first 64), read below `root` ("": the real one); never 0. */
uint64_t mt_numa_nodes(const char *root);
/* The pages of [p, p + bytes), a mapping that no thread has touched yet, taken in turn from each of these nodes.  False: the
 * system refused. */
bool mt_numa_interleave(void *p, size_t bytes, uint64_t nodes);
/* The same over all of the machine's nodes; does nothing if there is one node, or if the process already has a policy. */
void mt_numa_spread(void *p, size_t bytes);

#endif
