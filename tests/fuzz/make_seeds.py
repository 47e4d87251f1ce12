#!/usr/bin/env python3
"""Writes the Parquet and Arrow seeds of corpus/ with pyarrow: few rows and columns, each encoding and codec once."""
import datetime, decimal, os

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def parquet(name, table, **how):
    pq.write_table(table, f"{CORPUS}/parquet/{name}.parquet", store_schema=False, write_statistics=False,
                   **{"compression": "none", **how})


def arrow(name, table, form, **how):
    opener = ipc.new_file if form == "file" else ipc.new_stream
    with opener(f"{CORPUS}/arrow/{name}_{form}.arrow", table.schema, options=ipc.IpcWriteOptions(**how)) as out:
        out.write_table(table)


message = pa.list_(pa.struct([("r", pa.string()), ("c", pa.string())]))
chat = pa.table({"m": pa.array([[{"r": "u", "c": "hi"}, {"r": "a", "c": None}], [], None], message),
                 "i": pa.array([1, None, 3], pa.int64())})
maps = pa.table({"m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
                 "s": pa.array([{"x": 1.5}, None, {"x": None}], pa.struct([("x", pa.float32())]))})
scalars = pa.table({"d": pa.array([datetime.date(2020, 1, 1)], pa.date32()),
                    "t": pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("us", tz="UTC")),
                    "dec": pa.array([decimal.Decimal("1.25")], pa.decimal128(9, 2)), "b": [True],
                    "h": pa.array([b"ab"], pa.binary(2))})
numbers = pa.table({"n": pa.array([1, 2, 300], pa.int32())})
strings = pa.table({"s": ["abc", "abd", "x"]})
views = pa.table({"v": pa.array(["short", None, "longer than twelve bytes"], pa.string_view()),
                  "l": pa.array([[1], None, []], pa.list_view(pa.int32())),
                  "f": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
                  "d": pa.array(["x", "y", "x"]).dictionary_encode(), "n": pa.nulls(3)})

for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
    parquet("chat_" + codec, chat, compression=codec)
parquet("chat_v2", chat, compression="snappy", data_page_version="2.0")
parquet("map", maps)
parquet("scalars", scalars)
parquet("groups", chat, row_group_size=1, use_dictionary=False)
parquet("delta", numbers, use_dictionary=False, column_encoding={"n": "DELTA_BINARY_PACKED"})
parquet("split", numbers, use_dictionary=False, column_encoding={"n": "BYTE_STREAM_SPLIT"})
parquet("lengths", strings, use_dictionary=False, column_encoding={"s": "DELTA_LENGTH_BYTE_ARRAY"})
parquet("strings", strings, use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"})
parquet("rle", pa.table({"b": [True, False, None]}), use_dictionary=False, column_encoding={"b": "RLE"})
parquet("int96", pa.table({"t": pa.array([1], pa.timestamp("ns"))}), use_deprecated_int96_timestamps=True)
for form in ["file", "stream"]:
    arrow("chat", chat, form)
    arrow("map", maps, form)
    arrow("scalars", scalars, form)
    arrow("views", views, form)
arrow("chat_zstd", chat, "stream", compression="zstd")
arrow("chat_lz4", chat, "file", compression="lz4")
arrow("legacy", chat, "stream", use_legacy_format=True, metadata_version=ipc.MetadataVersion.V4)
