set(sources blas.c choices.c device.c device_cpu.c slots.c trace.c tuned.c)
