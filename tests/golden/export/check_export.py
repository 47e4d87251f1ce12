#!/usr/bin/env python3
"""Open what a run left in transformers, and compare.

    check_export.py MEGATRAIN DIR [DIR ...]      a final/ or a checkpoint-N of a run

For each directory: no missing, unexpected or resized key; logits of random tokens agree with ours (`megatrain grad --logits`, fp32);
where there is a resume/ beside the weights, each weight of a bf16 model is the fp32 master rounded to nearest even, and each weight of an
fp32 model is the master itself.  Needs torch, transformers, safetensors and numpy; nothing else of this project does.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

LOGITS = 1e-5  # relative distance of two fp32 implementations; see tests/golden/models/README.md


def check_keys(directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info[kind], f"{directory}: {kind}: {info[kind]}"
    return model.eval()


def check_logits(megatrain, directory, model):
    vocab = AutoConfig.from_pretrained(directory).vocab_size
    rng = np.random.default_rng(5)
    rows = [rng.integers(0, vocab, n).tolist() for n in (13, 1 + 6, 21)]
    with tempfile.TemporaryDirectory() as tmp:
        tokens, out = pathlib.Path(tmp) / "tokens.json", pathlib.Path(tmp) / "ours.safetensors"
        tokens.write_text(json.dumps({"input_ids": rows}))
        subprocess.run([megatrain, "grad", directory, "--tokens", tokens, "--out", out, "--dtype", "float32", "--device", "cpu", "--logits"],
                       check=True, stdout=subprocess.DEVNULL)
        worst = 0.0
        with safe_open(out, "pt") as ours, torch.no_grad():
            for i, row in enumerate(rows):
                want = model(torch.tensor([row])).logits[0]
                worst = max(worst, ((ours.get_tensor(f"logits.{i}") - want).norm() / want.norm()).item())
    assert worst <= LOGITS, f"{directory}: logits are {worst:.2e} away"
    return worst


def masters(directory):
    for file in sorted(pathlib.Path(directory, "resume").glob("unit-*.safetensors")):
        with safe_open(file, "pt") as unit:
            for name in unit.keys():
                if not name.endswith(".hi"):
                    continue
                base = name[: -len(".hi")]
                hi = unit.get_tensor(name).view(torch.int16).to(torch.int64) & 0xFFFF
                bits = ((hi << 16) + unit.get_tensor(base + ".lo").to(torch.int64)) & 0xFFFFFFFF
                yield base, torch.from_numpy(bits.numpy().astype(np.uint32).view(np.float32))


def check_rounding(directory):
    weights = {}
    for file in pathlib.Path(directory).glob("model*.safetensors"):
        with safe_open(file, "pt") as st:
            weights |= {k: st.get_tensor(k) for k in st.keys()}
    n = ties = not_representable = 0
    for name, master in masters(directory):
        stored = weights[name]
        assert torch.equal(stored, master.to(stored.dtype)), f"{directory}: {name} is not the master rounded to {stored.dtype}"
        n += master.numel()
        not_representable += (master != stored.float()).sum().item()
        ties += ((master.view(torch.int32) & 0xFFFF) == 0x8000).sum().item()
    return n, not_representable, ties


def main():
    megatrain, directories = sys.argv[1], sys.argv[2:]
    for directory in directories:
        model = check_keys(directory)
        distance = check_logits(megatrain, directory, model)
        words = f"{directory}: keys fit, logits {distance:.1e} away"
        if pathlib.Path(directory, "resume").is_dir():
            n, inexact, ties = check_rounding(directory)
            words += f", {n} masters rounded as stored ({inexact} of them not representable, {ties} ties)"
        print(words)


if __name__ == "__main__":
    main()
