#!/usr/bin/env python3
"""Data files into records: megatrain beside pyarrow and Hugging Face datasets, on the same files, in one run.

    python bench/bench_formats.py build/bench/bench_formats [megabytes]

Writes chat data of that size in a temporary folder as JSON Lines, Parquet (zstd) and Arrow, and reads it with
one thread each into the records that a training program sees: Python dicts there, values here.
"""
import json, os, random, re, subprocess, sys, tempfile, time

os.environ["OMP_NUM_THREADS"] = "1"
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import datasets

pa.set_cpu_count(1)
pa.set_io_thread_count(1)
datasets.disable_progress_bars()
WORDS = "the model answers a question about data and explains each step with code like `x = f(y)` or a table of results".split()
ODD = ["é", "—", "👋", "这是一个关于数据结构的问题", "请逐步解释"]


def text(n):
    out = []
    while n > 0:
        k = random.random()
        w = "\n\n" if k < 0.04 else '"quoted"' if k < 0.06 else random.choice(ODD) if k < 0.07 else random.choice(WORDS)
        out.append(w)
        n -= len(w) + 1
    return " ".join(out)


def make(folder, megabytes):
    random.seed(1)
    rows, size = [], 0
    while size < megabytes * 1e6:
        messages = [{"role": ["user", "assistant"][i % 2], "content": text(random.randrange(50, 1500))}
                    for i in range(2 * random.randrange(1, 4))]
        rows.append({"id": len(rows), "messages": messages, "source": random.choice(["a", "b"])})
        size += sum(len(m["content"]) for m in messages) + 100
    with open(f"{folder}/x.jsonl", "w") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, f"{folder}/x.parquet", compression="zstd")
    with pa.ipc.new_stream(f"{folder}/x.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=1000)


def json_lines(path):
    with open(path) as f:
        for line in f:
            json.loads(line)


def arrow_stream(path):
    with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            batch.to_pylist()


def parquet_file(path):
    for batch in pq.ParquetFile(path).iter_batches():
        batch.to_pylist()


def hugging_face(kind):
    def read(path):
        with tempfile.TemporaryDirectory() as cache:
            for _ in datasets.load_dataset(kind, data_files=path, split="train", cache_dir=cache):
                pass
    return read


def hugging_face_again(kind):
    """From the Arrow file that the first run left in its cache."""
    cached = {}

    def read(path):
        if path not in cached:
            cached[path] = datasets.load_dataset(kind, data_files=path, split="train", cache_dir=tempfile.mkdtemp(dir=os.path.dirname(path)))
        for _ in cached[path]:
            pass
    return read


def timed(read, path):
    """CPU seconds (other people may be on the machine), the best of five, as for megatrain."""
    best = 1e30
    for _ in range(5):
        start = time.process_time()
        read(path)
        best = min(best, time.process_time() - start)
    return best


def ours(binary, path):
    out = subprocess.run([binary, path], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"([0-9.]+) s ", out).group(1))


def main():
    binary, megabytes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    readers = {
        "x.jsonl": {"Python json.loads by line": json_lines, "pyarrow.json to_pylist": lambda p: pj.read_json(p).to_pylist(),
                    "datasets json": hugging_face("json"), "datasets json, cached": hugging_face_again("json")},
        "x.parquet": {"pyarrow.parquet to_pylist": parquet_file, "datasets parquet": hugging_face("parquet")},
        "x.arrow": {"pyarrow.ipc to_pylist": arrow_stream, "datasets arrow": hugging_face("arrow")},
    }
    with tempfile.TemporaryDirectory() as folder:
        make(folder, megabytes)
        for name, others in readers.items():
            path = f"{folder}/{name}"
            size, mine = os.path.getsize(path) / 1e6, ours(binary, path)
            print(f"{name:10} {size:6.0f} MB  {'megatrain':28} {mine:7.3f} s  {size / mine:7.0f} MB/s")
            for label, read in others.items():
                t = timed(read, path)
                print(f"{'':21}{label:28} {t:7.3f} s  {size / t:7.0f} MB/s  {t / mine:6.1f}x slower")


main()
