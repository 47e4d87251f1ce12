set(sources engine.c exchange.c exchange_units.c fold.c generate.c grads.c homes.c input.c keeps.c lane.c lanes.c load.c locks.c machines.c memory.c peers.c pieces.c port.c reads.c ring.c sample.c snapshot.c state.c
    state_io.c step.c updater.c updates.c visit.c)
