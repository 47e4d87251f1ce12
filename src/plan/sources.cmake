set(sources choose.c cut.c flops.c plan.c shapes.c)
