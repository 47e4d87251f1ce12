set(sources bench.c engine.c events.c feed.c generate.c grads.c hold.c homes.c input.c keeps.c load.c memory.c metrics.c output_dir.c port.c rate.c run_files.c ring.c
    sample.c snapshot.c spent.c state.c step.c train.c train_earlier.c train_load.c train_open.c train_plan.c train_samples.c train_save.c train_state.c
    updater.c updates.c)
