set(sources advise.c auto.c buffer_index.c choose.c costs.c cut.c describe.c flops.c gpus.c host.c knobs.c least.c limits.c machine.c measure.c plan.c queues.c shapes.c step_time.c)
