#ifndef MT_CLI_CMD_GENERATE_H
#define MT_CLI_CMD_GENERATE_H

/* megatrain generate MODEL --prompt "...": returns the exit status. */
int mt_cmd_generate(int argc, char **argv);

#endif
