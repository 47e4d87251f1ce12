set(sources blas.c device.c device_cpu.c trace.c)
