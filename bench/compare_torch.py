"""Training speed of transformers on PyTorch beside megatrain's, on one GPU: the same shape, tokens a step and arithmetic (bf16 products, fp32 master
weights and moments, clipping, AdamW), random weights and tokens, everything in the GPU's memory.

    python bench/compare_torch.py build/megatrain [--shape 0.5b|1.5b|3b] [--seq 1024] [--tokens 65536] [--micro 8,16,32] [--steps 4] [--compile]
                                  [--checkpointing] [--seconds N]

PyTorch's side is what its documentation advises: SDPA attention, autocast to bf16, fused AdamW, fused clipping, one forward and backward of --micro sequences at a
time (each is tried; one that does not fit says so), with torch.compile where asked.  `bf16` holds weights and moments in bf16 instead: faster, and not
the same training.  Both sides count tokens over the time from step to step."""
import argparse
import gc
import json
import os
import subprocess
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPES = {  # hidden, mlp, layers, heads, kv heads, vocabulary
    "0.5b": ("qwen2.5-0.5b", 896, 4864, 24, 14, 2, 151936),
    "1.5b": ("qwen2.5-1.5b", 1536, 8960, 28, 12, 2, 151936),
    "3b": ("qwen2.5-3b", 2048, 11008, 36, 16, 2, 151936),
}


def make(shape, masters, seq, checkpointing, device):
    _, hidden, mlp, layers, heads, kv, vocab = SHAPES[shape]
    config = Qwen2Config(vocab_size=vocab, hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
                         max_position_embeddings=max(seq, 32768), tie_word_embeddings=True, attn_implementation="sdpa", use_cache=False)
    torch.manual_seed(1)
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(torch.float32 if masters else torch.bfloat16)
    if checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def step(model, optimizer, ids, micro, masters, device):
    total = 0.0
    n = ids.shape[0] // micro
    for i in range(n):
        part = ids[i * micro:(i + 1) * micro]
        with torch.autocast(device, torch.bfloat16, enabled=masters):
            loss = model(input_ids=part, labels=part).loss / n
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def measure(a, masters, micro, device):
    model = make(a.shape, masters, a.seq, a.checkpointing, device)
    run = torch.compile(model) if a.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    ids = torch.randint(0, SHAPES[a.shape][6], (a.tokens // a.seq, a.seq), device=device)
    for _ in range(2):
        step(run, optimizer, ids, micro, masters, device).item()
    start = time.time()
    for _ in range(a.steps):
        loss = step(run, optimizer, ids, micro, masters, device)
    loss = loss.item()  # waits for all of it
    seconds = (time.time() - start) / a.steps
    most = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0
    print("| transformers, %s%s%s, %d sequences at a time | %.0f | %.3f | %.1f GiB | %.4f |" % (
        "fp32 masters" if masters else "all in bf16", ", compiled" if a.compile else "", ", checkpointing" if a.checkpointing else "", micro, a.tokens / seconds, seconds, most, loss), flush=True)


def ours(a, device):
    words = [a.program, "bench", "--device", device, "--shape", SHAPES[a.shape][0], "--seq-len", str(a.seq), "--tokens-per-step", str(a.tokens), "--steps", str(a.steps), "--warmup", "2", "--json"]
    out = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    print("| megatrain | %.0f | %.3f | %.1f GiB | |" % (a.tokens / out["seconds_per_step"], out["seconds_per_step"], out["device_bytes"] / 2**30), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--shape", choices=SHAPES, default="0.5b")
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--tokens", type=int, default=65536)
    p.add_argument("--micro", default="8,16,32")
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--checkpointing", action="store_true")
    a = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    end = time.time() + a.seconds
    print("torch %s, %s" % (torch.__version__, torch.cuda.get_device_name() if device == "cuda" else "CPU"))
    print("| %s, %d tokens a step in sequences of %d | tokens/s | s | memory | loss |\n| --- | --- | --- | --- | --- |" % (SHAPES[a.shape][0], a.tokens, a.seq))
    ours(a, device)
    for masters in (True, False):
        for micro in [int(m) for m in a.micro.split(",")]:
            if time.time() > end:
                continue
            try:
                measure(a, masters, micro, device)
            except torch.OutOfMemoryError:
                print("| transformers, %s, %d sequences at a time | does not fit | | | |" % ("fp32 masters" if masters else "all in bf16", micro), flush=True)
            torch._dynamo.reset()
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()


main()
