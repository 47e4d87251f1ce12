"""A whole model as DeepSeek publishes its: matrices of layers in FP8 with a scale for each block, everything else as it was.

    python make_fp8_model.py            writes fp8_deepseek and expected/fp8_deepseek.safetensors
Needs torch and safetensors; building and testing need neither.

The numbers are those of ../models/deepseek_v3, quantized.  Blocks of 4 x 6 stand for the published 128 x 128, so that the toy's
matrices have several, and cut-off ones at both edges."""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "models", "deepseek_v3")
ROWS, COLUMNS, LARGEST = 4, 6, 448.0


def spread(scale, shape):
    return scale.repeat_interleave(ROWS, 0)[: shape[0]].repeat_interleave(COLUMNS, 1)[:, : shape[1]]


def quantize(w):
    """FP8 numbers, and what to multiply the numbers of each block with."""
    grid = torch.zeros((w.shape[0] + ROWS - 1) // ROWS, (w.shape[1] + COLUMNS - 1) // COLUMNS)
    for r in range(grid.shape[0]):
        for c in range(grid.shape[1]):
            grid[r, c] = w[r * ROWS:(r + 1) * ROWS, c * COLUMNS:(c + 1) * COLUMNS].abs().max() / LARGEST
    return (w / spread(grid, w.shape)).to(torch.float8_e4m3fn), grid


def is_quantised(name, w):
    return "_proj" in name and w.ndim == 2


def main():
    folder = os.path.join(HERE, "fp8_deepseek")
    os.makedirs(folder, exist_ok=True)
    stored, expected = {}, {}
    for name, w in load_file(os.path.join(SOURCE, "model.safetensors")).items():
        if is_quantised(name, w):
            stored[name], stored[name + "_scale_inv"] = quantize(w)
            expected[name] = stored[name].float() * spread(stored[name + "_scale_inv"], w.shape)
        else:
            stored[name] = expected[name] = w if name.endswith("e_score_correction_bias") else w.bfloat16()
    save_file(stored, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    save_file({k: v.float().contiguous() for k, v in expected.items()}, os.path.join(HERE, "expected", "fp8_deepseek.safetensors"))
    config = json.load(open(os.path.join(SOURCE, "config.json")))
    config["torch_dtype"] = "bfloat16"
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [ROWS, COLUMNS]}
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps(config, indent=2) + "\n")
    shutil.copy(os.path.join(SOURCE, "tokens.json"), folder)


main()
