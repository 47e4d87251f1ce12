"""MXFP4 as GPT-OSS is published in: every code with every scale from 0 to 254, and what transformers makes of them.

    python make_mxfp4.py            writes the folder mxfp4 beside this file, and expected/mxfp4.safetensors
Needs torch, transformers and safetensors; building and testing need none of them."""
import json
import os

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "mxfp4")

# 255 blocks, one for each scale; each holds all 16 codes twice, in another order in every block.
scales = torch.arange(255, dtype=torch.uint8).reshape(3, 17, 5)
order = torch.stack([torch.randperm(32, generator=torch.Generator().manual_seed(i)) % 16 for i in range(255)]).to(torch.uint8)
blocks = (order[:, 0::2] | order[:, 1::2] << 4).reshape(3, 17, 5, 16)
experts = {"gate_up_proj": (blocks, scales), "down_proj": (blocks[:2, :8, :2].contiguous(), scales[:2, :8, :2].contiguous())}

stored = {"plain.weight": torch.arange(6).reshape(2, 3).bfloat16()}
expected = {"plain.weight": stored["plain.weight"].float()}
for name, (b, s) in experts.items():
    stored[name + "_blocks"], stored[name + "_scales"] = b, s
    expected[name] = convert_moe_packed_tensors(b, s).float().contiguous()
    code = torch.stack((b & 15, b >> 4), -1).flatten(2).double()
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
    exact = table[code.long()] * torch.exp2(s.double() - 127).repeat_interleave(32, -1)
    finite = exact.abs() < 2.0 ** 128
    assert torch.equal(expected[name].transpose(1, 2).double()[finite], exact[finite]) and not expected[name].transpose(1, 2)[~finite].isfinite().any()
os.makedirs(FOLDER, exist_ok=True)
save_file(stored, os.path.join(FOLDER, "model.safetensors"))
save_file(expected, os.path.join(HERE, "expected", "mxfp4.safetensors"))
with open(os.path.join(FOLDER, "config.json"), "w") as f:
    json.dump({"model_type": "gpt_oss", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}, f, indent=2)
print({k: tuple(v.shape) for k, v in expected.items()})
