"""What the configuration classes of transformers take for keys that config.json leaves out: writes defaults.json, a line a model_type.

    python make_defaults.py

config: only what megatrain needs to know a model's shape, with the class's own numbers.  The rest of a line is what transformers makes of it: the row of
the embedding that gets no gradient (-1: none), positions, key/value heads, head width, the norms' epsilon, a tied head, the rotary base of layers with
full attention, and the columns of a head that rotate."""
import glob
import json
import os
import re

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = 2
NEEDED = ("hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads", "num_heads", "intermediate_size", "ffn_dim", "vocab_size", "num_experts",
          "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_topk", "moe_k", "moe_intermediate_size")
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
WRAPPERS = ("gemma3", "llama4", "qwen3_5", "qwen3_5_moe")  # their text model is a type, too
OWN = {"gpt_neo": {"attention_types": [[["global", "local"], 1]]}, "dots1": {"n_routed_experts": 8, "n_shared_experts": 1},
       "hunyuan_v1_dense": {"head_dim": 128}, "hunyuan_v1_moe": {"head_dim": 128}, "ministral": {"head_dim": 128}, "glm4_moe": {"head_dim": 128}, "nemotron": {"num_key_value_heads": 48}}
WANTED = {"ministral3": ("rope_parameters",)}  # keys without which it is refused


def model_types():
    for path in sorted(glob.glob(os.path.join(HERE, "../../../src/model/family_*.c"))):
        for names in re.findall(r"\.model_types = \{([^}]*)\}", open(path).read()):
            yield from re.findall(r'"([^"]+)"', names)


def first(config, names):
    return next((getattr(config, n) for n in names if getattr(config, n, None) is not None), None)


def stored_name(config, names):
    """The name that config.json has: others are aliases of it."""
    return next(n for n in names if n in config.to_dict())


def line(name):
    config = AutoConfig.for_model(name)
    stored = config.to_dict()
    keys = {"model_type": name, stored_name(config, LAYER_KEYS): LAYERS, **{k: stored[k] for k in NEEDED if stored.get(k) is not None}, **({"num_experts_per_tok": 2} if "num_experts_per_tok" in stored and not stored["num_experts_per_tok"] else {}), **OWN.get(name, {}),
            **{k: stored[k] for k in WANTED.get(name, ())}}
    if isinstance(keys.get("moe_intermediate_size"), list):
        keys["moe_intermediate_size"] = keys["moe_intermediate_size"][0]
    config = AutoConfig.for_model(**keys)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    pad = model.get_input_embeddings().padding_idx
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    out = {"config": keys, "pad": -1 if pad is None else pad, "positions": first(config, POSITIONS), "kv_heads": getattr(config, "num_key_value_heads", None),
           "head_dim": head, "eps": first(config, EPS), "tied": config.tie_word_embeddings, "theta": rope.get("rope_theta"),
           "rotated": int(head * rope.get("partial_rotary_factor", 1)) if rope else None}
    if name == "biogpt":  # its layers leave it to torch
        del out["eps"]
    if getattr(config, "kv_lora_rank", None):  # heads have several widths
        del out["head_dim"], out["rotated"]
    return {k: v for k, v in out.items() if v is not None}


def main():
    known = {t for t in model_types() if t not in WRAPPERS}
    lines = []
    for name in sorted(known):
        try:
            AutoConfig.for_model(name)
        except ValueError:
            continue  # not one of transformers'
        lines.append(json.dumps(line(name)))
    with open(os.path.join(HERE, "defaults.json"), "w") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
