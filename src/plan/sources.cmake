set(sources auto.c choose.c costs.c cut.c flops.c limits.c machine.c plan.c queues.c shapes.c step_time.c)
