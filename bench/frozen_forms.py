"""A Qwen2.5-7B of random weights whose matrices are bf16 or NF4 as bitsandbytes stores it, with rows of random tokens and a configuration that
trains embeddings, norms and head over frozen matrices: to time steps whose frozen weights keep the form of their file.

    python bench/frozen_forms.py OUT bf16|nf4 [tiny]
    megatrain train --config OUT/train.yaml --device cuda --home host --device-memory 16G --batch-size 8
    megatrain train --config OUT/train.yaml --device cuda --home host --device-memory 60G --batch-size 128

Needs torch and safetensors, 14 or 6 GB of disk, and as much for the model that a run saves."""
import json
import os
import random
import sys

import torch
from safetensors.torch import save_file

# The quantiles of NF4 (QLoRA, appendix E).
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
BLOCK = 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def numbers(rows, columns):
    return (torch.randn(rows, columns, device=DEVICE) * 0.02).bfloat16().cpu()


def matrix(kind, name, rows, columns):
    if kind == "bf16":
        return {name: numbers(rows, columns)}
    state = json.dumps({"quant_type": "nf4", "blocksize": BLOCK, "dtype": "bfloat16", "shape": [rows, columns]}).encode()
    return {name: torch.randint(0, 256, (rows * columns // 2, 1), dtype=torch.uint8, device=DEVICE).cpu(),
            name + ".absmax": (torch.rand(rows * columns // BLOCK, device=DEVICE) * 0.02 + 0.01).cpu(),
            name + ".quant_map": torch.tensor(NF4),
            name + ".quant_state.bitsandbytes__nf4": torch.tensor(list(state), dtype=torch.uint8)}


def layer(kind, at, D, F, K):
    out = {}
    for name, rows, columns in (("self_attn.q_proj", D, D), ("self_attn.k_proj", K, D), ("self_attn.v_proj", K, D), ("self_attn.o_proj", D, D),
                                ("mlp.gate_proj", F, D), ("mlp.up_proj", F, D), ("mlp.down_proj", D, F)):
        out |= matrix(kind, at + name + ".weight", rows, columns)
    for name, n in (("q", D), ("k", K), ("v", K)):
        out[at + f"self_attn.{name}_proj.bias"] = torch.zeros(n).bfloat16()
    for name in ("input_layernorm", "post_attention_layernorm"):
        out[at + name + ".weight"] = torch.ones(D).bfloat16()
    return out


def main():
    out, kind, tiny = sys.argv[1], sys.argv[2], sys.argv[3:] == ["tiny"]
    os.makedirs(out, exist_ok=True)
    D, F, L, H, K, V = (256, 512, 2, 4, 2, 1024) if tiny else (3584, 18944, 28, 28, 4, 152064)
    index = {}

    def write(name, tensors):
        save_file(tensors, os.path.join(out, name + ".safetensors"))
        index.update({tensor: name + ".safetensors" for tensor in tensors})

    for i in range(L):
        write(f"layer{i}", layer(kind, f"model.layers.{i}.", D, F, D // H * K))
    write("ends", {"model.embed_tokens.weight": numbers(V, D), "lm_head.weight": numbers(V, D), "model.norm.weight": torch.ones(D).bfloat16()})
    config = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=D, intermediate_size=F, num_hidden_layers=L,
                  num_attention_heads=H, num_key_value_heads=K, vocab_size=V, max_position_embeddings=32768, rms_norm_eps=1e-6,
                  rope_theta=1e6, torch_dtype="bfloat16", tie_word_embeddings=False, hidden_act="silu", bos_token_id=0, eos_token_id=0)
    if kind == "nf4":
        config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                                         "bnb_4bit_use_double_quant": False}
    random.seed(1)
    rows = [[random.randrange(V) for _ in range(1024)] for _ in range(16 if tiny else 512)]
    for name, value in (("config.json", config), ("model.safetensors.index.json", {"metadata": {}, "weight_map": index}), ("rows.json", {"input_ids": rows})):
        with open(os.path.join(out, name), "w") as f:
            json.dump(value, f)
    with open(os.path.join(out, "train.yaml"), "w") as f:
        f.write(f"""model: {{ name: {out} }}
dataset: {{ path: {out}/rows.json, max_seq_len: 1024 }}
training:
  num_steps: 10
  learning_rate: 1.0e-7
  freeze: ["model.layers.*.mlp.*", "model.layers.*.self_attn.*"]
logging: {{ log_interval: 1 }}
save: {{ output_dir: {out}/run, save_only_model: true, save_steps: 0 }}
""")


main()
