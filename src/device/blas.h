/* blas.h - OpenBLAS as we use it: single-threaded inside our own pool, and running the right kernels.
 *
 * A distribution's OpenBLAS does not know CPUs newer than itself and falls back to SSE3 code at a fifth of
 * the speed.  It reads OPENBLAS_CORETYPE in a constructor, so the only cure is to set that variable and
 * start the program again: mt_blas_reexec(), first thing in main().
 *
 * It also maps a buffer for every thread when that thread first multiplies, and retries forever if there is no room.
 * mt_blas_reserve() makes it map them all at a time when it is known that there is room. */
#ifndef MT_DEVICE_BLAS_H
#define MT_DEVICE_BLAS_H

#include "base/err.h"

#include <stdbool.h>

void mt_blas_single_thread(void);

/* "OpenBLAS SkylakeX" */
void mt_blas_name(char *out, size_t n);

/* Rate of a product on one core, best of a dozen tries: tens of milliseconds. */
double mt_blas_gflops(void);

/* The best OPENBLAS_CORETYPE for this CPU, or NULL if the current one is as good.  Pure: for tests. */
const char *mt_blas_better_core(const char *running, bool has_avx2, bool has_avx512);

/* Re-executes the program once, with the better core and, where address space is limited, without the library's own threads;
 * returns if there is nothing to do or it cannot. */
void mt_blas_reexec(char **argv);

/* Room for n_threads that multiply at a time.  MT_ENOMEM: there is not enough. */
mt_rc mt_blas_reserve(int n_threads, mt_err *err);

#endif
