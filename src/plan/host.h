/* host.h - memory, cores and disk that this machine offers a run. */
#ifndef MT_PLAN_HOST_H
#define MT_PLAN_HOST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mt_host {
    size_t ram_total;    /* of the machine */
    size_t own;          /* memory of this process without file pages: initialized libraries, threads, the device driver */
    size_t files;        /* pages of files this process has in memory: program and libraries, mostly */
    size_t ram_free;     /* what this process may still allocate: the minimum of MemAvailable and every memory cgroup it is in */
    size_t ram_limit;    /* total of the machine or cgroup that sets this limit */
    char limited_by[96]; /* the source of the limit: "MemAvailable", "the memory cgroup /user.slice" */
    size_t memlock;      /* bytes that may be pinned; SIZE_MAX: any number */
    bool huge_pages;     /* transparent huge pages are available, on request or always */
    int numa_nodes;      /* at least 1 */
    int cores;           /* cores this process may use */
    char cpu[96];        /* "AMD EPYC 9B14" */
} mt_host;

/* root: "" for this machine; tests keep their own proc and sys elsewhere. */
mt_rc mt_host_read(mt_host *out, const char *root, mt_err *err);

/* Memory a run can count on: ram_free less a little for other processes, plus what this process already holds, which every plan
 * counts among its needs (base_host). */
static inline size_t mt_host_usable(const mt_host *h) { return h->ram_free - h->ram_free / 50 + h->own; }

/* True if so little memory is left that the system may kill a process. */
static inline bool mt_host_nearly_full(const mt_host *h) { return h->ram_free <= h->ram_limit / 100; }

/* How the cores of this process have spent their time so far.  Compare with a later reading. */
typedef struct mt_cores_used {
    double clock;     /* seconds, by the clock */
    double all, idle; /* busy seconds, summed over cores; 0: unknown */
    double own;       /* this process's */
} mt_cores_used;
mt_cores_used mt_cores_look(const char *root);
/* True if, between two readings, other processes used so much of the cores that `threads` of this process could not all run. */
bool mt_cores_crowded(const mt_cores_used *before, const mt_cores_used *after, int threads);

/* Bytes free for an unprivileged writer on the file system of `path`, which need not exist; 0: unknown. */
size_t mt_disk_free(const char *path);

#endif
