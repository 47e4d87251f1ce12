set(sources block.c config.c ends.c families.c family_llama.c family_mistral.c family_qwen2.c family_qwen3.c model.c rope_table.c select.c stop_ids.c)
