set(sources adamw.c adamw_avx2.c adamw_avx512.c attention.c cache_attention.c cross_entropy.c embed.c glu.c linear.c ops_cpu.c rmsnorm.c rope.c rows.c sqnorm.c sqnorm_avx2.c sqnorm_avx512.c update.c)
