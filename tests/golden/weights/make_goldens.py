"""Small weight files in every form that is read, and the numbers they hold.

    python make_goldens.py            writes the folders beside this file
Needs torch, safetensors, numpy and gguf; building and testing need none of them.

Each case is a folder as a user would have it (pytorch_model.bin, model.gguf, ...); expected/CASE.safetensors has every tensor
under the name and shape the program must show, in fp32.
"""

import json
import os
import pickle
import shutil
import struct
import zipfile

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(1)
rng = np.random.default_rng(1)


def folder(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def expect(path, tensors):
    tensors = {k: torch.as_tensor(v).detach().float().contiguous().clone() for k, v in tensors.items()}
    os.makedirs(os.path.join(HERE, "expected"), exist_ok=True)
    save_file(tensors, os.path.join(HERE, "expected", os.path.basename(path) + ".safetensors"))


# -- pickles ------------------------------------------------------------------------------------------


def floats():
    a = torch.randn(4, 6)
    embed = torch.randn(5, 3)
    return {
        "f32": a,
        "bf16": torch.randn(3, 5).bfloat16(),
        "f16": torch.randn(7).half(),
        "f64": torch.randn(2, 2).double(),
        "transposed": a.t(),
        "row": a[2],
        "column": a[:, 1],
        "every_other": torch.randn(9, 4)[::2, 1:3],
        "expanded": torch.randn(3, 1).expand(3, 4),
        "half_column": torch.randn(4, 4).half()[:, 2],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "one": torch.randn(1, 6, 1),
        "parameter": torch.nn.Parameter(torch.randn(2, 3)),
        "embed": embed,
        "tied": embed,
    }


def make_pickles():
    tensors = floats()
    for name, new in ("pickle_zip", True), ("pickle_legacy", False):
        path = folder(name)
        torch.save(tensors, os.path.join(path, "pytorch_model.bin"), _use_new_zipfile_serialization=new)
        expect(path, tensors)
    for protocol in 3, 4:
        path = folder(f"pickle_protocol{protocol}")
        torch.save(tensors, os.path.join(path, "pytorch_model.bin"), pickle_protocol=protocol)
        expect(path, tensors)

    path = folder("pickle_wrapped")
    module = torch.nn.Linear(3, 2)  # a state_dict carries _metadata, and training programs put it inside another dict
    torch.save({"epoch": 3, "lr": 0.5, "note": None, "state_dict": module.state_dict()}, os.path.join(path, "pytorch_model.bin"))
    expect(path, module.state_dict())

    path = folder("pickle_sharded")
    parts = [{"a": torch.randn(2, 2), "b": torch.randn(3)}, {"c": torch.randn(4).bfloat16()}]
    where = {}
    for i, part in enumerate(parts):
        file = f"pytorch_model-{i + 1:05}-of-00002.bin"
        torch.save(part, os.path.join(path, file))
        where |= {k: file for k in part}
    json.dump({"metadata": {"total_size": 0}, "weight_map": where}, open(os.path.join(path, "pytorch_model.bin.index.json"), "w"))
    expect(path, parts[0] | parts[1])

    path = folder("pickle_types")  # dtypes without a storage class of their own go another way
    f8 = torch.tensor([0.5, -1.75, 448.0, 0.0625]).to(torch.float8_e4m3fn)
    torch.save({"f8": f8, "f8_part": f8[1:3]}, os.path.join(path, "pytorch_model.bin"))
    expect(path, {"f8": f8.float(), "f8_part": f8[1:3].float()})


class Evil:
    def __reduce__(self):
        return os.system, ("echo this must never run",)


def zip_with(path, pickled, **extra):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("m/data.pkl", pickled)
        for name, data in extra.items():
            z.writestr("m/" + name, data)


def make_refused():
    path = folder("refused")
    at = lambda name: os.path.join(path, name)
    torch.save({"w": Evil()}, at("system_zip.bin"))
    torch.save({"w": Evil()}, at("system_legacy.bin"), _use_new_zipfile_serialization=False)
    pickle.dump(Evil(), open(at("system_plain.bin"), "wb"), protocol=2)
    zip_with(at("os_system.bin"), b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.")
    zip_with(at("eval_protocol4.bin"), b"\x80\x04\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x8c\x011\x85R.")
    zip_with(at("newobj.bin"), b"\x80\x02ccollections\nOrderedDict\n)\x81.")
    zip_with(at("inst.bin"), b"(S'ls'\nios\nsystem\n.")
    zip_with(at("calls_storage.bin"), b"\x80\x02ctorch\nFloatStorage\n)R.")
    zip_with(at("no_tensors.bin"), pickle.dumps({"a": 1}, protocol=2))
    zip_with(at("big_endian.bin"), pickle.dumps({"a": 1}, protocol=2), byteorder="big")
    with zipfile.ZipFile(at("compressed.bin"), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("m/data.pkl", pickle.dumps({"a": 1}, protocol=2) * 20)
    torch.save({"w": torch.zeros(4, 4)}, at("whole.bin"))
    z = zipfile.ZipFile(at("whole.bin"))
    listed = z.read("whole/data.pkl")
    zip_with(at("past_the_end.bin"), listed.replace(b"K\x04K\x04\x86", b"K\x04K\x05\x86", 1), **{"data/0": b"\0" * 64})
    zip_with(at("strides_past.bin"), listed.replace(b"K\x04K\x01\x86", b"K\x09K\x01\x86", 1), **{"data/0": b"\0" * 64})
    zip_with(at("short_storage.bin"), listed, **{"data/0": b"\0" * 60})
    zip_with(at("no_storage.bin"), listed)
    os.remove(at("whole.bin"))


# -- GGUF ----------------------------------------------------------------------------------------------

TYPES = gguf.GGMLQuantizationType
QUANTS = [TYPES.Q8_0, TYPES.Q4_0, TYPES.Q4_1, TYPES.Q5_0, TYPES.Q5_1, TYPES.Q2_K, TYPES.Q3_K, TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K]


def packed(kind, shape):
    """Bytes of a tensor: quantized where the package can, else any bytes with small finite scales."""
    x = rng.standard_normal(shape).astype(np.float32)
    try:
        return quantize(x, kind)
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
        halves = {TYPES.Q2_K: (80, 82), TYPES.Q3_K: (108,), TYPES.Q4_K: (0, 2), TYPES.Q5_K: (0, 2), TYPES.Q6_K: (208,)}[kind]
        for at in halves:
            scale = (rng.standard_normal(data.shape[:2]) * 0.05).astype(np.float16)
            data[:, :, at : at + 2] = scale.view(np.uint8).reshape(*data.shape[:2], 2)
        return data.reshape(shape[0], -1)


def add_sizes(w, arch, layers, d, f, heads, kv, extra=()):
    w.add_block_count(layers)
    w.add_context_length(64)
    w.add_embedding_length(d)
    w.add_feed_forward_length(f)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(500000.0)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_quants():
    """One layer whose matrices are each of another type; 256 wide, since K blocks are."""
    path = folder("gguf_quants")
    w = gguf.GGUFWriter(os.path.join(path, "model.gguf"), "qwen3")
    add_sizes(w, "qwen3", 10, 256, 256, 4, 4)
    expected = {}
    for i, kind in enumerate(QUANTS):
        data = packed(kind, (3, 256))
        w.add_tensor(f"blk.{i}.ffn_up.weight", data, raw_dtype=kind)
        expected[f"model.layers.{i}.mlp.up_proj.weight"] = dequantize(data, kind)
    for name, dtype in ("attn_norm", np.float32), ("ffn_norm", np.float16):
        x = rng.standard_normal(33).astype(dtype)
        w.add_tensor(f"blk.0.{name}.weight", x)
        expected["model.layers.0." + {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}[name] + ".weight"] = x.astype(np.float32)
    bf = torch.randn(5, 7).bfloat16()
    w.add_tensor("blk.0.ffn_down.weight", bf.view(torch.uint8).numpy().reshape(5, 14), raw_dtype=TYPES.BF16)
    expected["model.layers.0.mlp.down_proj.weight"] = bf
    finish(w)
    expect(path, expected)


def permute(w, heads):
    """What llama.cpp's converter does to q and k."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in ends:
        return ends[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def make_model(case, arch, tied=False, bias=False, llama3=False, quant=None, tokenizer=None):
    d, f, heads, kv, v, layers, dh = (32, 64, 4, 2, 40, 2, 16 if arch == "qwen3" else 8)
    path = folder(case)
    w = gguf.GGUFWriter(os.path.join(path, "model.gguf"), arch)
    add_sizes(w, arch, layers, d, f, heads, kv)
    if arch == "qwen3":
        w.add_key_length(dh)
        w.add_value_length(dh)
    tensors = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    if not tied:
        tensors["lm_head.weight"] = (v, d)
    for i in range(layers):
        p = f"model.layers.{i}."
        tensors |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,)}
        tensors |= {p + "self_attn.q_proj.weight": (heads * dh, d), p + "self_attn.k_proj.weight": (kv * dh, d)}
        tensors |= {p + "self_attn.v_proj.weight": (kv * dh, d), p + "self_attn.o_proj.weight": (d, heads * dh)}
        tensors |= {p + "mlp.gate_proj.weight": (f, d), p + "mlp.up_proj.weight": (f, d), p + "mlp.down_proj.weight": (d, f)}
        if bias:
            tensors |= {p + f"self_attn.{x}_proj.bias": ((heads if x == "q" else kv) * dh,) for x in "qkv"}
        if bias and arch == "llama":
            tensors[p + "self_attn.o_proj.bias"] = (d,)
        if arch == "qwen3":
            tensors |= {p + "self_attn.q_norm.weight": (dh,), p + "self_attn.k_norm.weight": (dh,)}
    expected = {}
    for name, shape in tensors.items():
        x = rng.standard_normal(shape).astype(np.float32)
        kind = quant if quant and len(shape) == 2 else TYPES.F32
        if kind == TYPES.F32:
            value = x
        else:
            value = dequantize(quantize(x, kind), kind)
        expected[name] = value
        for part, n in ("q_proj", heads), ("k_proj", kv):
            if arch == "llama" and part in name:
                value = permute(value, n)
                x = permute(x, n)
        if kind == TYPES.F32:
            w.add_tensor(gguf_name(name), value)
        else:
            w.add_tensor(gguf_name(name), quantize(x, kind), raw_dtype=kind)
    if llama3:
        wave = 2 * np.pi * 500000.0 ** (np.arange(0, dh, 2) / dh)
        smooth = (8192 / wave - 1) / 3
        w.add_tensor("rope_freqs.weight", np.where(wave < 2048, 1, np.where(wave > 8192, 8.0, 1 / ((1 - smooth) / 8.0 + smooth))).astype(np.float32))
    if tokenizer:
        tokenizer(w)
    finish(w)
    expect(path, expected)


def byte_characters():
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {}, 0
    for b in range(256):
        if b in visible:
            table[b] = chr(b)
        else:
            table[b], n = chr(256 + n), n + 1
    return table


def gpt2_tokenizer(w):
    tokens = ["<|end|>", "<|start|>", *byte_characters().values()]
    merges = ["Ġ t", "h e", "Ġt he", "i n", "l l", "1 2"]
    tokens += [m.replace(" ", "") for m in merges] + ["<tool>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tokens)
    w.add_token_types([3, 3] + [1] * (len(tokens) - 3) + [4])
    w.add_token_merges(merges)
    w.add_bos_token_id(1)
    w.add_eos_token_id(0)
    w.add_add_bos_token(True)
    w.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def llama_tokenizer(w):
    pieces = ["▁t", "he", "▁the", "in", "▁", "t", "h", "e", "i", "n", "é", "▁a", "a"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(pieces))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)


def make_gguf():
    make_quants()
    make_model("gguf_llama", "llama", llama3=True, tokenizer=llama_tokenizer)
    make_model("gguf_llama_q8", "llama", tied=True, bias=True, quant=TYPES.Q8_0, tokenizer=gpt2_tokenizer)
    make_model("gguf_qwen2", "qwen2", bias=True)
    make_model("gguf_qwen3", "qwen3", quant=TYPES.Q4_0)


# -- FP8 -----------------------------------------------------------------------------------------------


def make_fp8():
    path = folder("fp8")
    f8 = lambda *shape: (torch.randn(*shape) * 3).to(torch.float8_e4m3fn)
    blocks = lambda r, c: torch.rand((r + 3) // 4, (c + 5) // 6) + 0.5
    files = {"whole.weight": f8(8, 12), "edge.weight": f8(9, 13), "exponents.weight": f8(5, 6), "one.weight": f8(3, 4), "rows.weight": f8(3, 4), "experts": f8(2, 5, 7)}
    files["e5m2.weight"] = (torch.randn(4, 6) * 3).to(torch.float8_e5m2)
    scales = {"whole.weight": blocks(8, 12), "edge.weight": blocks(9, 13), "e5m2.weight": blocks(4, 6), "experts": torch.rand(2, 2, 2) + 0.5}
    powers = torch.tensor([[120], [130]], dtype=torch.uint8)
    expected = {"plain.weight": torch.randn(3, 3).bfloat16()}
    for name, s in scales.items():
        wide = s.repeat_interleave(4, -2)[..., : files[name].shape[-2], :].repeat_interleave(6, -1)[..., : files[name].shape[-1]]
        expected[name] = files[name].float() * wide
    expected["exponents.weight"] = files["exponents.weight"].float() * torch.exp2(powers.float() - 127).repeat_interleave(4, 0)[:5]
    expected["one.weight"] = files["one.weight"].float() * 0.25
    rows = torch.tensor([[1.0], [2.0], [0.5]])
    expected["rows.weight"] = files["rows.weight"].float() * rows
    stored = {"plain.weight": expected["plain.weight"]} | files | {k + "_scale_inv": s for k, s in scales.items()}
    stored |= {"exponents.weight_scale_inv": powers, "one.weight_scale": torch.tensor([0.25]), "rows.weight_scale": rows}
    save_file(stored, os.path.join(path, "model.safetensors"))
    json.dump({"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 6]}}, open(os.path.join(path, "config.json"), "w"), indent=2)
    expect(path, expected)


if __name__ == "__main__":
    make_pickles()
    make_refused()
    make_gguf()
    make_fp8()
