set(sources clip.c schedule.c select.c)
