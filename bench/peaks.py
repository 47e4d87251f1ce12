#!/usr/bin/env python3
"""Predicted against measured peaks: whole runs (load, steps, evaluation, save; then resume) of several settings.

    python bench/peaks.py build/megatrain [cpu|cuda] [--keep DIR] [--only NAME]

Each setting trains a model with random weights, first from a saved model directory, then resumed from its checkpoint.  Predicted is the
plan's sum with its base item (plan.json); measured is the process's largest resident size (VmHWM, as wait4 reports it) and, on a GPU, the
device's own count.  Prints a table for docs/benchmarks.md and fails when a host peak is off by more than 5% and 64 MB.
"""
import json, os, shutil, subprocess, sys, tempfile

MODELS = {  # hidden, mlp, layers, heads, kv heads, vocab
    "60m": (512, 2048, 10, 8, 4, 16384),
    "170m": (896, 3584, 12, 14, 2, 16384),
    "10m": (256, 1024, 6, 4, 4, 4096),
}
#            name             model   seq  batch  flags
SETTINGS = [
    ("resident, clipped",     "60m",  64,  2, []),
    ("streaming",             "60m",  64,  2, ["--device-memory", "220M"]),
    ("streaming, no clip",    "60m",  64,  2, ["--device-memory", "220M", "--max-grad-norm", "0"]),
    ("all state in RAM",      "60m",  64,  2, ["--home", "host"]),
    ("fp32",                  "60m",  64,  2, ["--dtype", "float32", "--grad-dtype", "float32"]),
    ("larger model",          "170m", 32,   2, []),
    ("larger, streaming",     "170m", 32,   2, ["--device-memory", "400M", "--max-grad-norm", "0"]),
    ("long sequences",        "10m",  1024, 2, []),
    ("long, inputs in RAM",   "10m",  1024, 2, ["--offload-inputs", "true", "--device-memory", "160M"]),
]
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def make_model(program, path, spec):
    d, f, layers, h, k, v = spec
    shutil.copytree(os.path.join(HERE, "data/demo_model"), path)
    config = json.load(open(os.path.join(path, "config.json")))
    config.update(hidden_size=d, intermediate_size=f, num_hidden_layers=layers, num_attention_heads=h, num_key_value_heads=k, vocab_size=v,
                  head_dim=d // h, max_position_embeddings=8192, tie_word_embeddings=False)
    json.dump(config, open(os.path.join(path, "config.json"), "w"))


def make_data(path, seq):
    words = "the quick brown fox jumps over a lazy dog while seven wizards brew strange potions".split()
    with open(path, "w") as f:
        for i in range(16):
            text = " ".join(words[(i * 7 + j * j) % len(words)] for j in range(seq))
            f.write(json.dumps({"text": text}) + "\n")


def run(program, args):
    process = subprocess.Popen([program, "train"] + args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    if status:
        sys.exit("megatrain train %s failed:\n%s" % (" ".join(args), text))
    return usage.ru_maxrss * 1024


def main():
    program, device = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "cpu"
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    top = tempfile.mkdtemp(prefix="mt_peaks_")
    bad = 0
    print("| setting | model | tokens a step | predicted | first run | resumed | off by |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, model, seq, batch, flags in SETTINGS:
        if only and only != name:
            continue
        source, out, data = (os.path.join(top, x) for x in ("model-" + model, "run", "data-%d.jsonl" % seq))
        base = ["--device", device, "--dataset-path", data, "--max-seq-len", str(seq), "--batch-size", str(batch), "--save-steps", "2",
                "--val-size", "2", "--packing", "false"]
        if not os.path.exists(data):
            make_data(data, seq)
        if not os.path.exists(source):
            seed = os.path.join(top, "seed-" + model)
            make_model(program, seed, MODELS[model])
            run(program, base + ["--model-name", seed, "--from-scratch", "true", "--num-steps", "1", "--output-dir", os.path.join(top, "seed-run"), "--overwrite", "true"])
            shutil.move(os.path.join(top, "seed-run", "final"), source)
        shutil.rmtree(out, ignore_errors=True)
        args = base + ["--model-name", source, "--output-dir", out] + flags
        first = run(program, args + ["--num-steps", "4"])
        resumed = run(program, args + ["--num-steps", "6", "--resume"])
        plan = json.load(open(os.path.join(out, "plan.json")))
        predicted = plan["host_bytes"] + plan["base_host_bytes"] + plan["checkpoint_host_bytes"] + (plan["device_bytes"] if device == "cpu" else 0)
        off = max(first, resumed) - predicted
        ok = abs(off) <= max(0.05 * predicted, 64e6)
        bad += not ok
        print("| %s | %s | %d | %.0f MB | %.0f MB | %.0f MB | %+.0f MB, %+.1f%%%s |" % (name, model, seq * batch, predicted / 1e6, first / 1e6, resumed / 1e6, off / 1e6,
              100 * off / predicted, "" if ok else " **too far**"), flush=True)
    shutil.rmtree(top)
    sys.exit(1 if bad else 0)


main()
