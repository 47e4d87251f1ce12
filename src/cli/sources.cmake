set(sources
  cmd_grad.c
  cmd_inspect.c
  flags.c
  plot.c
  progress.c
  terminal.c
)
