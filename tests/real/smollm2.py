"""The Python half of smollm2.sh: writes the texts to compare on, and compares."""

import json
import os
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "In 1969, 3 people flew 384400 km; 2 of them walked on the Moon.",
    "   leading spaces,\ttabs and trailing ones   ",
    "def f(x):  return {'a': [x**2 for x in range(10)]}",
    "Größe, naïve café, 東京タワー, привет, 🎉🎉 and e\u0301",
    "it's I'LL we've don't 'quoted' \"double\"",
    "<|im_start|>user What is the capital of France?<|im_end|> <|im_start|>assistant",
    "<|endoftext|> a<|im_end|>b<repo_name>c <file_sep>",
    "",
    "!?...;:-- ==> </div><br/>",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
]


def texts(work):
    model = os.path.join(work, "model")
    tok = AutoTokenizer.from_pretrained(model)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    rows = [tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), LINES[0], LINES[1] + " " + LINES[4]]
    json.dump({"input_ids": [tok(r)["input_ids"] for r in rows]}, open(os.path.join(work, "tokens.json"), "w"))
    open(os.path.join(work, "lines.txt"), "w").write("".join(line + "\n" for line in LINES))


def read_ids(path):
    return [json.loads(line) for line in open(path)]


def check_ids(gguf, work):
    model = os.path.join(work, "model")
    ours, direct = read_ids(work + "/ids_ours.jsonl"), read_ids(work + "/ids_gguf.jsonl")
    rust = Tokenizer.from_file(model + "/tokenizer.json")
    auto = AutoTokenizer.from_pretrained(model)
    answers = {"tokenizers": [rust.encode(t).ids for t in LINES], "transformers": [auto(t)["input_ids"] for t in LINES], "the GGUF file read directly": direct}
    try:
        from llama_cpp import Llama

        llama = Llama(gguf, vocab_only=True, verbose=False)
        answers["llama.cpp"] = [llama.tokenize(t.encode(), add_bos=False, special=True) if t else [] for t in LINES]
    except ImportError:
        print("llama.cpp's Python package is not here: its ids are not compared")
    bad = 0
    for who, ids in answers.items():
        wrong = [t for t, a, b in zip(LINES, ours, ids) if a != b]
        print(f"ids: {len(LINES) - len(wrong)} of {len(LINES)} lines as {who} has them")
        for text in wrong:
            print(f"   differs: {text!r}")
        bad += len(wrong)
    return bad


@torch.no_grad()
def check_logits(work):
    rows = json.load(open(work + "/tokens.json"))["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(work + "/model", dtype=torch.float32, attn_implementation="eager").eval()
    worst, bad = 0.0, 0
    for name in "ours", "ours_gguf":
        ours = load_file(f"{work}/{name}.safetensors")
        for i, row in enumerate(rows):
            theirs = model(torch.tensor([row])).logits[0]
            far = (ours[f"logits.{i}"] - theirs).abs().max().item()
            same = (ours[f"logits.{i}"].argmax(-1) == theirs.argmax(-1)).all().item()
            print(f"logits: {name} row {i}, {len(row)} tokens: largest difference {far:.2e} (of values up to {theirs.abs().max().item():.1f}), same best token everywhere: {same}")
            worst = max(worst, far)
            bad += not same
    print(f"logits: largest difference of all {worst:.2e}, 1e-3 allowed")
    return bad + (not worst < 1e-3)


def check_losses(work):
    """The loss falls: the mean of the last five steps is well below that of the first five."""
    rows = [json.loads(line) for line in open(work + "/run/metrics.jsonl")]
    losses = [r["loss"] for r in rows if "loss" in r]
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    print(f"losses: {len(losses)} steps, mean of the first five {first:.3f}, of the last five {last:.3f}")
    if not last < 0.8 * first:
        sys.exit("the loss does not fall")


if __name__ == "__main__":
    command, gguf, work = sys.argv[1:]
    if command == "texts":
        texts(work)
    elif command == "losses":
        check_losses(work)
    elif check_ids(gguf, work) + check_logits(work):
        sys.exit("the converted model is not the same")
    else:
        print("all the same")
