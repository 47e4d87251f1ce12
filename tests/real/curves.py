"""300 steps of small models by transformers' Trainer and by megatrain, in float32 on the CPU, compared step by step.

    python3 curves.py MEGATRAIN [MODEL ...]        MODEL: a row of MODELS (all of them)

A dense model shows how far two float32 implementations drift apart in 300 steps; models with gated delta nets, and with experts too, must stay as
close.  How far rounding alone leads is measured as well: transformers trains once more from weights that differ by 1e-7 of their size.  The models are
random, their tokenizer and data are the demo's.  Needs torch, transformers and accelerate (see trainer.py).

Ends with 1 if samples differ, if the loss or gradient norm of a step is further away than LIMITS, or, with experts, if the median is and is also more than
ten times that of rounding: rounding that changes the choice of an expert changes the loss of its token at once, and the curves part there."""
import json
import os
import shutil
import statistics
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import trainer

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data")
STEPS, EPOCHS, RATE, NUDGE = 300, 3, 1e-3, 1e-7
LIMITS = {"loss": 5e-5, "grad_norm": 5e-4}  # relative, at any step

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 448,
         "max_position_embeddings": 512, "hidden_act": "silu", "tie_word_embeddings": False, "initializer_range": 0.04, "eos_token_id": 2,
         "pad_token_id": 0}
DENSE = {"intermediate_size": 128}
DELTA = {"full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "linear_conv_kernel_dim": 4}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "norm_topk_prob": True}
MODELS = {
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SMALL, **DENSE},
    "qwen3_moe": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], **SMALL, **DENSE, **EXPERTS},
    "qwen3_5": {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **SMALL, **DENSE, **DELTA},
    "qwen3_5_moe": {"model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForCausalLM"], **SMALL, **DELTA, **EXPERTS},
    "qwen3_next": {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], **SMALL, **DENSE, **DELTA, **EXPERTS},
}


def make_model(name, folder):
    """A directory with random weights, and the demo's tokenizer and template."""
    torch.manual_seed(17)
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(**MODELS[name]), dtype=torch.float32)
    net.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(DATA, "demo_model", file), folder)


def load(folder, nudge=0.0):
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    net.config._experts_implementation = "eager"  # torch's grouped product wants wider rows
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1 + nudge * torch.randn(p.shape, generator=torch.Generator().manual_seed(5)))
    return net


def distances(curve, other, key):
    return [abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(curve, other)]


def describe(far):
    """Median, maximum, and how long two curves are the same for the eye."""
    leaves = next((i + 1 for i, d in enumerate(far) if d > 1e-4), None)
    return f"median {statistics.median(far):.1e}, at most {max(far):.1e}" + (f", below 1e-4 until step {leaves}" if leaves else "")


def furthest(net, folder):
    """The tensor that differs most, and by how much (experts are stored one by one, and are left out)."""
    saved = load_file(folder + "/model.safetensors")
    return max((((saved[k] - v).abs().max().item(), k) for k, v in net.state_dict().items() if k in saved))


def compare(program, name, work):
    """True if the curves stay together."""
    model = work + "/model"
    make_model(name, model)
    records = json.load(open(DATA + "/demo_train.json"))[:STEPS * trainer.BATCH * trainer.ACCUMULATE // EPOCHS]
    json.dump(records, open(work + "/records.json", "w"))
    json.dump({"records": {"file_name": "records.json"}}, open(work + "/dataset_info.json", "w"))
    data = trainer.samples(PreTrainedTokenizerFast.from_pretrained(model), records)
    good = data == trainer.our_samples(program, model, work)
    net = load(model)
    ours, theirs, nudged = trainer.ours(program, model, work), trainer.theirs(net, data, work), trainer.theirs(load(model, NUDGE), data, work)
    good &= len(ours) == len(theirs) == STEPS
    print(f"{name}: {len(data)} samples, {len(ours)} steps, loss {theirs[0]['loss']:.3f} to {statistics.mean(h['loss'] for h in theirs[-10:]):.3f}; "
          "weights at most {:.1e} apart ({})".format(*furthest(net, work + "/run/final")))
    for key, limit in LIMITS.items():
        far, rounding = distances(ours, theirs, key), distances(nudged, theirs, key)
        print(f"    {key}: {describe(far)}; rounding alone: {describe(rounding)}", flush=True)
        good &= max(far) <= limit or "num_experts" in MODELS[name] and statistics.median(far) <= max(limit, 10 * statistics.median(rounding))
    return good


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    trainer.EPOCHS, trainer.RATE = EPOCHS, RATE
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            same = compare(program, name, work)
            print(f"    {'the same curve' if same else 'ANOTHER CURVE'}", flush=True)
            bad += not same
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
