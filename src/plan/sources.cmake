set(sources choose.c cut.c flops.c limits.c machine.c plan.c shapes.c)
