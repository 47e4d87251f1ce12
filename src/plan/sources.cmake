set(sources auto.c choose.c costs.c cut.c flops.c machine.c plan.c queues.c shapes.c step_time.c)
