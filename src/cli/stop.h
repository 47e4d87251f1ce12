/* stop.h - Ctrl-C, SIGTERM and SIGUSR2: the first requests a stop, the second ends the program at once.
 *
 * Long work checks the flag (tokenizing between records, downloads several times a second, a run between steps), ends with
 * MT_ESTOPPED or a checkpoint, and leaves nothing half-written. */
#ifndef MT_CLI_STOP_H
#define MT_CLI_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

/* From here on, signals request a stop.  SIGUSR2 is one of them, because mpirun passes it on without killing soon after.  A
 * closed terminal (SIGHUP), a closed pipe (SIGPIPE) and a file size limit (SIGXFSZ) end nothing: the failing write reports an
 * error. */
void mt_stop_catch(void);
/* Chooses what the first signal prints: that the run will save, or that it is still preparing. */
void mt_stop_saves(bool saves);
/* The first signal prints nothing here: another rank of the run prints it. */
void mt_stop_quietly(void);
const atomic_bool *mt_stop_flag(void);
/* The signal that requested a stop; 0: none. */
int mt_stop_signal(void);
/* The exit status after it, as shells count: 130 after SIGINT, 143 after SIGTERM, 140 after SIGUSR2. */
int mt_stop_status(void);
/* SIGUSR1 requests a checkpoint, and the run continues: returns true once per request. */
bool mt_stop_take_save(void);

#endif
