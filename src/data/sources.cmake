set(sources arrow_batch.c arrow_schema.c arrow_value.c batch.c batch_json.c chat_end.c chat_mask.c codec.c flatbuf.c format_arrow.c
    format_csv.c format_json.c format_parquet.c format_text.c formats.c layout.c message_calls.c messages.c parquet_column.c parquet_meta.c
    parquet_runs.c parquet_schema.c parquet_values.c record_files.c records.c registry.c sampler.c sampler_open.c scalar.c source_tokens.c
    templates.c thoughts.c thrift.c)
