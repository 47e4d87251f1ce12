#!/usr/bin/env python3
"""Predicted against measured: the lives of runs of several settings.

    python bench/peaks.py build/megatrain [cpu|cuda] [--only NUMBER,...] [--dir DIR] [--seconds N] [--sparse DIR]

Each setting trains a model with random weights from a model directory that this script writes.
    whole   load, evaluation, steps, a checkpoint that is copied aside and written while steps go on; killed; resumed, steps, evaluation, the
            finished model
    model   load, evaluation, steps, evaluation, the finished model: where a checkpoint fits neither disk nor memory (save_only_model)
The machine is measured first: that takes 1.5 GB of host memory for a moment beside a GPU, once.
Predicted is the plan's sum with its base item and the room for a checkpoint (plan.json); measured is the process's largest resident size (VmHWM,
as wait4 reports it) and, on a GPU, the most that nvidia-smi saw beyond what was used before.  Prints a row for docs/notebook as soon as it has one, and
fails when a peak is off by more than 5% and 64 MB.  DIR should be fast and roomy (/dev/shm); --seconds starts no setting after so many and ends
what runs then; --sparse writes weights of 0 to a directory on a disk, which takes neither time nor room: then only the peaks mean something.  (Not to
/dev/shm: there what is mapped is memory.)
"""
import array, json, os, shutil, subprocess, sys, tempfile, threading, time

MODELS = {  # hidden, mlp, layers, heads, kv heads, vocab, tied
    "10m": (256, 1024, 6, 4, 4, 4096, False),
    "60m": (512, 2048, 10, 8, 4, 16384, False),
    "170m": (896, 3584, 12, 14, 2, 16384, False),
    "40m, wide vocabulary": (256, 512, 4, 4, 4, 131072, True),
    "0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "3b": (2048, 11008, 36, 16, 2, 151936, True),
    "7b": (3584, 18944, 28, 28, 4, 152064, False),
    "14b": (5120, 13824, 48, 40, 8, 152064, False),
}
SETTINGS = {  # name, model, rows of a sample, samples of a step, life, flags
    "cpu": [
        ("resident, clipped", "60m", 64, 2, "whole", []),
        ("streaming", "60m", 64, 2, "whole", ["--device-memory", "220M"]),
        ("streaming, no clip", "60m", 64, 2, "whole", ["--device-memory", "220M", "--max-grad-norm", "0"]),
        ("all state in RAM", "60m", 64, 2, "whole", ["--home", "host"]),
        ("fp32", "60m", 64, 2, "whole", ["--dtype", "float32", "--grad-dtype", "float32"]),
        ("larger model", "170m", 32, 2, "whole", []),
        ("larger, streaming", "170m", 32, 2, "whole", ["--device-memory", "400M", "--max-grad-norm", "0"]),
        ("long sequences", "10m", 1024, 2, "whole", []),
        ("long, inputs in RAM", "10m", 1024, 2, "whole", ["--offload-inputs", "true", "--device-memory", "160M"]),
        ("a large tensor", "40m, wide vocabulary", 64, 2, "whole", []),
    ],
    "cuda": [
        ("all on the GPU", "0.5b", 1024, 64, "whole", []),
        ("streaming on 8 GB, no clipping", "0.5b", 1024, 32, "whole", ["--device-memory", "8G", "--max-grad-norm", "0", "--home", "host"]),
        ("all on the GPU, long", "0.5b", 16384, 4, "whole", []),
        ("state in RAM, no clipping", "3b", 1024, 64, "whole", ["--max-grad-norm", "0", "--home", "host"]),
        ("streaming on 22 GB, long", "3b", 8192, 4, "whole", ["--device-memory", "22G", "--home", "host", "--host-memory", "70G"]),
        ("most of the state on the GPU", "7b", 1024, 16, "model", []),
        ("streaming on 22 GB, no clipping, long", "7b", 4096, 4, "model", ["--device-memory", "22G", "--max-grad-norm", "0"]),
        ("moments of 8 bits, all on the GPU", "7b", 1024, 16, "whole", ["--adam-state", "8bit", "--host-memory", "20G", "--force"]),
        ("half of the state on the GPU", "14b", 1024, 8, "model", ["--host-memory", "88G"]),
    ],
}
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = 8 << 20
LAST = time.time() + (float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 1e9)


# -- a model directory: weights are one random block again and again, norms are 1, biases 0

def tensors_of(spec):
    d, f, layers, h, k, v, tied = spec
    dh = d // h
    yield "model.embed_tokens.weight", [v, d]
    for i in range(layers):
        at = "model.layers.%d." % i
        yield at + "input_layernorm.weight", [d]
        for p, n in (("q", h * dh), ("k", k * dh), ("v", k * dh)):
            yield at + "self_attn.%s_proj.weight" % p, [n, d]
            yield at + "self_attn.%s_proj.bias" % p, [n]
        yield at + "self_attn.o_proj.weight", [d, h * dh]
        yield at + "post_attention_layernorm.weight", [d]
        yield at + "mlp.gate_proj.weight", [f, d]
        yield at + "mlp.up_proj.weight", [f, d]
        yield at + "mlp.down_proj.weight", [d, f]
    yield "model.norm.weight", [d]
    if not tied:
        yield "lm_head.weight", [v, d]


def random_block():
    """bf16 numbers of magnitude 2^-7 to 2^-5."""
    n = BLOCK // 2
    pattern = lambda word: int.from_bytes(array.array("H", [word]).tobytes() * n, "little")
    return (int.from_bytes(os.urandom(BLOCK), "little") & pattern(0x80FF) | pattern(0x3C00)).to_bytes(BLOCK, "little")


def write_shard(path, tensors, block, sparse):
    header, at = {}, 0
    for name, shape in tensors:
        n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors:
            left = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            if len(shape) == 1:
                f.write((b"\x80\x3f" if "norm" in name else b"\0\0") * shape[0])
                continue
            if sparse:
                f.seek(left, os.SEEK_CUR)
                left = 0
            while left:
                left -= f.write(memoryview(block)[:min(left, BLOCK)])
        f.truncate(8 + len(text) + at)


def make_model(path, spec, sparse):
    shutil.copytree(os.path.join(HERE, "data/demo_model"), path)
    d, f, layers, h, k, v, tied = spec
    json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": d, "intermediate_size": f, "num_hidden_layers": layers,
               "num_attention_heads": h, "num_key_value_heads": k, "vocab_size": v, "tie_word_embeddings": tied, "rope_theta": 1e6,
               "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-6}, open(path + "/config.json", "w"))
    block, every = random_block(), list(tensors_of(spec))
    n = 8
    shards = [every[i * len(every) // n:(i + 1) * len(every) // n] for i in range(n)]
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, n) for i in range(n)]
    threads = [threading.Thread(target=write_shard, args=(os.path.join(path, names[i]), shards[i], block, sparse)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    total = sum(2 * s[0] * (s[1] if len(s) > 1 else 1) for _, s in every)
    json.dump({"metadata": {"total_size": total}, "weight_map": {t[0]: names[i] for i in range(n) for t in shards[i]}}, open(path + "/model.safetensors.index.json", "w"))


def make_data(path, seq, n):
    """Samples of `seq` tokens: to the demo's tokenizer each digit is one, and the end."""
    with open(path, "w") as f:
        for i in range(n):
            f.write(json.dumps({"text": "".join(str((i * 7 + j * j // 3) % 10) for j in range(seq - 1))}) + "\n")


# -- a run

class Watch:
    """The most device memory in use, as nvidia-smi counts it, beyond what was used before."""

    def __init__(self, device):
        self.on, self.most = device == "cuda", 0
        if self.on:
            self.before = self.ask()
            self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "100"], stdout=subprocess.PIPE, text=True)
            self.thread = threading.Thread(target=self.read)
            self.thread.start()

    def ask(self):
        return int(subprocess.check_output(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True).split()[0])

    def read(self):
        for line in self.process.stdout:
            self.most = max(self.most, int(line.split()[0]) - self.before)

    def end(self):
        if self.on:
            self.process.kill()
            self.thread.join()
        return self.most << 20


def records(out):
    try:
        return [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl")) if line.endswith("\n")]
    except OSError:
        return []


def resident(pid):
    """MB in memory now: all of it, and what of it is the process's own, of files, and shared."""
    try:
        lines = [line.split() for line in open("/proc/%d/status" % pid)]
    except OSError:
        return []
    kb = {words[0]: int(words[1]) for words in lines if words[0] in ("VmRSS:", "RssAnon:", "RssFile:", "RssShmem:")}
    return [kb.get(key, 0) // 1000 for key in ("VmRSS:", "RssAnon:", "RssFile:", "RssShmem:")]


def run(program, device, args, out, until=None):
    """Host and device peak, and what the plan said of the host's, of a run that ends by itself, or is killed when the path `until` is there."""
    log = tempfile.TemporaryFile("w+")
    watch = Watch(device)
    process, start, seen = subprocess.Popen([program, "train"] + args, stdout=log, stderr=subprocess.STDOUT), time.time(), []
    pid, enough, most = 0, False, [[], 0]
    while not pid:
        most = max(most, [resident(process.pid), time.time() - start])
        time.sleep(0.05)
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        seen += [time.time() - start] * (len(records(out)) - len(seen))
        if not pid and (time.time() > LAST or until and os.path.exists(until)):
            process.kill()
            enough = time.time() <= LAST
    process.returncode = 0
    device_peak = watch.end()
    log.seek(0)
    text = log.read()
    print("  (metrics after %s s, all over after %.1f; after %.1f s %s MB resident, own, of files and shared)" % (
        " ".join("%.1f" % s for s in seen), time.time() - start, most[1], most[0]), file=sys.stderr, flush=True)
    if status and not enough:
        sys.exit("megatrain train %s %s:\n%s" % (" ".join(args), "failed" if time.time() <= LAST else "had no time left", text))
    plan = json.load(open(os.path.join(out, "plan.json")))
    host = plan["host_bytes"] + plan["base_host_bytes"] + (plan["device_bytes"] if device == "cpu" else 0) + plan["checkpoint_host_bytes"]
    return usage.ru_maxrss * 1024, device_peak, host


def off(predicted, measured):
    by = measured - predicted
    ok = abs(by) <= max(0.05 * predicted, 64e6)
    return ok, "%+.0f MB, %+.1f%%%s" % (by / 1e6, 100 * by / predicted, "" if ok else " **too far**")


def life(program, device, top, weights, setting):
    name, model, seq, batch, kind, flags = setting
    out, data = os.path.join(top, "run"), os.path.join(top, "data-%d-%d.jsonl" % (seq, batch))
    source = os.path.join(weights, "model-" + model.split(",")[0])
    shutil.rmtree(out, ignore_errors=True)
    if not os.path.exists(data):
        make_data(data, seq, batch + 2)
    if not os.path.exists(source):
        for old in [x for x in os.listdir(weights) if x.startswith("model-")]:
            shutil.rmtree(os.path.join(weights, old))
        make_model(source, MODELS[model], weights != top)
    base = ["--device", device, "--model-name", source, "--dataset-path", data, "--output-dir", out, "--cache-dir", os.path.join(top, "cache"), "--max-seq-len", str(seq),
            "--batch-size", str(batch), "--val-size", "2", "--packing", "false", "--keep-last", "1"] + flags
    start = time.time()
    if kind == "whole":
        peaks = [run(program, device, base + ["--eval-steps", "3", "--save-steps", "3", "--num-steps", "5"], out, until=os.path.join(out, "checkpoint-3"))]
        peaks.append(run(program, device, base + ["--save-steps", "0", "--num-steps", "5", "--save-only-model", "--resume"], out))
    else:
        peaks = [run(program, device, base + ["--save-steps", "0", "--num-steps", "2", "--save-only-model"], out)]
    took = time.time() - start
    plan = json.load(open(os.path.join(out, "plan.json")))
    steps = sorted(r["step_seconds"] for r in records(out) if r.get("step", 0) in (2, 3) and "step_seconds" in r)
    step = steps[len(steps) // 2]
    worst = max(peaks, key=lambda p: abs(p[0] / p[2] - 1))
    ok, host_off = off(worst[2], worst[0])
    cells = [name, model.split(",")[0], "%d" % (seq * batch), kind, ", ".join("%.0f" % (p[2] / 1e6) for p in peaks), ", ".join("%.0f" % (p[0] / 1e6) for p in peaks), host_off]
    if device == "cuda":
        predicted = plan["device_bytes"] + plan["base_device_bytes"]
        fine, device_off = off(predicted, max(p[1] for p in peaks))
        ok &= fine
        cells += ["%.0f" % (predicted / 1e6), ", ".join("%.0f" % (p[1] / 1e6) for p in peaks), device_off]
    cells += ["%.3g" % plan["step_seconds"], "%.3g" % step, "%+.0f%%" % (100 * (plan["step_seconds"] / step - 1))]
    print("| " + " | ".join(cells) + " |", flush=True)
    shutil.rmtree(out)
    print("  (%.0f s; steps %s; micro-batches of %d, sweeps of %d)" % (took, " ".join("%.3f" % s for s in steps), plan["arithmetic"]["micro_tokens"], plan["sweep_tokens"]), file=sys.stderr, flush=True)
    return ok


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main():
    program, device = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] in SETTINGS else "cpu"
    only = option("--only")
    top = tempfile.mkdtemp(prefix="mt_peaks_", dir=option("--dir"))
    weights = tempfile.mkdtemp(prefix="mt_peaks_", dir=option("--sparse")) if "--sparse" in sys.argv else top
    heads = ["setting", "model", "tokens a step", "life", "host MB predicted", "measured", "off by"]
    heads += ["device MB predicted", "measured", "off by"] if device == "cuda" else []
    heads += ["step s predicted", "measured", "off by"]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads), flush=True)
    bad = 0
    subprocess.run([program, "plan", "--shape", "qwen2.5-0.5b", "--json"], stdout=subprocess.DEVNULL)
    try:
        for i, setting in enumerate(SETTINGS[device]):
            if (not only or str(i + 1) in only.split(",")) and time.time() < LAST:
                bad += not life(program, device, top, weights, setting)
    finally:
        shutil.rmtree(top, ignore_errors=True)
        shutil.rmtree(weights, ignore_errors=True)
    sys.exit(1 if bad else 0)


main()
