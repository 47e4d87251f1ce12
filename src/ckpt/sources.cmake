set(sources checkpoint.c checksum.c ckpt_state.c export.c export_config.c manifest.c names.c outdir.c outfile.c safetensors.c safetensors_write.c shards.c shards_write.c weights.c)
