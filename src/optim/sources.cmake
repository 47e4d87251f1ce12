set(sources adamw.c adamw_avx2.c adamw_avx512.c clip.c lion.c lion_avx2.c lion_avx512.c optimizer.c schedule.c state.c)
