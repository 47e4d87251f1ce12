"""What transformers generates with a toy model past the positions it knows, each prompt alone, greedily, in fp32 on the CPU.

    python make_generated.py

Writes llama_dynamic/generated.json: prompts (one that ends before the last position, one beyond it), tokens, logits.
Needs torch and transformers; the file is committed."""
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

DIR = pathlib.Path(__file__).parent / "llama_dynamic"
NEW = 6
rows = []
for n in (61, 75):
    model = AutoModelForCausalLM.from_pretrained(DIR)  # anew: frequencies of a longer prompt would stay
    prompt = [3 + (7 * i * i + 5 * i) % 94 for i in range(n)]
    out = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=None, return_dict_in_generate=True,
                         output_logits=True)
    rows.append({"prompt": prompt, "ids": out.sequences[0, n:].tolist(),
                 "logits": [[round(x, 6) for x in step[0].tolist()] for step in out.logits]})
(DIR / "generated.json").write_text("\n".join(["["] + [json.dumps(r) + ("," if r is not rows[-1] else "") for r in rows] + ["]", ""]))
