/* complete.h - words for a shell's completion that --help does not list. */
#ifndef MT_CLI_COMPLETE_H
#define MT_CLI_COMPLETE_H

/* megatrain --complete FLAG: prints the possible values of the flag, one per line; nothing if they cannot be listed. */
int mt_complete(const char *flag);

#endif
