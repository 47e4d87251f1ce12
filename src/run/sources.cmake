set(sources bench.c data.c devices.c events.c feed.c metrics.c output_dir.c ranks.c rate.c run_files.c spent.c train.c train_earlier.c train_files.c
    train_load.c train_model.c train_open.c train_plan.c train_ranks.c train_samples.c train_save.c train_state.c)
