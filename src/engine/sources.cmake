set(sources bench.c engine.c grads.c input.c keeps.c load.c memory.c ring.c step.c updates.c)
