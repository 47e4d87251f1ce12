set(sources names.c outfile.c safetensors.c safetensors_write.c shards.c shards_write.c weights.c)
