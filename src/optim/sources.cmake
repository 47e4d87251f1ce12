set(sources clip.c schedule.c)
