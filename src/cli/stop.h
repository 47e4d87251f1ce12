/* stop.h - Ctrl-C, SIGTERM and SIGUSR2: the first asks, the second ends the program at once.
 *
 * Long work looks at the flag (tokenizing between records, downloads several times a second, a run between steps), ends with
 * MT_ESTOPPED or a checkpoint, and leaves nothing half-made behind. */
#ifndef MT_CLI_STOP_H
#define MT_CLI_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

/* From here on signals ask, SIGUSR2 among them, which mpirun passes on: after the others it kills.  A closed terminal (SIGHUP), a
 * reader that is gone (SIGPIPE) and a limit on files (SIGXFSZ) end nothing: the write that fails says so. */
void mt_stop_catch(void);
/* What the first signal prints: the run is between steps and will save, or it only prepares. */
void mt_stop_saves(bool saves);
/* The first signal prints nothing: another rank of the run does. */
void mt_stop_quietly(void);
const atomic_bool *mt_stop_flag(void);
/* Which signal asked; 0: none did. */
int mt_stop_signal(void);
/* The exit status after it, as shells count: 130 after SIGINT, 143 after SIGTERM, 140 after SIGUSR2. */
int mt_stop_status(void);
/* SIGUSR1 asks for a checkpoint and the run continues: true once for each request. */
bool mt_stop_take_save(void);

#endif
