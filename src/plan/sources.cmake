set(sources choose.c cut.c flops.c machine.c plan.c shapes.c)
