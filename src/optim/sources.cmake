set(sources clip.c schedule.c state.c)
