"""Writes schedules.json beside this file: learning-rate factors as transformers computes them.

    python make_goldens.py            (needs torch and transformers; the tests do not)
"""
import json
import pathlib
import types

import torch
import transformers
from transformers import TrainingArguments, get_scheduler

MIN = {"min_lr_rate": 0.1}
CASES = [  # name, lr, steps, warm-up, kwargs
    ("constant", 2e-5, 20, 0, {}),
    ("constant", 2e-5, 20, 5, {}),
    ("constant_with_warmup", 2e-5, 20, 5, {}),
    ("constant_with_warmup", 2e-5, 20, 0, {}),
    ("linear", 2e-5, 50, 0, {}),
    ("linear", 2e-5, 50, 7, {}),
    ("linear", 2e-5, 10, 10, {}),
    ("linear", 2e-5, 10, 13, {}),
    ("cosine", 1e-4, 50, 0, {}),
    ("cosine", 1e-4, 50, 5, {}),
    ("cosine", 1e-4, 100000, 3000, {}),
    ("cosine", 1e-4, 50, 5, {"num_cycles": 1.5}),
    ("cosine_with_restarts", 1e-4, 50, 5, {}),
    ("cosine_with_restarts", 1e-4, 50, 5, {"num_cycles": 3}),
    ("polynomial", 1e-4, 50, 5, {}),
    ("polynomial", 1e-4, 50, 0, {"power": 2.5, "lr_end": 1e-6}),
    ("polynomial", 1e-4, 50, 5, {"power": 0.5, "lr_end": 0.0}),
    ("inverse_sqrt", 1e-3, 60, 10, {}),
    ("inverse_sqrt", 1e-3, 60, 0, {}),
    ("inverse_sqrt", 1e-3, 60, 10, {"timescale": 25}),
    ("cosine_with_min_lr", 1e-4, 50, 5, MIN),
    ("cosine_with_min_lr", 1e-4, 50, 0, {"min_lr": 1e-5}),
    ("cosine_with_min_lr", 1e-4, 50, 5, {"min_lr_rate": 0.2, "num_cycles": 1.0}),
    ("cosine_warmup_with_min_lr", 1e-4, 50, 5, MIN),
    ("cosine_warmup_with_min_lr", 1e-4, 50, 1, {"min_lr": 3e-5, "warmup_lr_rate": 0.3}),
    ("cosine_warmup_with_min_lr", 1e-4, 50, 6, {"min_lr_rate": 0.0, "warmup_lr_rate": 0.01}),
    ("warmup_stable_decay", 1e-4, 50, 0, {"num_decay_steps": 50}),
    ("warmup_stable_decay", 1e-4, 50, 5, {"num_decay_steps": 10, "num_stable_steps": 20}),
]
CASES += [
    ("warmup_stable_decay", 1e-4, 50, 8, {"num_decay_steps": 20, "warmup_type": w, "decay_type": d, "min_lr_ratio": r, "num_cycles": c})
    for w, d, r, c in [
        ("linear", "linear", 0.0, 0.5),
        ("cosine", "cosine", 0.1, 0.5),
        ("1-sqrt", "1-sqrt", 0.05, 0.5),
        ("linear", "cosine", 0.0, 1.25),
        ("cosine", "1-sqrt", 0.0, 0.5),
    ]
]
WARMUPS = [(n, w) for n in (1, 7, 100, 1000, 12345) for w in (0, 0.03, 0.1, 0.5, 1, 2.7, 100)]


def factors(name, lr, steps, warmup, kwargs):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps, scheduler_specific_kwargs=kwargs)
    of = scheduler.lr_lambdas[0]
    assert optimizer.param_groups[0]["lr"] == lr * of(0)  # the first update uses lambda(0)
    every = range(steps + 6) if steps <= 100 else sorted({*range(0, steps, 997), 1, 2, 2999, 3000, 3001, steps - 2, steps - 1, steps})
    return [[step, float(of(step))] for step in every]


def main():
    cases = [
        {"name": n, "lr": lr, "n_steps": s, "warmup_steps": w, "kwargs": k, "factors": factors(n, lr, s, w, k)} for n, lr, s, w, k in CASES
    ]
    warmups = [[n, w, TrainingArguments.get_warmup_steps(types.SimpleNamespace(warmup_steps=w), n)] for n, w in WARMUPS]
    out = pathlib.Path(__file__).with_name("schedules.json")
    made_with = f"transformers {transformers.__version__}"
    lines = ",\n".join(json.dumps(c) for c in cases)
    out.write_text(f'{{"made_with": {json.dumps(made_with)},\n"warmups": {json.dumps(warmups)},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
