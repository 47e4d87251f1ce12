set(sources names.c safetensors.c)
