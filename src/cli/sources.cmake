set(sources
  plot.c
  progress.c
  terminal.c
)
