set(sources arrow_batch.c arrow_schema.c arrow_value.c batch.c batch_json.c cache.c cache_trim.c chat_end.c chat_mask.c chunk.c codec.c
    flatbuf.c format_arrow.c format_csv.c format_json.c format_parquet.c format_text.c formats.c group.c layout.c layout_detect.c lint.c
    maker.c message_calls.c messages.c mix.c packing.c parquet_column.c parquet_meta.c parquet_runs.c parquet_schema.c
    parquet_values.c pipeline.c prefetch.c record_files.c records.c registry.c report.c sampler.c sampler_open.c scalar.c
    shuffle.c source_tokens.c specials.c split_spec.c store.c store_build.c store_file.c subset.c templates.c thoughts.c thrift.c
    tools_text.c)
