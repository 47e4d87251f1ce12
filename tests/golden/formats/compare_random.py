#!/usr/bin/env python3
"""Random tables, written by pyarrow in random ways, read by us: every record must be equal.

    python compare_random.py build/bench/bench_formats [seed] [tables]

Types nest up to three deep; nulls are absent, rare, frequent or everywhere; encodings, codecs, page and row group
sizes are drawn per file.  Not part of the tests, which need no Python: run it after touching a reader.
"""
import datetime, decimal, json, os, random, subprocess, sys, tempfile

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from plain_records import records

BINARY = sys.argv[1]
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
TABLES = int(sys.argv[3]) if len(sys.argv) > 3 else 300
rng = random.Random(SEED)
SCALARS = [pa.string(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.large_string(), pa.int8(), pa.uint16(),
           pa.uint32(), pa.date32(), pa.timestamp("us"), pa.decimal128(12, 3), pa.binary(4)]
ENCODINGS = {"INT32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"], "INT64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"],
             "FLOAT": ["BYTE_STREAM_SPLIT", "PLAIN"], "DOUBLE": ["BYTE_STREAM_SPLIT", "PLAIN"], "BOOLEAN": ["RLE", "PLAIN"],
             "BYTE_ARRAY": ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"],
             "FIXED_LEN_BYTE_ARRAY": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "PLAIN"]}


def random_type(depth, parquet):
    if depth == 0 or rng.random() < 0.5:
        return pa.dictionary(pa.int16(), pa.string()) if not parquet and rng.random() < 0.1 else rng.choice(SCALARS)
    inner = lambda: random_type(depth - 1, parquet)
    makers = [lambda: pa.list_(inner()), lambda: pa.large_list(inner()), lambda: pa.map_(rng.choice([pa.string(), pa.int32()]), inner()),
              lambda: pa.struct([(f"f{i}", inner()) for i in range(rng.randrange(1, 4))])]
    if not parquet:
        makers.append(lambda: pa.list_(inner(), 2))
    return rng.choice(makers)()


def random_number(kind):
    if pa.types.is_floating(kind):
        return rng.choice([0.0, -1.5, rng.random(), 1e10])
    low, high = (0, 2**kind.bit_width) if pa.types.is_unsigned_integer(kind) else (-2 ** (kind.bit_width - 1), 2 ** (kind.bit_width - 1))
    return rng.choice([rng.randrange(low, high), rng.randrange(100)])


def random_value(kind, nulls):
    again = lambda k: random_value(k, nulls)
    if rng.random() < nulls:
        return None
    if pa.types.is_dictionary(kind):
        return again(kind.value_type)
    if pa.types.is_map(kind):
        return [(f"k{k}" if kind.key_type == pa.string() else k, again(kind.item_type)) for k in rng.sample(range(20), rng.choice([0, 1, 3]))]
    if pa.types.is_fixed_size_list(kind):
        return [again(kind.value_type) for _ in range(2)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [again(kind.value_type) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
    if pa.types.is_struct(kind):
        return {f.name: again(f.type) for f in kind}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return rng.choice(["", "a", "héllo", f"prefix-{rng.randrange(1000)}", "x" * rng.randrange(40)])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_date(kind):
        return datetime.date.fromordinal(rng.randrange(1, 3000000))
    if pa.types.is_timestamp(kind):
        return datetime.datetime(1, 1, 1) + datetime.timedelta(microseconds=rng.randrange(300000000000000000))
    if pa.types.is_decimal(kind):
        return decimal.Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-3)
    if pa.types.is_fixed_size_binary(kind):
        return bytes(rng.choice(b"abcd") for _ in range(4))
    return random_number(kind)


def random_table(parquet):
    nulls, n = rng.choice([0, 0.1, 0.5, 0.9, 1.0]), rng.choice([0, 1, 3, 20, 300, 1500])
    fields = [pa.field(f"c{i}", random_type(rng.randrange(4), parquet)) for i in range(rng.randrange(1, 5))]
    table = pa.table([pa.array([random_value(f.type, nulls) for _ in range(n)], f.type) for f in fields], schema=pa.schema(fields))
    return table.slice(rng.randrange(n // 2), rng.randrange(1, n // 2 + 1)) if n > 2 and rng.random() < 0.3 else table


def write_parquet(table, path):
    how = dict(compression=rng.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]), data_page_version=rng.choice(["1.0", "2.0"]),
               use_dictionary=rng.random() < 0.5, data_page_size=rng.choice([64, 1000, 1 << 20]), write_batch_size=rng.choice([7, 100, 1024]),
               row_group_size=rng.choice([10, 1000, 100000]), dictionary_pagesize_limit=rng.choice([50, 1 << 20]))
    if not how["use_dictionary"]:
        pq.write_table(table, path, use_dictionary=False)
        schema = pq.ParquetFile(path).schema
        columns = [schema.column(i) for i in range(len(schema))]
        how["column_encoding"] = {c.path: rng.choice(ENCODINGS[c.physical_type]) for c in columns}
    pq.write_table(table, path, **how)
    return how


def write_arrow(table, path):
    codec = rng.choice([None, "lz4", "zstd"])
    with rng.choice([ipc.new_file, ipc.new_stream])(path, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as out:
        out.write_table(table, max_chunksize=rng.choice([None, 7, 100]))
    return codec


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(TABLES):
            parquet = rng.random() < 0.6
            table, path = random_table(parquet), os.path.join(folder, "x.parquet" if parquet else "x.arrow")
            how = (write_parquet if parquet else write_arrow)(table, path)
            want = [json.dumps(r, ensure_ascii=False) for r in records(table)]
            run = subprocess.run([BINARY, "--print", path], capture_output=True, text=True)
            got = run.stdout.split("\n")[:-1]
            if got != want or run.returncode:
                wrong += 1
                at = next((k for k, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                print(f"table {i} of seed {SEED}: {how}\n{table.schema}\nrow {at}\n got {got[at:at + 1]}\nwant {want[at:at + 1]}\n{run.stderr}")
    print(f"{TABLES} tables, {wrong} wrong")
    sys.exit(wrong > 0)


main()
