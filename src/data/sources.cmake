set(sources batch.c batch_json.c source_tokens.c)
