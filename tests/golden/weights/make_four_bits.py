"""Weights of 4-bit codes as quantization packages store them, and the numbers they hold.

    python make_four_bits.py        writes the folders bnb_nf4, bnb_nf4_nested, gptq, gptq_v2 and awq beside this file, and expected/
Needs torch, bitsandbytes 0.49 (on the CPU), numpy and safetensors; building and testing need none of them.

NF4 is quantized and dequantized by bitsandbytes itself.  GPTQ and AWQ are packed and unpacked here, word by word, from the
descriptions of AutoGPTQ's QuantLinear and AutoAWQ's WQLinear_GEMM: their packages need a GPU.
"""
import json
import os

import bitsandbytes.functional as bnb
import numpy as np
import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(7)
rng = np.random.default_rng(7)


def write(name, stored, expected, quantization):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    stored["norm.weight"] = torch.randn(8).bfloat16()
    expected["norm.weight"] = stored["norm.weight"].float()
    save_file({k: v.contiguous() for k, v in stored.items()}, os.path.join(folder, "model.safetensors"))
    save_file({k: v.float().contiguous() for k, v in expected.items()}, os.path.join(HERE, "expected", name + ".safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"model_type": "llama", "torch_dtype": "float16", "quantization_config": quantization}, f, indent=2)
    print(name, {k: tuple(v.shape) for k, v in expected.items()})


def nf4(nested):
    stored, expected = {}, {}
    # A width that blocks divide, one that they do not, and more blocks than share a nested scale.
    for name, shape, block in (("a.weight", (8, 128), 64), ("b.weight", (3, 22), 64), ("c.weight", (72, 256), 64), ("d.weight", (4, 256), 128)):
        w = torch.randn(shape) * 0.05
        q, state = bnb.quantize_4bit(w, blocksize=block, compress_statistics=nested, quant_type="nf4")
        stored[name] = q
        for k, v in state.as_dict(packed=True).items():
            stored[name + "." + k] = v
        expected[name] = bnb.dequantize_4bit(q, state)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested}
    write("bnb_nf4_nested" if nested else "bnb_nf4", stored, expected, config)


def words(codes, axis):
    """Eight codes along an axis to a word, the first in the low bits."""
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    w = (codes.reshape(*codes.shape[:-1], -1, 8) << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(w, -1, axis)).view(np.int32))


def int4(name, rows, columns, group, stored, expected, method, order=None, less_one=True):
    groups = -(-columns // group)
    q = rng.integers(0, 16, (columns, rows))
    zero = rng.integers(1, 16, (groups, rows))
    scale = (rng.random((groups, rows)) * 0.02 + 0.001).astype(np.float16)
    of = np.arange(columns) // group if order is None else order
    expected[name + ".weight"] = torch.from_numpy(((q - zero[of]).astype(np.float32) * scale[of].astype(np.float32)).T.copy())
    if method == "awq":  # nibble i of a word is output 8k + (0, 2, 4, 6, 1, 3, 5, 7)[i]
        place = np.array([0, 2, 4, 6, 1, 3, 5, 7])
        shuffle = lambda x: x.reshape(x.shape[0], -1, 8)[:, :, place].reshape(x.shape)
        stored[name + ".qweight"] = words(shuffle(q), 1)
        stored[name + ".qzeros"] = words(shuffle(zero), 1)
    else:
        stored[name + ".qweight"] = words(q, 0)
        stored[name + ".qzeros"] = words(zero - less_one, 1)
        stored[name + ".g_idx"] = torch.from_numpy(of.astype(np.int32))
    stored[name + ".scales"] = torch.from_numpy(scale)


def gptq(name, v2):
    stored, expected = {}, {}
    int4("a", 16, 64, 32, stored, expected, "gptq", less_one=not v2)
    int4("b", 24, 96, 32, stored, expected, "gptq", order=rng.permutation(np.arange(96) // 32), less_one=not v2)
    int4("c", 8, 40, 32, stored, expected, "gptq", less_one=not v2)
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False}
    if v2:
        config["checkpoint_format"] = "gptq_v2"
    write(name, stored, expected, config)


nf4(False)
nf4(True)
gptq("gptq", False)
gptq("gptq_v2", True)
stored, expected = {}, {}
int4("a", 16, 64, 64, stored, expected, "awq")
int4("b", 24, 128, 64, stored, expected, "awq")
write("awq", stored, expected, {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True})
