set(sources schedule.c)
