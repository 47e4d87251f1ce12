/* The tokenize command alone, for scripts that compare it with other implementations. */
#include "cli/cmd_tokenize.h"

int main(int argc, char **argv) { return mt_cmd_tokenize(argc, argv); }
