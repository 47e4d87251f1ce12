"""The same fine-tuning by transformers' Trainer and by megatrain, in float32 on the CPU, compared step by step.

    python3 trainer.py MEGATRAIN MODEL RECORDS.json [FOLDER]

MODEL is a directory with weights, a tokenizer and a chat template; RECORDS.json is a list of {"instruction", "input", "output"}.  Needs torch,
transformers and accelerate.  Compared: ids and labels of every sample, made from the chat template alone; the number of steps; loss, gradient norm
and learning rate of each; the saved weights; and what both say greedily afterwards.  Ends with 1 if anything is further than LIMITS."""
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

LENGTH, BATCH, ACCUMULATE, EPOCHS, RATE, WARMUP, DECAY, CLIP = 128, 2, 2, 2, 5e-5, 2, 0.1, 1.0
LIMITS = {"loss": 5e-5, "grad_norm": 2e-4, "learning_rate": 1e-9}  # relative; most of it is torch's own distance from float64


def samples(tok, records):
    """Answer and end of turn are learned; what the template writes behind it is there and not learned."""
    out = []
    for r in records:
        question = [{"role": "user", "content": r["instruction"] + ("\n" + r["input"] if r["input"] else "")}]
        prompt = tok.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
        text = tok.apply_chat_template(question + [{"role": "assistant", "content": r["output"]}], tokenize=False)
        assert text.startswith(prompt + r["output"]), "a template that changes answers: not for this script"
        ended = prompt + r["output"] + text[len(prompt + r["output"]):].rstrip()
        ids, before, learned = (tok(t, add_special_tokens=False)["input_ids"] for t in (text, prompt, ended))
        labels = ([-100] * len(before) + learned[len(before):] + [-100] * (len(ids) - len(learned)))[:LENGTH]
        if any(x != -100 for x in labels):
            out.append({"input_ids": ids[:LENGTH], "labels": labels})
    return out


def collate(batch):
    longest = max(len(b["input_ids"]) for b in batch)
    fill = lambda x, by: x + [by] * (longest - len(x))
    return {"input_ids": torch.tensor([fill(b["input_ids"], 0) for b in batch]), "labels": torch.tensor([fill(b["labels"], -100) for b in batch]),
            "attention_mask": torch.tensor([fill([1] * len(b["input_ids"]), 0) for b in batch])}


class InOrder(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.losses = collections.Counter()  # of steps

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.losses[self.state.global_step] += loss.item()
        return loss


def theirs(model, data, work):
    """A row for each step.  Losses of micro-batches are added here: Trainer does it in float32, which is coarser than what is compared."""
    args = TrainingArguments(output_dir=work + "/trainer", use_cpu=True, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True, optim="adamw_torch",
                             per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATE, num_train_epochs=EPOCHS, learning_rate=RATE,
                             lr_scheduler_type="cosine", warmup_steps=WARMUP, weight_decay=DECAY, max_grad_norm=CLIP)
    trainer = InOrder(model=model, args=args, train_dataset=data, data_collator=collate)
    trainer.train()
    rows = [h for h in trainer.state.log_history if "loss" in h]
    return [{**h, "loss": trainer.losses[i]} for i, h in enumerate(rows)]


def settings(model, work):
    values = {"dataset.max_seq_len": LENGTH, "dataset.shuffle": "false", "dataset.cache_dir": work + "/cache", "training.batch_size": BATCH,
              "training.gradient_accumulation_steps": ACCUMULATE, "training.epochs": EPOCHS, "training.learning_rate": RATE, "training.lr_scheduler": "cosine",
              "training.warmup_steps": WARMUP, "training.weight_decay": DECAY, "training.max_grad_norm": CLIP, "training.grad_dtype": "float32",
              "save.save_only_model": "true"}
    return ["--model-name", model, "--dataset-name", "records", "--dataset-dir", work, "--output-dir", work + "/run", "--device", "cpu", "--dtype", "float32",
            *(x for k, v in values.items() for x in ("--set", f"{k}={v}"))]


def our_samples(program, model, work):
    """megatrain data --ids puts brackets around what is trained."""
    shown = subprocess.run([program, "data", *settings(model, work), "--show", "1000000", "--ids"], capture_output=True, text=True).stdout
    rows = [line.split()[1:] for line in shown.splitlines() if line.startswith("ids ")]
    return [{"input_ids": [int(w.strip("[]")) for w in row], "labels": [int(w.strip("[]")) if w[0] == "[" else -100 for w in row]} for row in rows]


def ours(program, model, work):
    done = subprocess.run([program, "train", *settings(model, work)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [row for row in map(json.loads, open(work + "/run/metrics.jsonl")) if "loss" in row]


def far_weights(model, folder):
    saved = {k: v for f in os.listdir(folder) if f.endswith(".safetensors") for k, v in load_file(f"{folder}/{f}").items()}
    return max((saved[k].float() - v).abs().max().item() for k, v in model.state_dict().items() if k in saved)


@torch.no_grad()
def same_answers(program, tok, folder, records):
    model, same = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), 0
    for r in records:
        ids = tok.apply_chat_template([{"role": "user", "content": r["instruction"]}], add_generation_prompt=True, tokenize=True, return_tensors="pt")["input_ids"]
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)[0, ids.shape[1]:]
        said = subprocess.run([program, "generate", folder, "--chat", "--prompt", r["instruction"], "--max-new-tokens", "16", "--dtype", "float32", "--device", "cpu"],
                              capture_output=True, text=True).stdout
        same += said.strip() == tok.decode(out, skip_special_tokens=True).strip()
    return same


def main():
    program, model, path = sys.argv[1:4]
    work = sys.argv[4] if len(sys.argv) > 4 else tempfile.mkdtemp()
    records = json.load(open(path))
    shutil.rmtree(work + "/run", ignore_errors=True)
    os.makedirs(work, exist_ok=True)
    json.dump(records, open(work + "/records.json", "w"))
    json.dump({"records": {"file_name": "records.json"}}, open(work + "/dataset_info.json", "w"))
    tok = AutoTokenizer.from_pretrained(model)
    data, bad = samples(tok, records), 0

    same = data == our_samples(program, model, work)
    print(f"samples: {len(data)} of {len(records)} records, ids and labels {'the same' if same else 'DIFFER'}")
    steps = ours(program, model, work)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    history = theirs(net, data, work)
    print(f"steps: {len(steps)} here, {len(history)} there")
    bad += not same or len(steps) != len(history)
    for key, limit in LIMITS.items():
        far = max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-12) for a, b in zip(steps, history))
        print(f"{key}: at most {far:.1e} apart, relatively ({limit:.0e} allowed)")
        bad += not far <= limit
    print(f"weights: at most {far_weights(net, work + '/run/final'):.1e} apart, after {len(steps)} steps of up to {RATE:.0e}")
    asked = records[:3]
    said = same_answers(program, tok, work + "/run/final", asked)
    print(f"answers: {said} of {len(asked)} the same")
    sys.exit(1 if bad or said < len(asked) else 0)


if __name__ == "__main__":
    main()
