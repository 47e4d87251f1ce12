set(sources adamw.c adamw_avx2.c adamw_avx512.c clip.c optimizer.c schedule.c state.c)
