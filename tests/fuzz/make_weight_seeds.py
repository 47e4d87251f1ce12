#!/usr/bin/env python3
"""Writes the pickle, GGUF and config.json seeds of corpus/: the smallest files that reach each part of the readers."""
import collections, glob, os, pickle, shutil, zipfile

import gguf
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")


def folder(name):
    path = os.path.join(HERE, "corpus", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def repack(path, source):
    """The same archive without what PyTorch adds for itself."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if "data" in name and "serialization" not in name or name.endswith("byteorder"):
                new.writestr("m/" + name.split("/", 1)[1], old.read(name))
    os.remove(source)


def pickles():
    to = folder("pickle")
    a = torch.arange(6.0).reshape(2, 3)
    cases = {
        "plain": {"a": a},
        "views": {"a": a, "t": a.t(), "c": a[:, 1], "h": torch.ones(2).bfloat16()},
        "parameter": collections.OrderedDict(p=torch.nn.Parameter(torch.ones(2))),
        "untyped": {"f8": torch.ones(2).to(torch.float8_e4m3fn), "u": torch.ones(2, dtype=torch.uint16)},
        "wrapped": {"step": 1, "lr": 0.5, "model": {"i": torch.tensor([1]), "e": torch.zeros(0, 2)}},
    }
    for name, value in cases.items():
        for protocol in (2, 4):
            torch.save(value, f"{to}/x.zip", pickle_protocol=protocol)
            repack(f"{to}/{name}_{protocol}", f"{to}/x.zip")
        torch.save(value, f"{to}/{name}_legacy", _use_new_zipfile_serialization=False)
    for name in "os_system", "newobj", "calls_storage", "strides_past", "short_storage":
        shutil.copy(f"{GOLDEN}/weights/refused/{name}.bin", f"{to}/{name}")


def model(path, arch, tokenizer=None, extra=None):
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(1)
    w.add_context_length(8)
    w.add_embedding_length(4)
    w.add_feed_forward_length(4)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    if extra:
        extra(w)
    if tokenizer:
        tokenizer(w)
    w.add_tensor("token_embd.weight", np.ones((3, 4), np.float32))
    w.add_tensor("blk.0.attn_q.weight", np.ones((4, 4), np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def gpt2(w):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(["<e>", "a", "b", "ab"])
    w.add_token_types([3, 1, 1, 1])
    w.add_token_merges(["a b"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    w.add_chat_template("{{ x }}")


def spm(w):
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "a", "b", "ab", "<0x00>"])
    w.add_token_scores([0.0, -1.0, -2.0, -3.0, 0.0])
    w.add_token_types([2, 1, 1, 1, 6])
    w.add_unk_token_id(0)


def scaling(w):
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(4)
    w.add_sliding_window(4)


def quantized(path, kind):
    n, size = gguf.GGML_QUANT_SIZES[kind]
    w = gguf.GGUFWriter(path, "qwen2")
    w.add_tensor("output.weight", np.zeros((1, size), np.uint8), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def ggufs():
    to = folder("gguf")
    model(f"{to}/llama", "llama", spm)
    model(f"{to}/llama_scaled", "llama", None, scaling)
    model(f"{to}/qwen2", "qwen2", gpt2)
    model(f"{to}/qwen3", "qwen3", None, lambda w: w.add_key_length(2))
    model(f"{to}/gemma2", "gemma2", None, lambda w: (w.add_key_length(2), w.add_sliding_window(4), w.add_attn_logit_softcapping(2.0)))
    model(f"{to}/granite", "granite", None, lambda w: (w.add_residual_scale(0.5), w.add_logit_scale(2.0), w.add_embedding_scale(3.0)))
    model(f"{to}/phi3", "phi3", None, lambda w: w.add_rope_dimension_count(2))
    types = gguf.GGMLQuantizationType
    for kind in types.Q8_0, types.Q4_1, types.Q5_0, types.Q5_1, types.Q2_K, types.Q3_K, types.Q4_K, types.Q5_K, types.Q6_K, types.BF16:
        quantized(f"{to}/{kind.name}", kind)


def configs():
    to = folder("config")
    for path in glob.glob(f"{GOLDEN}/models/*/config.json"):
        shutil.copy(path, f"{to}/{os.path.basename(os.path.dirname(path))}")
    unknown = open(f"{GOLDEN}/models/gemma2/config.json").read().replace('"gemma2"', '"wombat"').replace("Gemma2ForCausalLM", "Wombat")
    open(f"{to}/unknown_type", "w").write(unknown)


pickles()
ggufs()
configs()
