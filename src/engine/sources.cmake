set(sources engine.c generate.c grads.c hold.c homes.c input.c keeps.c load.c memory.c port.c ring.c sample.c snapshot.c state.c step.c updater.c updates.c)
