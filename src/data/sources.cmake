set(sources batch.c batch_json.c)
