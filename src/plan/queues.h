/* queues.h - a small simulation: tasks in the sequencer's queues, which share the link and host memory.
 *
 * A queue does its tasks one after the other, in the order they were added; a task starts when those it comes after are done.
 * Tasks that run at the same time share resources: copies both ways are slower than one way, copies in one direction take turns,
 * Adam gets the host memory bandwidth that copies leave, and products run a little slower beside copies. */
#ifndef MT_PLAN_QUEUES_H
#define MT_PLAN_QUEUES_H

#include "plan/machine.h"
#include "schedule/sequence.h"

typedef struct mt_task {
    double work;              /* seconds (compute, PIECE), bytes (copies) or parameters (Adam) */
    int after[MT_QUEUES - 1]; /* -1: no more */
    int next;                 /* in its queue */
    double end;               /* seconds; negative: not done */
} mt_task;

typedef struct mt_queues {
    mt_task *tasks;
    size_t n, cap;
    int first[MT_QUEUES], last[MT_QUEUES];
    bool failed; /* no memory for a task */
} mt_queues;

void mt_queues_clear(mt_queues *q);
void mt_queues_free(mt_queues *q);
/* Returns the task's number.  It starts after up to three others; -1: none. */
int mt_queues_add(mt_queues *q, mt_queue queue, double work, int after1, int after2, int after3);
/* The task also starts after another one.  It has at most MT_QUEUES - 1 of them, because a queue is in order. */
void mt_queues_after(mt_queues *q, int task, int after);
/* Runs all tasks, with state of this form, and fills tasks[i].end.  False: a task waits for a later one of its own queue
 * (a bug in the caller). */
bool mt_queues_run(mt_queues *q, const mt_machine *m, mt_state_form form);

#endif
