/* ranks.h - what the ranks of a run do together besides computing: take turns, compare their inputs, agree on the next action.
 * With one rank, all of it does nothing.
 *
 * Every rank makes the same calls in the same order.  A rank whose call fails must fail the comm (mt_comm_api.fail), or the
 * others wait for it forever. */
#ifndef MT_RUN_RANKS_H
#define MT_RUN_RANKS_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Rank 0 first, for as long as it needs, then all others: for work whose result the others then find, such as a download or
 * tokenized samples. what: name for messages, such as "the data". */
mt_rc mt_ranks_in_turn(mt_comm *c, mt_rc (*work)(void *user, mt_err *err), void *user, const char *what, mt_err *err);

/* Copies n bytes from rank 0 to every rank. */
mt_rc mt_ranks_take_first(mt_comm *c, void *data, size_t n, const char *what, mt_err *err);

/* Fails unless every rank runs the same version with the same settings, except those that belong to a machine: devices, memory,
 * paths. */
mt_rc mt_ranks_compare_settings(mt_comm *c, const char *version, const mt_settings *s, mt_err *err);

/* A fact that must be equal on all ranks. */
typedef struct mt_rank_fact {
    char what[96]; /* "the model (config.json)" */
    char is[192];
} mt_rank_fact;
mt_rc mt_ranks_compare(mt_comm *c, const mt_rank_fact *facts, size_t n, mt_err *err);

/* Bytes per second each way of a rank while all send to all: of the slowest rank.  Takes a moment to measure; then the first rank
 * remembers it for this list of hosts (plan/rates.h).  With one rank: 0. */
mt_rc mt_ranks_network(mt_comm *c, double *rate, mt_err *err);

/* Draws a number that no other process draws; never 0. */
uint64_t mt_ranks_token(void);

/* Fails unless all ranks see the same directory: rank 0 writes a token there, and the others read it. */
mt_rc mt_ranks_share_dir(mt_comm *c, const char *dir, mt_err *err);

#endif
