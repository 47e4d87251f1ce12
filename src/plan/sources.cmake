set(sources choose.c cut.c plan.c)
