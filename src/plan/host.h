/* host.h - what this machine's host side really offers a run. */
#ifndef MT_PLAN_HOST_H
#define MT_PLAN_HOST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mt_host {
    size_t ram_total;    /* of the machine */
    size_t own;          /* this process holds, files not counted: libraries set up, threads, the device's driver */
    size_t files;        /* pages of files this process has in memory: program and libraries, mostly */
    size_t ram_free;     /* what this process may still take: the least of MemAvailable and every memory cgroup it is in */
    size_t ram_limit;    /* and all that it and those who share that may take: of the machine, or of the cgroup */
    char limited_by[96]; /* what says so: "MemAvailable", "the memory cgroup /user.slice" */
    size_t memlock;      /* bytes that may be pinned; SIZE_MAX: any number */
    bool huge_pages;     /* transparent ones, for memory that asks or always */
    int numa_nodes;      /* at least 1 */
    int cores;           /* this process may use */
    char cpu[96];        /* "AMD EPYC 9B14" */
} mt_host;

/* root: "" for this machine; tests lay out proc and sys elsewhere. */
mt_rc mt_host_read(mt_host *out, const char *root, mt_err *err);

/* What a run should count on: ram_free with a little left to others, and what the process holds already, which every plan counts
 * among its needs (base_host). */
static inline size_t mt_host_usable(const mt_host *h) { return h->ram_free - h->ram_free / 50 + h->own; }

/* So little is left that the system may kill somebody. */
static inline bool mt_host_nearly_full(const mt_host *h) { return h->ram_free <= h->ram_limit / 100; }

/* How the cores that this process may use have spent their time so far, to be compared with later. */
typedef struct mt_cores_used {
    double clock;     /* seconds, by the clock */
    double all, idle; /* seconds of all cores together; 0: nobody knows */
    double own;       /* this process's */
} mt_cores_used;
mt_cores_used mt_cores_look(const char *root);
/* Between two looks, had others so much of the cores that `threads` of this process could not all have run? */
bool mt_cores_crowded(const mt_cores_used *before, const mt_cores_used *after, int threads);

/* Bytes free for an unprivileged writer where `path` is or will be; 0: nobody knows. */
size_t mt_disk_free(const char *path);

#endif
