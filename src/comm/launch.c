/* launch.c - finds out whether a launcher started this program, which one, and with how many ranks. */
#include "comm/wire.h"

#include <stdio.h>
#include <stdlib.h>

/* Environment variables with the number of ranks, by launcher. */
static const struct {
    const char *variable, *launcher;
} counts[] = {
    { "OMPI_COMM_WORLD_SIZE", "mpirun" }, /* Open MPI */
    { "PMI_SIZE", "mpiexec" },            /* MPICH, Intel MPI, Slurm with PMI 2 */
    { "MV2_COMM_WORLD_SIZE", "mpirun" },  /* MVAPICH */
    { "SLURM_STEP_NUM_TASKS", "srun" },   /* also with PMIx, which has no such variable */
};

static long number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : 0;
}

static long ranks_started(const char **launcher)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        long n = number_in(counts[i].variable);
        *launcher = counts[i].launcher;
        if (n > 0) return n;
    }
    return 0;
}

int mt_comm_launched_rank(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK",
                                             "SLURM_PROCID" };
    const char *launcher;
    if (ranks_started(&launcher) <= 1) return 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i])) return (int)number_in(variables[i]);
    return 0;
}

/* torchrun's rendezvous is a protocol of PyTorch. */
static mt_rc refuse_torchrun(mt_err *err)
{
    const long here = number_in("LOCAL_WORLD_SIZE"), world = number_in("WORLD_SIZE"), machines = here > 0 ? world / here : 0;
    if (machines <= 1)
        return mt_fail(err, MT_EINVAL,
                       "megatrain is not started by torchrun: one process uses all GPUs of a machine.  Start it alone, with "
                       "megatrain train FILE.yaml --devices all");
    return mt_fail(
        err, MT_EINVAL,
        "megatrain is not started by torchrun, but by MPI, with one process a machine: mpirun -n %ld --map-by ppr:1:node "
        "megatrain train FILE.yaml --devices all",
        machines);
}

static bool under_torchrun(void) { return getenv("TORCHELASTIC_RUN_ID") || (getenv("LOCAL_RANK") && getenv("MASTER_ADDR")); }

static mt_rc check_size(const mt_wire *w, long started, const char *launcher, mt_err *err)
{
    if (w->n_ranks > 1) return MT_OK;
    return mt_fail(
        err, MT_EINVAL,
        "%s started %ld processes, and MPI sees only this one: the program's MPI and the launcher's are not the same.  Use "
        "the mpirun of the MPI this program was built with; with Slurm, srun --mpi=pmix (srun --mpi=list shows what "
        "there is)",
        launcher, started);
}

mt_rc mt_comm_launched(mt_comm **out, const mt_comm_options *o, mt_err *err)
{
    const char *launcher;
    const long started = ranks_started(&launcher);
    mt_wire *w = NULL;
    *out = NULL;
    if (started == 0 && under_torchrun()) return refuse_torchrun(err);
    if (started <= 1) {
        *out = mt_comm_alone();
        return MT_OK;
    }
    if (!mt__wire_mpi)
        return mt_fail(
            err, MT_EUNSUPPORTED,
            "%s started %ld processes, and this program was built without MPI: install an MPI (Debian: libopenmpi-dev, "
            "openmpi-bin) and run make again",
            launcher, started);
    MT_TRY(mt__wire_mpi(&w, o, err));
    mt_rc rc = check_size(w, started, launcher, err);
    if (rc) return w->api->close(w, true), rc;
    return mt__comm_over(out, w, o, err);
}
