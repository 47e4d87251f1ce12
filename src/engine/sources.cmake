set(sources bench.c engine.c generate.c grads.c input.c keeps.c load.c memory.c ring.c sample.c step.c updates.c)
