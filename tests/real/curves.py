"""300 steps of small models by megatrain and by transformers' Trainer, both in float32 on the CPU, measured by transformers in float64.

    python3 curves.py MEGATRAIN [SEEDS] [MODEL ...]        SEEDS: 5; MODEL: a row of MODELS (all of them)

Two float32 implementations drift apart, the faster the more a model amplifies rounding; their distance alone does not show whether one of them is wrong.
So both are compared with the same training in float64 (exact.py).  Ours follows the curve as closely as transformers does if it is no further from it.
For each model and seed (other weights, other order of the data) four runs: megatrain, transformers, transformers from weights that differ by 1e-7 of their
size, and the one in float64.  Also, before the first and after the last step: every gradient of eight samples.

With experts, rounding that changes a choice changes the loss of that token at once, and the curves part there.  The first step at which this happens is
printed.  The models named `_all` choose all of their experts: there is nothing to change.

Needs torch, transformers and accelerate (see trainer.py).  Models are random; tokenizer and data are the demo's.  Ends with 1 if samples differ, or if
ours is further away than transformers by more than LIMITS, a ratio of medians over the steps (those before choices differ), geometric mean over the seeds."""
import contextlib
import io
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import exact
import trainer

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data")
STEPS, EPOCHS, RATE, NUDGE, FIRST_SEED, GRADIENT_SAMPLES = 300, 3, 1e-3, 1e-7, 17, 8
LIMITS = {"loss": 2.0, "grad_norm": 2.0, "gradients": 1.5}
PARTED = 1e-5  # of the loss: further than float32 of a dense model ever is
WHO = ("ours", "theirs", "nudged")  # the float32 runs

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 448,
         "max_position_embeddings": 512, "hidden_act": "silu", "tie_word_embeddings": False, "initializer_range": 0.04, "eos_token_id": 2,
         "pad_token_id": 0}
DENSE = {"intermediate_size": 128}
DELTA = {"full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "linear_conv_kernel_dim": 4}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "norm_topk_prob": True}
ALL = {**EXPERTS, "num_experts": 4, "num_experts_per_tok": 4}
QWEN3_MOE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], **SMALL, **DENSE}
QWEN3_5_MOE = {"model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForCausalLM"], **SMALL, **DELTA}
QWEN3_NEXT = {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], **SMALL, **DENSE, **DELTA}
MODELS = {
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SMALL, **DENSE},
    "qwen3_5": {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **SMALL, **DENSE, **DELTA},
    "qwen3_moe_all": {**QWEN3_MOE, **ALL},
    "qwen3_5_moe_all": {**QWEN3_5_MOE, **ALL},
    "qwen3_next_all": {**QWEN3_NEXT, **ALL},
    "qwen3_moe": {**QWEN3_MOE, **EXPERTS},
    "qwen3_5_moe": {**QWEN3_5_MOE, **EXPERTS},
    "qwen3_next": {**QWEN3_NEXT, **EXPERTS},
}


# -- one training -----------------------------------------------------------------------------------------------------------------------------------

def make_model(name, folder, seed):
    """A directory with random weights, and the demo's tokenizer and template."""
    torch.manual_seed(seed)
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(**MODELS[name]), dtype=torch.float32)
    net.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(DATA, "demo_model", file), folder)


def make_data(work, seed):
    records = json.load(open(DATA + "/demo_train.json"))
    random.Random(seed).shuffle(records)
    records = records[:STEPS * trainer.BATCH * trainer.ACCUMULATE // EPOCHS]
    json.dump(records, open(work + "/records.json", "w"))
    json.dump({"records": {"file_name": "records.json"}}, open(work + "/dataset_info.json", "w"))
    return trainer.samples(PreTrainedTokenizerFast.from_pretrained(work + "/model"), records)


def load(folder, dtype, nudge=0.0, seed=0):
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    net.config._experts_implementation = "eager"  # torch's grouped product wants wider rows
    if nudge:
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + nudge * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
    return net


def watch_choices(net):
    """The experts chosen in every call of every router, padding left out."""
    chosen, mask = [], []
    net.register_forward_pre_hook(lambda m, args, kwargs: mask.append(kwargs["attention_mask"].flatten().bool()), with_kwargs=True)
    for module in net.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(lambda m, args, out: chosen.append(out[2][mask[-1]].sort(-1).values))
    return chosen


def theirs(folder, data, work, dtype, nudge=0.0, seed=0):
    """Steps, final weights and choices of transformers."""
    with exact.doubles() if dtype is torch.float64 else contextlib.nullcontext(), contextlib.redirect_stdout(io.StringIO()):
        net = load(folder, dtype, nudge, seed)
        chosen = watch_choices(net)
        steps = trainer.theirs(net, data, work)
    return steps, {k: v.detach().double() for k, v in net.named_parameters()}, chosen


# -- distances --------------------------------------------------------------------------------------------------------------------------------------

def distances(curve, truth, key):
    return [abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(curve, truth)]


def parting(curve, truth):
    """The first step whose loss is far from the truth's; one more than there are if none is."""
    return next((i + 1 for i, d in enumerate(distances(curve, truth, "loss")) if d > PARTED), STEPS + 1)


def first_other_choice(chosen, truth):
    calls = len(chosen) // STEPS if chosen else 1
    return next((i // calls + 1 for i, (a, b) in enumerate(zip(chosen, truth)) if not torch.equal(a, b)), STEPS + 1)


def first_other_load(steps, truth):
    """The first step at which our busiest expert of a layer had more or fewer rows than in float64: a choice differs there, or earlier."""
    calls = len(truth) // STEPS
    for i, step in enumerate(steps if truth else []):
        now, layers = truth[i * calls:(i + 1) * calls], calls // trainer.ACCUMULATE
        for layer, busiest in enumerate(step["busiest_expert"]):
            rows = torch.cat(now[layer::layers])
            if abs(rows.flatten().bincount().max().item() / len(rows) - busiest) > 1e-4:
                return i + 1
    return STEPS + 1


def is_decay(name):
    return re.search(r"linear_attn\.(A_log|dt_bias|in_proj_a|in_proj_ba)", name) is not None


def far_weights(weights, truth, decay):
    """The largest difference; experts, which we save one by one, are left out."""
    return max((((weights[k] - truth[k]).abs().max().item()) for k in truth if k in weights and is_decay(k) == decay), default=0.0)


# -- gradients --------------------------------------------------------------------------------------------------------------------------------------

def their_gradients(folder, data, dtype):
    with exact.doubles() if dtype is torch.float64 else contextlib.nullcontext():
        net = load(folder, dtype)
        n = sum(x != -100 for d in data for x in d["labels"][1:])
        for d in data:
            logits = net(input_ids=torch.tensor([d["input_ids"]])).logits[0, :-1]
            (torch.nn.functional.cross_entropy(logits, torch.tensor(d["labels"][1:]), reduction="sum") / n).backward()
    return {k: p.grad.double() for k, p in net.named_parameters() if ".experts." not in k}


def our_gradients(program, folder, data, work):
    json.dump({k: [d[k] for d in data] for k in ("input_ids", "labels")}, open(work + "/tokens.json", "w"))
    subprocess.run([program, "grad", folder, "--tokens", work + "/tokens.json", "--out", work + "/grad.safetensors", "--dtype", "float32", "--device", "cpu",
                    "--quiet"], check=True, capture_output=True)
    return {k[len("grad."):]: v.double() for k, v in load_file(work + "/grad.safetensors").items()}


def far_gradients(program, folder, data, work):
    """(tensor, ours, theirs): relative distances from float64."""
    truth, here, there = their_gradients(folder, data, torch.float64), our_gradients(program, folder, data, work), their_gradients(folder, data, torch.float32)
    far = lambda g, k: ((g[k].reshape(truth[k].shape) - truth[k]).norm() / truth[k].norm()).item()
    return [(k, far(here, k), far(there, k)) for k in truth]


# -- a model ----------------------------------------------------------------------------------------------------------------------------------------

def measure(program, name, seed):
    with tempfile.TemporaryDirectory() as work:
        model = work + "/model"
        make_model(name, model, seed)
        data = make_data(work, seed)
        if data != trainer.our_samples(program, model, work):
            sys.exit(f"{name}, seed {seed}: the samples differ")
        ours = trainer.ours(program, model, work)
        saved = {k: v.double() for k, v in load_file(work + "/run/final/model.safetensors").items()}
        truth, true_weights, true_choices = theirs(model, data, work, torch.float64)
        there, their_weights, their_choices = theirs(model, data, work, torch.float32)
        nudged = theirs(model, data, work, torch.float32, NUDGE, seed)
        some = data[:GRADIENT_SAMPLES]
        assert len(ours) == len(truth) == len(there) == STEPS
        return {"curves": {"ours": ours, "theirs": there, "nudged": nudged[0], "truth": truth},
                "choices": {"ours": first_other_load(ours, true_choices), "theirs": first_other_choice(their_choices, true_choices),
                            "nudged": first_other_choice(nudged[2], true_choices)},
                "weights": {who: [far_weights(w, true_weights, decay) for decay in (False, True)]
                            for who, w in (("ours", saved), ("theirs", their_weights), ("nudged", nudged[1]))},
                "gradients": far_gradients(program, model, some, work) + far_gradients(program, work + "/run/final", some, work)}


def mean_ratio(pairs):
    return statistics.geometric_mean(a / b for a, b in pairs)


def chooses(name):
    return MODELS[name].get("num_experts", 0) > MODELS[name].get("num_experts_per_tok", 0)


def steps_together(run):
    """How many steps there are before a choice of experts, or the loss, is another one in any float32 run."""
    return min(min(run["choices"][who], parting(run["curves"][who], run["curves"]["truth"])) for who in WHO) - 1


def show_curves(runs, key, lengths):
    """Typical and largest distance of each float32 run from float64, over all seeds; returns how much further ours is."""
    far = {who: [distances(r["curves"][who], r["curves"]["truth"], key)[:n] for r, n in zip(runs, lengths)] for who in WHO}
    print(f"    {key}: " + "; ".join(f"{who} median {statistics.median(d for run in far[who] for d in run):.1e}, at most {max(map(max, far[who])):.1e}" for who in WHO))
    ratios = {who: [statistics.median(a) / statistics.median(b) for a, b in zip(far[who], far["theirs"])] for who in ("ours", "nudged")}
    for who, each in ratios.items():
        print(f"        {who} / theirs: {statistics.geometric_mean(each):.2f} (seeds: {' '.join(f'{x:.2f}' for x in each)})", flush=True)
    return statistics.geometric_mean(ratios["ours"])


def show_parting(name, runs):
    step = lambda x: f">{STEPS}" if x > STEPS else str(x)
    for who in WHO:
        line = f"    {who}: loss further than {PARTED:.0e} from step {' '.join(step(parting(r['curves'][who], r['curves']['truth'])) for r in runs)}"
        if chooses(name):
            line += f"; {'loads' if who == 'ours' else 'choices'} differ from step {' '.join(step(r['choices'][who]) for r in runs)}"
        print(line)


def show_rest(runs):
    """Weights after the last step, and gradients; returns how much further ours are, typically."""
    for i, what in enumerate(("weights", "decays")):
        most = {who: max(r["weights"][who][i] for r in runs) for who in WHO}
        if any(most.values()):
            print(f"    {what}: " + ", ".join(f"{who} at most {x:.1e}" for who, x in most.items()))
    for decay in (False, True):
        rows = [g for r in runs for g in r["gradients"] if is_decay(g[0]) == decay]
        if rows:
            print(f"    gradients{' of decays' if decay else ''}: ours median {statistics.median(g[1] for g in rows):.1e}, at most {max(g[1] for g in rows):.1e}; theirs median "
                  f"{statistics.median(g[2] for g in rows):.1e}, at most {max(g[2] for g in rows):.1e}; ours / theirs: {mean_ratio(g[1:] for g in rows):.2f}", flush=True)
    return mean_ratio(g[1:] for r in runs for g in r["gradients"] if not is_decay(g[0]))


def compare(program, name, n_seeds):
    """True if ours is as close to float64 as transformers is."""
    runs = [measure(program, name, FIRST_SEED + i) for i in range(n_seeds)]
    ends = [statistics.mean(s["loss"] for s in r["curves"]["truth"][-10:]) for r in runs]
    print(f"{name}: {n_seeds} seeds, {STEPS} steps, loss {runs[0]['curves']['truth'][0]['loss']:.2f} to {statistics.mean(ends):.2f}")
    ratios = {key: show_curves(runs, key, [STEPS] * n_seeds) for key in ("loss", "grad_norm")}
    show_parting(name, runs)
    if chooses(name):
        lengths = [steps_together(r) for r in runs]
        print(f"    as long as all choose the same experts, {' '.join(map(str, lengths))} steps:")
        ratios = {key: show_curves(runs, key, lengths) for key in ("loss", "grad_norm")}
    ratios["gradients"] = show_rest(runs)
    return all(ratios[k] <= LIMITS[k] for k in LIMITS)


def main():
    program, rest = sys.argv[1], sys.argv[2:]
    n_seeds = int(rest.pop(0)) if rest and rest[0].isdigit() else 5
    trainer.EPOCHS, trainer.RATE = EPOCHS, RATE
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bad = 0
    for name in rest or MODELS:
        close = compare(program, name, n_seeds)
        print(f"    {'as close as transformers' if close else 'FURTHER THAN TRANSFORMERS'}", flush=True)
        bad += not close
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
