"""JSON Lines of conversations to token ids: megatrain against datasets + transformers, the same file in the same run, as many processes as threads.

    python bench/compare_pipeline.py [--mb 40] [--workers 2] [--rounds 3] [--build build] TOKENIZER_DIR

Theirs is load_dataset("json") and a batched map: apply_chat_template to text, then the tokenizer over the batch, ids only; ours makes the mask of what is trained as well and checks every answer
against the template.  Wall seconds depend on who else uses the machine; CPU seconds (children included) much less, so the ratio is of those."""
import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def conversations(path, n_bytes):
    """One to three turns: a question of some 300 characters, an answer of 200 to 3000, from code, translations and a mix of scripts."""
    from compare_tokenizers import pieces_of_code, pieces_of_mix, pieces_of_translations
    sources, r, total = [pieces_of_code(), pieces_of_translations(), pieces_of_mix()], random.Random(5), 0
    with open(path, "w", encoding="utf-8") as f:
        while total < n_bytes:
            messages = []
            for _ in range(r.choice([1, 1, 1, 2, 3])):
                text = " ".join(next(sources[r.choices([0, 1, 2], [5, 4, 1])[0]]).split(" ")).strip() or "nothing"
                cut = min(300, max(1, len(text) // 3))
                messages.append({"role": "user", "content": text[:cut].strip() or "?"})
                messages.append({"role": "assistant", "content": text[cut:cut + r.randrange(200, 3000)].strip() or "Yes."})
            total += f.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def ours(a, data, out):
    line = subprocess.run([os.path.join(a.build, "bench", "bench_pipeline"), a.tokenizer, data, str(a.workers), out], check=True, capture_output=True, text=True)
    wall, cpu, samples, tokens, mib = line.stdout.split()
    return float(wall), float(cpu), int(samples), int(tokens), int(mib)


def theirs(a, data, cache):
    from datasets import load_dataset
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(a.tokenizer)

    def cpu():
        return sum(u.ru_utime + u.ru_stime for u in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))

    def encode(batch):
        texts = [tok.apply_chat_template(m, tokenize=False) for m in batch["messages"]]
        return {"input_ids": tok(texts, add_special_tokens=False, truncation=True, max_length=2048)["input_ids"]}

    wall, used = time.monotonic(), cpu()
    d = load_dataset("json", data_files=data, split="train", cache_dir=cache)
    d = d.map(encode, batched=True, num_proc=a.workers if a.workers > 1 else None, remove_columns=d.column_names)
    wall, used = time.monotonic() - wall, cpu() - used
    return wall, used, len(d), sum(len(x) for x in d["input_ids"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--mb", type=int, default=40)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--build", default="build")
    p.add_argument("tokenizer")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as dir:
        data = os.path.join(dir, "chat.jsonl")
        conversations(data, a.mb << 20)
        size = os.path.getsize(data) / 1e6
        best = {}
        for round in range(a.rounds):  # in turns, so that a busy machine is busy for both
            for name, result in (("megatrain", ours(a, data, os.path.join(dir, "store"))), ("theirs", theirs(a, data, os.path.join(dir, str(round))))):
                print(f"{name:10} wall {result[0]:7.2f} s, CPU {result[1]:7.2f} s, {result[2]} samples, {result[3]} tokens" + (f", {result[4]} MiB" if len(result) > 4 else ""), flush=True)
                best[name] = [min(x) for x in zip(best.get(name, result), result)]
        m, t = best["megatrain"], best["theirs"]
        print(f"{size:.0f} MB, {a.workers} workers: CPU {size / m[1]:.1f} against {size / t[1]:.1f} MB/s, {t[1] / m[1]:.1f}x; wall {size / m[0]:.1f} against {size / t[0]:.1f} MB/s, {t[0] / m[0]:.1f}x")


if __name__ == "__main__":
    main()
