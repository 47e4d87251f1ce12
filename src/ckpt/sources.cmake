set(sources names.c safetensors.c shards.c)
