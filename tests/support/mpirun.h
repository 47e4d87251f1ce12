/* mpirun.h - a program as the ranks of an MPI job on this machine, run by a test. */
#ifndef MT_TEST_MPIRUN_H
#define MT_TEST_MPIRUN_H

#include "process.h"

#include <stdbool.h>

/* The launcher, or NULL: built without MPI, or there is none. */
static inline const char *mpirun_path(void)
{
    static const char *const paths[] = { "/usr/bin/mpirun", "/usr/local/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun" };
    const char *given = getenv("MT_MPIRUN");
    if (given) return given;
    if (!MT_HAVE_MPI) return NULL;
    for (size_t i = 0; i < MT_COUNT(paths); i++)
        if (access(paths[i], X_OK) == 0) return paths[i];
    return NULL;
}

#define MPIRUN_OR_SKIP()                                                                                                         \
    do {                                                                                                                         \
        if (!MT_HAVE_MPI) mt_skip("built without MPI");                                                                          \
        if (!mpirun_path()) mt_skip("there is no mpirun");                                                                       \
    } while (0)

/* n ranks of `binary`, more than there are cores if need be, also as root, without a wait that burns a core.  n 0: the caller says how
 * many, of what. */
static inline void mpirun_init(program *p, const char *dir, int n, const char *binary)
{
    static char count[16];
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    setenv("OMPI_MCA_btl", "self,vader,tcp", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1); /* containers forbid it, and Open MPI then says so */
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);          /* after a failure it would wait two seconds before it kills */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    snprintf(count, sizeof count, "%d", n);
    program_init(p, dir);
    p->n_args = 0;
    const char *const words[] = { mpirun_path(), "--oversubscribe", "--bind-to", "none", "-n", count, binary };
    for (size_t i = 0; i < (n ? MT_COUNT(words) : 4); i++) program_arg(p, words[i]);
}

#endif
