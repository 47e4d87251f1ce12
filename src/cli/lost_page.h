/* lost_page.h - a mapped file that became shorter, or whose disk failed, in words.
 *
 * A look at such a page ends the process with SIGBUS.  Weights and checkpoints are asked for first (F5 in docs/invariants.md);
 * records of data files are looked at by many threads and for as long as they are tokenized, so for them, and for whatever else
 * is mapped, this is said: which file, and what to do.  The process then ends with status 1. */
#ifndef MT_CLI_LOST_PAGE_H
#define MT_CLI_LOST_PAGE_H

void mt_lost_page_explain(void);

#endif
