set(sources adamw.c adamw_avx2.c adamw_avx512.c sqnorm.c sqnorm_avx2.c sqnorm_avx512.c)
