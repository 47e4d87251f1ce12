set(sources cmd_tokenize.c)
