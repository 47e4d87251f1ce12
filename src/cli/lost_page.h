/* lost_page.h - an error message for a mapped file that became shorter, or whose disk failed.
 *
 * Reading such a page ends the process with SIGBUS. Weights and checkpoints are checked before they are read (F5 in
 * docs/invariants.md).  Data files are read by many threads during tokenization, so for them, and for any other mapping, the
 * handler prints which file it was and what to do.  The process then exits with status 1. */
#ifndef MT_CLI_LOST_PAGE_H
#define MT_CLI_LOST_PAGE_H

void mt_lost_page_explain(void);

#endif
