set(sources
  cmd_tokenize.c
  plot.c
  progress.c
  terminal.c
)
