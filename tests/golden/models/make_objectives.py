"""What PyTorch's autograd makes of the objectives on two of the golden models: loss and gradients in float64, stored as float32.

    python make_objectives.py            write objectives.safetensors of each model
    python make_objectives.py --check    recompute, compare with what is committed, write nothing

DFT and EAFT are written as LLaMA-Factory 0.9.5 has them (train/trainer_utils.py: _dft_cross_entropy, _eaft_cross_entropy); label smoothing is
transformers' LabelSmoother itself; z-loss is z_loss times the square of logsumexp.  Rows run alone, as in make_goldens.py."""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.trainer_pt_utils import LabelSmoother

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../real"))
from exact import doubles  # noqa: E402

# objective -> its numbers; the test has the same.
CASES = {
    "smoothing": dict(smoothing=0.1),
    "z_loss": dict(z_loss=0.01),
    "dft": dict(kind="dft"),
    "eaft": dict(kind="eaft", alpha=0.7),
    "eaft_z_loss": dict(kind="eaft", alpha=1.0, z_loss=0.02),
}
MODELS = {"qwen3": ["smoothing", "dft", "eaft"], "gemma2": ["smoothing", "z_loss", "dft", "eaft_z_loss"]}  # gemma2: a tied head, capped logits


def factor(kind, z, losses, alpha):
    if kind == "dft":
        return torch.exp(-losses)
    if kind == "eaft":
        top, _ = torch.topk(z, k=20, dim=-1)
        log_p = top - torch.logsumexp(top, dim=-1, keepdim=True)
        return torch.pow(-(log_p.exp() * log_p).sum(-1) / 3.0, alpha)
    return torch.ones_like(losses)


def objective(z, labels, kind="cross_entropy", smoothing=0.0, z_loss=0.0, alpha=1.0):
    """z [N, V], labels [N]: the mean over rows."""
    losses = torch.nn.functional.cross_entropy(z, labels, reduction="none")
    with torch.no_grad():
        f = factor(kind, z, losses, alpha)
    loss = (losses * f).mean()
    if smoothing:
        loss = LabelSmoother(epsilon=smoothing)({"logits": z[None]}, labels[None])
    return loss + z_loss * torch.logsumexp(z, -1).square().mean()


def compute(name):
    folder = os.path.join(HERE, name)
    with open(os.path.join(folder, "tokens.json")) as f:
        tokens = json.load(f)
    out = {}
    with doubles():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        for case in MODELS[name]:
            model.zero_grad()
            z, targets = [], []
            for row, labels in zip(tokens["input_ids"], tokens.get("labels", tokens["input_ids"])):
                logits = model(input_ids=torch.tensor([row]), use_cache=False).logits[0]
                kept = [t for t in range(len(row) - 1) if labels[t + 1] != -100]
                z.append(logits[kept])
                targets += [labels[t + 1] for t in kept]
            loss = objective(torch.cat(z), torch.tensor(targets), **CASES[case])
            loss.backward()
            out[f"{case}.loss"] = loss.detach().reshape(1)
            out.update({f"{case}.grad.{k}": p.grad.clone() for k, p in model.named_parameters()})
    return {k: t.to(torch.float32).contiguous() for k, t in out.items()}


for name in MODELS:
    path = os.path.join(HERE, name, "objectives.safetensors")
    got = compute(name)
    if "--check" in sys.argv:
        want = load_file(path)
        assert want.keys() == got.keys()
        far = max(((got[k] - want[k]).norm() / want[k].norm()).item() for k in want)
        print(f"{name}: {far:.1e}")
        assert far < 1e-6
    else:
        save_file(got, path)
        print(name, {k: round(v.item(), 6) for k, v in got.items() if k.endswith(".loss")})
