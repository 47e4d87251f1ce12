/* complete.h - words for a shell's completion that --help does not list. */
#ifndef MT_CLI_COMPLETE_H
#define MT_CLI_COMPLETE_H

/* megatrain --complete FLAG: the values the flag may be followed by, a line each; nothing if they cannot be listed. */
int mt_complete(const char *flag);

#endif
