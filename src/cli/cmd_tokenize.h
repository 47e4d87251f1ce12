/* cmd_tokenize.h - `megatrain tokenize DIR`: lines of text in, a JSON array of ids out for each. */
#ifndef MT_CLI_CMD_TOKENIZE_H
#define MT_CLI_CMD_TOKENIZE_H

/* argv[0] is "tokenize".  Returns the exit status: 0, 1 after an error, 2 for invalid arguments. */
int mt_cmd_tokenize(int argc, char **argv);

#endif
