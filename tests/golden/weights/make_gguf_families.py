"""GGUF files of toy models of the architectures beyond llama and qwen, and the logits transformers computes with the originals.

    python make_gguf_families.py      writes the folders gguf_family_NAME beside this file
Needs torch, transformers, safetensors, numpy and gguf; building and testing need none of them.

Tensors are named by the gguf package's own table.  What llama.cpp's converter does to numbers is done here as it does it: rows of q and k in
pairs (granite, smollm3), norms as 1 + w (gemma)."""

import json
import os
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=37,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=1, eos_token_id=2)

CASES = {
    "gemma": ("GEMMA", dict(model_type="gemma", head_dim=8, rms_norm_eps=1e-6)),
    "gemma2": ("GEMMA2", dict(model_type="gemma2", head_dim=8, query_pre_attn_scalar=8, sliding_window=5, attn_logit_softcapping=2.0,
                              final_logit_softcapping=3.0, rms_norm_eps=1e-6)),
    "gemma3": ("GEMMA3", dict(model_type="gemma3_text", num_hidden_layers=6, head_dim=8, query_pre_attn_scalar=8, sliding_window=5, rms_norm_eps=1e-6)),
    "phi3": ("PHI3", dict(model_type="phi3", num_attention_heads=2, num_key_value_heads=1, sliding_window=5, rms_norm_eps=1e-5,
                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75})),
    "granite": ("GRANITE", dict(model_type="granite", embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5,
                                rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "smollm3": ("SMOLLM3", dict(model_type="smollm3", num_hidden_layers=4, rms_norm_eps=1e-6)),
    "olmo2": ("OLMO2", dict(model_type="olmo2", rms_norm_eps=1e-6)),
}


def permute(w, n_heads):
    return w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_metadata(w, c, arch):
    theta = (c.rope_parameters.get("full_attention") or c.rope_parameters)["rope_theta"]
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(theta)
    if getattr(c, "sliding_window", None) and arch not in ("smollm3", "olmo2"):
        w.add_sliding_window(c.sliding_window)
    if arch == "phi3":
        w.add_rope_dimension_count(int(c.rope_parameters["partial_rotary_factor"] * head))
    if arch == "gemma2":
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    if arch == "granite":
        w.add_attention_scale(c.attention_multiplier)
        w.add_embedding_scale(c.embedding_multiplier)
        w.add_residual_scale(c.residual_multiplier)
        w.add_logit_scale(c.logits_scaling)


def write_tensors(w, model, arch, kind):
    names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    for name, p in model.named_parameters():
        x = p.detach().numpy().astype(np.float32)
        if arch in ("granite", "smollm3") and ("q_proj" in name or "k_proj" in name):
            x = permute(x, model.config.num_attention_heads if "q_proj" in name else model.config.num_key_value_heads)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            x = x + 1
        w.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(x))


def make(arch, kind, changes):
    torch.manual_seed(len(arch))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**SIZES, **changes}), attn_implementation="eager").float().eval()
    for name, p in model.named_parameters():
        one = 0.0 if arch.startswith("gemma") or p.ndim > 1 else 1.0
        p.data = (one + 0.25 * torch.randn(p.shape)).to(torch.bfloat16).float()  # 1 + w is exact then, too
    path = os.path.join(HERE, "gguf_family_" + arch)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    w = gguf.GGUFWriter(os.path.join(path, "model.gguf"), gguf.MODEL_ARCH_NAMES[kind])
    write_metadata(w, model.config, arch)
    write_tensors(w, model, arch, kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    rows = [torch.randint(3, 37, (n,)).tolist() for n in (7, 14)]
    json.dump({"input_ids": rows}, open(os.path.join(path, "tokens.json"), "w"))
    with torch.no_grad():
        logits = {f"logits.{i}": model(torch.tensor([r])).logits[0].contiguous() for i, r in enumerate(rows)}
    save_file(logits, os.path.join(path, "expected.safetensors"))
    print(arch, {k: tuple(v.shape) for k, v in logits.items()}, os.path.getsize(os.path.join(path, "model.gguf")))


for arch, (kind, changes) in CASES.items():
    make(arch, getattr(gguf.MODEL_ARCH, kind), changes)
