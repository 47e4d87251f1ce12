#!/usr/bin/env python3
"""Writes the files of this folder with pyarrow and Hugging Face datasets, and what must be read from them.

    python make_goldens.py        (pyarrow, datasets; versions are noted in README.md)

Every case is a file (or folder) under files/, its records as JSON Lines under expected/, and a line of
cases.jsonl: the case's name, the path, and the options to read it with.  test_formats.c walks that list.
What a value becomes is our choice where JSON has no such type: dates and times as isoformat(), decimals as
their digits, bytes as text, maps with string keys as objects and others as lists of key and value.
"""
import csv, datetime, decimal, io, json, os, random, shutil, tempfile

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from plain_records import records

HERE = os.path.dirname(os.path.abspath(__file__))
FILES, EXPECTED = os.path.join(HERE, "files"), os.path.join(HERE, "expected")
for folder in (FILES, EXPECTED):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
cases = []
random.seed(7)


def case(name, path, expected, bad=None, **options):
    """bad: row numbers (from 1) that are reported as bad; they are not among the expected records."""
    with open(os.path.join(EXPECTED, name + ".jsonl"), "w") as out:
        for record in expected:
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
    cases.append({"name": name, "path": path, "bad": bad or [], **options})


def parquet(name, table, expected=None, **how):
    pq.write_table(table, os.path.join(FILES, name + ".parquet"), **{"compression": "none", **how})
    case(name, name + ".parquet", records(table) if expected is None else expected)


def arrow(name, table, form="file", options=None, batch_rows=None, expected=None):
    opener = ipc.new_file if form == "file" else ipc.new_stream
    with opener(os.path.join(FILES, name + ".arrow"), table.schema, options=options or ipc.IpcWriteOptions()) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    case(name, name + ".arrow", records(table) if expected is None else expected)


def text_file(name, data):
    with open(os.path.join(FILES, name), "wb") as out:
        out.write(data if isinstance(data, bytes) else data.encode())


# ---- tables -------------------------------------------------------------------------------------

message = pa.struct([("role", pa.string()), ("content", pa.string())])
chat_rows = [
    {"messages": [{"role": "user", "content": "Hi 👋"}, {"role": "assistant", "content": "Grüße, 你好"}], "score": 1.5, "id": 1},
    {"messages": [], "score": None, "id": 2},
    {"messages": None, "score": -0.0, "id": None},
    {"messages": [None, {"role": None, "content": ""}, {"role": "tool", "content": None}], "score": 1e300, "id": 4},
    {"messages": [{"role": "user", "content": "x" * 200}], "score": 0.1, "id": -(2**63)},
]
chat = pa.table({k: pa.array([r[k] for r in chat_rows], t) for k, t in
                 [("messages", pa.list_(message)), ("score", pa.float64()), ("id", pa.int64())]})

deep_type = pa.list_(pa.list_(pa.string()))
deep = pa.table({
    "lists": pa.array([[["a", None], [], None], None, [], [[]], [None], [["b"], ["c", "d", "e"]]], deep_type),
    "outer": pa.array([{"inner": {"x": 1, "tags": ["p", "q"]}}, {"inner": {"x": None, "tags": []}}, {"inner": None}, None,
                       {"inner": {"x": 5, "tags": None}}, {"inner": {"x": 6, "tags": [None]}}],
                      pa.struct([("inner", pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))]))])),
    "counts": pa.array([[("a", 1), ("b", None)], [], None, [("c", 3)], [("d", 4)], []], pa.map_(pa.string(), pa.int32())),
    "by_number": pa.array([[(1, "x")], [(2, None), (3, "z")], [], None, [], []], pa.map_(pa.int32(), pa.string())),
    "calls": pa.array([[{"name": "f", "args": [{"k": "a", "v": [1, 2]}, {"k": "b", "v": []}]}], [], None,
                       [{"name": None, "args": None}], [None], [{"name": "g", "args": []}]],
                      pa.list_(pa.struct([("name", pa.string()),
                                          ("args", pa.list_(pa.struct([("k", pa.string()), ("v", pa.list_(pa.int64()))])))]))),
})

required = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [[1], [2, 3], []]}, schema=pa.schema([
    pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string(), nullable=False),
    pa.field("c", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False)]))

when = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
types = pa.table({
    "bool": pa.array([True, None, False], pa.bool_()),
    "i8": pa.array([-128, None, 127], pa.int8()), "u8": pa.array([0, None, 255], pa.uint8()),
    "i16": pa.array([-32768, None, 32767], pa.int16()), "u16": pa.array([0, None, 65535], pa.uint16()),
    "i32": pa.array([-2**31, None, 2**31 - 1], pa.int32()), "u32": pa.array([0, None, 2**32 - 1], pa.uint32()),
    "i64": pa.array([-2**63, None, 2**63 - 1], pa.int64()), "u64": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "f16": pa.array([np.float16(1.5), None, np.float16(-65504)], pa.float16()),
    "f32": pa.array([1.1, None, -3e38], pa.float32()), "f64": pa.array([float("inf"), None, 5e-324], pa.float64()),
    "text": pa.array(["", None, "Ελλάδα"], pa.string()), "large": pa.array(["a", None, "𝄞"], pa.large_string()),
    "bytes": pa.array([b"", None, b"abc"], pa.binary()), "fixed": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
    "nothing": pa.nulls(3),
    "date": pa.array([datetime.date(1970, 1, 1), None, datetime.date(1600, 2, 29)], pa.date32()),
    "t_s": pa.array([when.replace(microsecond=0), None, datetime.datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("s")),
    "t_ms": pa.array([when.replace(microsecond=123000), None, datetime.datetime(1, 1, 1)], pa.timestamp("ms")),
    "t_us": pa.array([when, None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),
    "t_utc": pa.array([when, None, datetime.datetime(1900, 3, 1)], pa.timestamp("us", tz="UTC")),
    "time_ms": pa.array([datetime.time(1, 2, 3), None, datetime.time(23, 59, 59, 999000)], pa.time32("ms")),
    "time_us": pa.array([datetime.time(1, 2, 3), None, datetime.time(0, 0, 0, 1)], pa.time64("us")),
    "money": pa.array([decimal.Decimal("12.34"), None, decimal.Decimal("-0.05")], pa.decimal128(9, 2)),
    "big": pa.array([decimal.Decimal("12345678901234567890123.4567"), None, decimal.Decimal("-1.0000")], pa.decimal128(38, 4)),
    "huge": pa.array([decimal.Decimal(10) ** 70, None, decimal.Decimal(-1)], pa.decimal256(76, 0)),
})
nanos = pa.table({"t": pa.array([1, 1700000000123456789, -1], pa.timestamp("ns"))})
nanos_expected = [{"t": "1970-01-01T00:00:00.000000001"}, {"t": "2023-11-14T22:13:20.123456789"},
                  {"t": "1969-12-31T23:59:59.999999999"}]

N = 1500
long = pa.table({
    "n": pa.array([i * i % 1009 - 500 for i in range(N)], pa.int32()),
    "wide": pa.array([random.choice([None, random.randrange(-2**62, 2**62)]) for _ in range(N)], pa.int64()),
    "word": pa.array([random.choice(["yes", "no", "perhaps", None]) for _ in range(N)], pa.string()),
    "unique": pa.array([f"row-{i:05d}" for i in range(N)], pa.string()),
    "real": pa.array([random.random() for _ in range(N)], pa.float32()),
    "flag": pa.array([i % 7 < 3 for i in range(N)], pa.bool_()),
    "list": pa.array([None if i % 11 == 0 else list(range(i % 5)) for i in range(N)], pa.list_(pa.int32())),
})
small = long.slice(100, 120)
empty = chat.slice(0, 0)

# ---- Parquet ------------------------------------------------------------------------------------

for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
    for version in ["1.0", "2.0"]:
        parquet(f"chat_{codec}_v{version[0]}", chat, compression=codec, data_page_version=version)
for version in ["1.0", "2.0"]:
    parquet(f"deep_v{version[0]}", deep, data_page_version=version)
    parquet(f"deep_plain_v{version[0]}", deep, data_page_version=version, use_dictionary=False, compression="snappy")
parquet("deep_two_level_names", deep, use_compliant_nested_type=False)
parquet("required", required)
parquet("types", types)
parquet("types_plain", types, use_dictionary=False)
parquet("types_v1", types, version="1.0", expected=[
    {**r, "t_s": r["t_s"], "u32": r["u32"]} for r in records(types)])
parquet("types_decimal_as_integer", types.select(["money"]), store_decimal_as_integer=True)
parquet("nanos", nanos, nanos_expected)
parquet("int96", nanos, nanos_expected, use_deprecated_int96_timestamps=True)
parquet("empty", empty)
encodings = {
    "delta_ints": ({"n": "DELTA_BINARY_PACKED", "wide": "DELTA_BINARY_PACKED"}, ["n", "wide"]),
    "delta_lengths": ({"word": "DELTA_LENGTH_BYTE_ARRAY", "unique": "DELTA_LENGTH_BYTE_ARRAY"}, ["word", "unique"]),
    "delta_strings": ({"word": "DELTA_BYTE_ARRAY", "unique": "DELTA_BYTE_ARRAY"}, ["word", "unique"]),
    "split": ({"n": "BYTE_STREAM_SPLIT", "wide": "BYTE_STREAM_SPLIT", "real": "BYTE_STREAM_SPLIT"}, ["n", "wide", "real"]),
    "rle_booleans": ({"flag": "RLE"}, ["flag"]),
    "plain": ({"flag": "PLAIN", "n": "PLAIN", "word": "PLAIN"}, ["flag", "n", "word"]),
}
for name, (encoding, columns) in encodings.items():
    for version in ["1.0", "2.0"]:
        parquet(f"encoding_{name}_v{version[0]}", long.select(columns).slice(0, 400), use_dictionary=False,
                column_encoding=encoding, data_page_version=version, compression="zstd")
fixed = pa.table({"f": pa.array([b"aaaa", b"aabb", None, b"zzzz"], pa.binary(4))})
parquet("fixed_delta", fixed, use_dictionary=False, column_encoding={"f": "DELTA_BYTE_ARRAY"})
parquet("fixed_split", fixed, use_dictionary=False, column_encoding={"f": "BYTE_STREAM_SPLIT"})
parquet("dictionary", long.select(["n", "word", "real", "list"]), use_dictionary=True, compression="zstd")
parquet("many_pages_v1", long, data_page_size=256, write_batch_size=16, compression="zstd", row_group_size=1000)
parquet("many_pages_v2", small, data_page_size=64, write_batch_size=8, data_page_version="2.0", compression="snappy")
parquet("many_groups", small, row_group_size=7, use_dictionary=False)
parquet("dictionary_fallback", long.select(["unique", "n"]), dictionary_pagesize_limit=1024, data_page_size=1024,
        write_batch_size=64, compression="zstd")
parquet("large_string_zstd", pa.table({"text": ["lorem ipsum " * 3000, "", "dolor"]}), compression="zstd")
pq.write_table(chat, os.path.join(FILES, "columns.parquet"))
case("columns", "columns.parquet", [{"id": r["id"]} for r in records(chat)], columns=["id"])
bad_text = pa.table({"s": pa.array([b"ok", b"\xff\xfe", b"fine"], pa.binary())})
pq.write_table(bad_text, os.path.join(FILES, "not_utf8.parquet"))
case("not_utf8_parquet", "not_utf8.parquet", [{"s": "ok"}, {"s": "fine"}], bad=[2])

import handmade  # noqa: E402

for name, make in [("hand_two_level_list", handmade.two_level_list), ("hand_tuple_list", handmade.tuple_list),
                   ("hand_bare_repeated", handmade.bare_repeated), ("hand_lz4_hadoop", lambda p: handmade.plain_binary(p, 5)),
                   ("hand_lz4_hadoop_nested", lambda p: handmade.bare_repeated(p, 5))]:
    path = os.path.join(FILES, name + ".parquet")
    make(path)
    case(name, name + ".parquet", records(pq.read_table(path)))

# ---- Arrow --------------------------------------------------------------------------------------

views = pa.table({
    "view": pa.array(["short", None, "a string of more than twelve bytes", ""], pa.string_view()),
    "bytes": pa.array([b"short", None, b"a string of more than twelve bytes", b""], pa.binary_view()),
    "listview": pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int32())),
    "large_listview": pa.array([["a"], None, [], [None, "b"]], pa.large_list_view(pa.string())),
})
extra = pa.table({
    "large_list": pa.array([[1, None], None, [], [2]], pa.large_list(pa.int16())),
    "fixed_list": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int8(), 2)),
    "date64": pa.array([datetime.date(2020, 1, 1), None, datetime.date(1969, 12, 31), datetime.date(2000, 2, 29)], pa.date64()),
    "time_s": pa.array([datetime.time(1, 2, 3), None, datetime.time(0), datetime.time(23)], pa.time32("s")),
    "dict": pa.array(["x", "y", None, "x"]).dictionary_encode(),
    "dict8": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), pa.array(["p", None])),
    "dict_list": pa.array([["u", "v"], None, [], ["u"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "dec32": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-9.9"), decimal.Decimal("0.0")], pa.decimal32(5, 1)),
    "dec64": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-9.9"), decimal.Decimal("0.0")], pa.decimal64(15, 1)),
    "duration": pa.array([1, None, -5, 0], pa.duration("s")),
})
extra_expected = records(extra.drop_columns(["duration"]))
for record, seconds in zip(extra_expected, [1, None, -5, 0]):
    record["duration"] = seconds

for form in ["file", "stream"]:
    for codec in [None, "lz4", "zstd"]:
        options = ipc.IpcWriteOptions(compression=codec)
        arrow(f"arrow_{form}_{codec or 'plain'}_chat", chat, form, options)
        arrow(f"arrow_{form}_{codec or 'plain'}_small", small, form, options, batch_rows=50)
    arrow(f"arrow_{form}_types", types, form)
    arrow(f"arrow_{form}_deep", deep, form)
    arrow(f"arrow_{form}_extra", extra, form, expected=extra_expected)
    arrow(f"arrow_{form}_views", views, form)
    arrow(f"arrow_{form}_empty", empty, form)
    arrow(f"arrow_{form}_sliced", deep.slice(1, 4), form)
    arrow(f"arrow_{form}_chunks", pa.concat_tables([chat, chat.slice(2, 2), empty, chat.slice(4)]), form)
arrow("arrow_views_zstd", views, "file", ipc.IpcWriteOptions(compression="zstd"))
arrow("arrow_nanos", nanos, expected=nanos_expected)
arrow("arrow_legacy", chat, "stream", ipc.IpcWriteOptions(use_legacy_format=True, metadata_version=ipc.MetadataVersion.V4))
words = [pa.array(["a", "b"]).dictionary_encode(),
         pa.DictionaryArray.from_arrays(pa.array([2, 0, 1]), pa.array(["a", "b", "c"]))]
for name, deltas, form in [("replaced", False, "stream"), ("delta", True, "stream"), ("delta_file", True, "file")]:
    schema = pa.schema([("w", words[0].type)])
    opener = ipc.new_file if form == "file" else ipc.new_stream
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=deltas, compression="zstd" if deltas else None)
    with opener(os.path.join(FILES, f"arrow_dictionary_{name}.arrow"), schema, options=options) as writer:
        for array in words:
            writer.write_batch(pa.record_batch([array], schema=schema))
    case(f"arrow_dictionary_{name}", f"arrow_dictionary_{name}.arrow", [{"w": w} for w in "abcab"])
arrow("arrow_not_utf8", pa.table({"s": pa.array([b"ok", b"\xff\xfe", b"fine"], pa.binary())}), expected=[{"s": "ok"}, {"s": "fine"}])
cases[-1]["bad"] = [2]
with ipc.new_file(os.path.join(FILES, "columns.arrow"), types.schema) as writer:
    writer.write_table(types)
case("columns_arrow", "columns.arrow", [{"i8": r["i8"], "text": r["text"]} for r in records(types)], columns=["i8", "text"])

# ---- save_to_disk -------------------------------------------------------------------------------

import datasets  # noqa: E402

saved = datasets.Dataset.from_list([{"instruction": f"Add {i} and {i}.", "output": str(2 * i), "history": [["a", "b"]] * (i % 3)} for i in range(9)])
saved.save_to_disk(os.path.join(FILES, "saved"), num_shards=2)
case("saved", "saved", saved.to_list())
datasets.DatasetDict({"train": saved.select(range(4)), "test": saved.select(range(4, 6))}).save_to_disk(os.path.join(FILES, "saved_dict"))
case("saved_dict_train", "saved_dict", saved.select(range(4)).to_list())
case("saved_dict_test", "saved_dict", saved.select(range(4, 6)).to_list(), split="test")
os.makedirs(os.path.join(FILES, "repo", "data"))
for split, first in [("train-00000-of-00002", 0), ("train-00001-of-00002", 3), ("test-00000-of-00001", 6)]:
    pq.write_table(pa.table({"i": list(range(first, first + 3))}), os.path.join(FILES, "repo", "data", split + ".parquet"))
text_file("repo/README.md", "# not data\n")
text_file("repo/train-notes.txt", "no data either\n")
case("repo_train", "repo", [{"i": i} for i in range(6)])
case("repo_test", "repo", [{"i": i} for i in range(6, 9)], split="test")
case("glob", "repo/data/*-of-00002.parquet", [{"i": i} for i in range(6)])

# ---- JSON ---------------------------------------------------------------------------------------

objects = [{"a": 1, "t": "Grüße \"quoted\"\n\ttab \\ slash 👋"}, {"a": None, "t": "", "l": [1, 2.5, True, {"x": []}]}, {"t": "end", "a": -3}]
dump = lambda o, **kw: json.dumps(o, ensure_ascii=False, **kw)
variants = {
    "lines.jsonl": "\n".join(map(dump, objects)) + "\n",
    "lines_no_newline_at_end.jsonl": "\n".join(map(dump, objects)),
    "lines_crlf_bom.jsonl": b"\xef\xbb\xbf" + "\r\n".join(map(dump, objects)).encode() + b"\r\n\r\n",
    "lines_named_json.json": "\n".join(map(dump, objects)),
    "lines_ascii.jsonl": "\n\n".join(map(json.dumps, objects)),
    "array.json": dump(objects),
    "array_pretty.json": dump(objects, indent=2),
    "array_bom_crlf.json": b"\xef\xbb\xbf" + dump(objects, indent=1).replace("\n", "\r\n").encode(),
    "pretty_stream.json": "\n".join(dump(o, indent=4) for o in objects),
    "one_line_stream.json": "".join(map(dump, objects)),
    "one_object.json": dump(objects[1], indent=2),
    "no_extension": "\n".join(map(dump, objects)),
    "empty.jsonl": "", "blank.jsonl": "\n\r\n \n", "empty_array.json": "[ ]\n",
}
for name, data in variants.items():
    text_file(name, data)
    want = [objects[1]] if name.startswith("one_object") else [] if "empty" in name or "blank" in name else objects
    case("json_" + name, name, want)
text_file("field.json", dump({"version": [1, {"x": 2}], "data": objects, "more": 1}))
case("json_field", "field.json", objects, field="data")
text_file("bad_lines.jsonl", b'{"a": 1}\n{"a": \n{"a": "\xff"}\n[1]\n{"a": 2} x\n{"a": 3}\nnull\n{"a": 4')
case("json_bad_lines", "bad_lines.jsonl", [{"a": 1}, {"a": 3}], bad=[2, 3, 4, 5, 7, 8])
text_file("bad_pretty.json", '[\n  {\n    "a": 1\n  },\n  {\n    "a": oops\n  },\n  {\n    "a": 3\n  },\n  4\n]\n')
case("json_bad_pretty", "bad_pretty.json", [{"a": 1}, {"a": 3}], bad=[2, 4])
text_file("bad_stream.json", '{\n  "a": 1\n}\n{\n  "a" 2\n}\n{\n  "a": 3\n}\n{\n  "a"')
case("json_bad_stream", "bad_stream.json", [{"a": 1}, {"a": 3}], bad=[2, 4])

# ---- CSV and text -------------------------------------------------------------------------------

rows = [["instruction", "input", "output"], ["plain", "", "x"], ['with "quotes"', "a, comma", "two\nlines"], ["", "", ""],
        ["ünïcode 👋", "crlf\r\ninside", " spaces "]]
as_records = lambda rows: [dict(zip(rows[0], r)) for r in rows[1:]]
for name, how in {"comma.csv": {}, "lf.csv": {"lineterminator": "\n"}, "all_quoted.csv": {"quoting": csv.QUOTE_ALL},
                  "tabs.tsv": {"delimiter": "\t"}}.items():
    out = io.StringIO()
    csv.writer(out, **how).writerows(rows)
    text_file(name, out.getvalue())
    case("csv_" + name, name, as_records(rows))
text_file("semicolon.csv", "a;b\n1;2,5\n")
case("csv_semicolon", "semicolon.csv", [{"a": "1", "b": "2,5"}], delimiter=";")
text_file("odd.csv", b"\xef\xbb\xbfa,,a\r1,2,3\n\n\n4,\"\",6 \"7\"\r\n\"8\",9,\"\"\"10\"\"\"")
case("csv_odd", "odd.csv", [{"a": "1", "Unnamed: 1": "2", "a.1": "3"}, {"a": "4", "Unnamed: 1": "", "a.1": '6 "7"'},
                            {"a": "8", "Unnamed: 1": "9", "a.1": '"10"'}])
text_file("bad.csv", b"a,b\n1,2\n3\n4,5,6\n\"7\"x,8\n\xff,9\n10,11\n")
case("csv_bad", "bad.csv", [{"a": "1", "b": "2"}, {"a": "10", "b": "11"}], bad=[2, 3, 4, 5])
text_file("header_only.csv", "a,b\n")
case("csv_header_only", "header_only.csv", [])

poem = "First line\n\nSecond paragraph,\ntwo lines\n\n\n\nThird ünd last\n"
text_file("poem.txt", poem)
text_file("poem_crlf.txt", b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree")
hf = lambda path, how: datasets.load_dataset("text", data_files=os.path.join(FILES, path), sample_by=how, split="train",
                                              cache_dir=tempfile.mkdtemp(), keep_in_memory=True).to_list()
for how in ["line", "paragraph", "document"]:
    want = hf("poem.txt", how)
    if how == "paragraph":  # the loader keeps line ends that stand at the start or end of a paragraph
        want = [{"text": r["text"].strip("\n")} for r in want if r["text"].strip("\n")]
    case("text_" + how, "poem.txt", want, sample_by=how)
case("text_crlf", "poem_crlf.txt", [{"text": t} for t in ["one", "two", "", "three"]])
text_file("bad.txt", b"good\n\xc3(\nfine\n")
case("text_bad", "bad.txt", [{"text": "good"}, {"text": "fine"}], bad=[2])

with open(os.path.join(HERE, "cases.jsonl"), "w") as out:
    for c in cases:
        out.write(json.dumps(c) + "\n")
with open(os.path.join(HERE, "README.md"), "w") as out:
    out.write(f"""# Golden data files

`make_goldens.py` wrote everything here with pyarrow {pa.__version__} and datasets {datasets.__version__}:
`files/` are the inputs, `expected/` the records that must come out, `cases.jsonl` the list that
`tests/golden/test_formats.c` walks.  Run it again to add a case; results are compared exactly, as text.

`handmade.py` puts together Parquet files that pyarrow reads and does not write; `plain_records.py` says what values
become; `compare_random.py` draws random tables and compares what pyarrow wrote with what `bench_formats --print` reads.
""")
print(len(cases), "cases")
