"""Drawn shapes: every golden case with other sizes, switches and rows, drawn at random, against transformers.

    python3 shapes.py MEGATRAIN [--device cuda] [SEED [NAME...]]

draws every case of tests/golden/models/make_goldens.py once, or these.  Half of the configs are written as published ones are, half as transformers
saves them.  Compared are loss, logits and every gradient, in float32: at most FAR, or ten times transformers' own rounding, from its float32 or its
float64.  A draw in which transformers' own float32 is far from its float64 is drawn again: there two experts are nearly tied, or a gradient is
nothing but rounding.  Needs torch, transformers and safetensors.  Ends with 1 if anything differs, and leaves those models in the folder it names."""
import argparse
import collections
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/models"))
import make_goldens  # noqa: E402

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "multi_query_group_num", "num_kv_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEAD_WIDTH = ("head_dim", "kv_channels")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
VOCAB = ("vocab_size", "padded_vocab_size")
INNER = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size",
         "shared_intermediate_size", "intermediate_size_mlp")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k", "experts_per_token")
SHARED = ("n_shared_experts", "moe_num_shared_experts")
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "model_max_length", "max_seq_len")
SWITCHES = ("attention_bias", "mlp_bias", "norm_topk_prob", "tie_word_embeddings", "use_qk_norm", "use_bias", "qkv_bias", "attention_out_bias", "rope_interleave",
            "attn_temperature_tuning", "use_parallel_residual", "use_qkv_bias", "qk_layernorm", "add_qkv_bias", "bias")
FACTORS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "routed_scaling_factor", "swiglu_limit",
           "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping", "clip_qkv")
# Families in which a part of each head rotates: a quarter of it must be an even number.
PARTIAL = ("phi", "phi3", "glm", "glm4", "chatglm", "stablelm", "gpt_neox", "nemotron", "gptj", "glm4_moe", "minimax_m2", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
ACTIVATION = {"falcon": "activation", "bloom": None, "mpt": None, **{t: "activation_function" for t in ("gpt2", "gpt_bigcode", "gptj", "gpt_neo", "opt")}}
THETA = {"gpt_neox": "rotary_emb_base"}
UNSCALED = ("gptj", "bloom", "mpt", "phimoe")  # no rotary scaling, or one kind alone
# Keys that a class has defaults for.  Where one is missing, both sides must find the same.
OPTIONAL = ("num_key_value_heads", "head_dim", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias",
            "norm_topk_prob", "sliding_window", "rope_theta", "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace", "hidden_act", "q_lora_rank", "n_group",
            "topk_group", "num_experts_per_tok", "partial_rotary_factor", "rotary_pct", "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping",
            "max_window_layers", "use_sliding_window", "sliding_window_pattern", "layer_types", "no_rope_layers", "mlp_only_layers", "decoder_sparse_step", "use_qk_norm",
            "use_parallel_residual", "logit_scale", "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "linear_conv_kernel_dim",
            "full_attention_interval", "attention_chunk_size", "attn_temperature_tuning", "floor_scale", "attn_scale", "swiglu_limit", "router_jitter_noise", "rope_interleave",
            "shared_expert_intermediate_size", "qkv_bias", "use_qkv_bias", "qk_layernorm", "attention_out_bias", "multi_query", "parallel_attn", "alibi", "bias", "n_inner",
            "rotary_dim", "window_size", "num_kv_heads", "moe_layer_interval", "moe_num_shared_experts", "interleave_moe_layer_step", "topk_method", "scoring_func")
SQUARE = ("helium",)                           # heads are as wide as the model, together
FIXED_CHOICE = ("phimoe",)                     # two experts, always
FIXED_LAYERS = ("gpt_neo", "ernie4_5_moe")     # layers are counted by other keys
FIXED_ROWS = ("phi3_short", "phi3_long", "phimoe_long")  # all rows on one side of a length
FAR = 3e-5      # ours from transformers' float32, relatively, of each tensor
ROUGH = 1e-5    # transformers' float32 from its float64
MOST_DRAWS = 40
REFUSED = -1    # not compared: megatrain says what it does not support


def has(config, keys):
    return next((k for k in keys if config.get(k) is not None), None)


def put(config, keys, value):
    for k in keys:
        if config.get(k) is not None:
            config[k] = value


def draw_heads(c, rng):
    heads = rng.choice((1, 2, 3, 4, 6))
    kv = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    partial = c["model_type"] in PARTIAL
    width = rng.choice((8, 16, 24) if partial else (4, 6, 8, 10, 12, 16))
    latent = "kv_lora_rank" in c
    put(c, HEADS, heads)
    put(c, KV_HEADS, heads if latent else kv)
    free = latent or has(c, HEAD_WIDTH) and c["model_type"] not in SQUARE
    put(c, HIDDEN, heads * (rng.choice((6, 8, 10, 12)) if free else width))
    if latent:
        nope, rope = rng.randint(2, 10), 2 * rng.randint(1, 4)
        q = rng.choice((None, rng.randint(3, 14)))
        c.update(kv_lora_rank=rng.randint(3, 14), q_lora_rank=q, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=rng.randint(2, 14))
        put(c, ("head_dim",), rope)
        put(c, ("qk_head_dim",), nope + rope)
    else:
        put(c, HEAD_WIDTH, width)
    put(c, ("word_embed_proj_dim",), c.get("hidden_size"))
    rope = c.get("rope_scaling") or {}
    if "short_factor" in rope:
        rope.update({k: [round(rng.uniform(1, 4), 2) for _ in range(width // 2)] for k in ("short_factor", "long_factor")})
    if "mrope_section" in (c.get("rope_parameters") or {}):
        c["rope_parameters"]["mrope_section"] = [width // 8, 0, 0]
    put(c, ("rotary_dim",), 2 * rng.randint(1, width // 2))


def draw_experts(c, rng):
    if not has(c, EXPERTS):
        return
    groups = c.get("n_group") or 1
    if groups > 1:
        groups = c["n_group"] = rng.randint(2, 4)
        c["topk_group"] = rng.randint(1, groups)
        experts = groups * rng.randint(2, 4)
        most = experts // groups * c["topk_group"]
    else:
        experts = most = rng.randint(2, 9)
    put(c, EXPERTS, experts)
    if c["model_type"] not in FIXED_CHOICE:
        put(c, CHOSEN, rng.randint(1, most))
    put(c, SHARED, rng.randint(1, 3))


def draw_layers(c, rng):
    if c["model_type"] in FIXED_LAYERS:
        return
    n = rng.randint(1, 4)
    put(c, LAYERS, n)
    if c.get("layer_types"):
        kinds = sorted({"full_attention", *c["layer_types"]})
        c["layer_types"] = [rng.choice(kinds) for _ in range(n)]
    if c.get("no_rope_layers"):
        c["no_rope_layers"] = [rng.randint(0, 1) for _ in range(n)]
    if c.get("mlp_only_layers"):
        c["mlp_only_layers"] = sorted(rng.sample(range(n), rng.randint(0, n - 1)))
    for key, most in (("first_k_dense_replace", n - 1), ("max_window_layers", n)):
        put(c, (key,), rng.randint(0, most))
    for key in ("sliding_window_pattern", "full_attention_interval", "no_rope_layer_interval"):
        put(c, (key,), rng.randint(2, 3))
    put(c, ("interleave_moe_layer_step", "decoder_sparse_step"), rng.randint(1, min(n, 2)))


def draw_rest(c, rng):
    put(c, VOCAB, rng.randint(20, 150))
    for key in INNER:
        put(c, (key,), rng.randint(3, 33))
    for key in ("sliding_window", "window_size", "attention_chunk_size"):
        put(c, (key,), rng.randint(1, 12))
    for key in SWITCHES:
        if isinstance(c.get(key), bool) and rng.random() < 0.5:
            c[key] = not c[key]
    for key in FACTORS:
        if c.get(key):
            c[key] = type(c[key])(c[key] * rng.uniform(0.7, 1.4))
    put(c, ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"), 10.0 ** -rng.randint(4, 6))
    if "linear_num_key_heads" in c:
        keys = rng.randint(1, 3)
        c.update(linear_num_key_heads=keys, linear_num_value_heads=keys * rng.randint(1, 3), linear_key_head_dim=rng.randint(3, 14),
                 linear_value_head_dim=rng.randint(3, 14), linear_conv_kernel_dim=rng.randint(2, 5))


def draw_further(c, rng):
    """Keys that the case does not have, and that most classes read."""
    if c["model_type"] in make_goldens.reference.TYPES:
        return
    if rng.random() < 0.25:
        c["tie_word_embeddings"] = True
    activation = ACTIVATION.get(c["model_type"], "hidden_act")
    if rng.random() < 0.25 and activation:
        c[activation] = rng.choice(("silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu", "relu2"))
    if rng.random() < 0.4 and not c.get("rope_scaling") and not c.get("rope_parameters") and c["model_type"] not in UNSCALED:
        factor, before = rng.choice((2.0, 3.5, 8.0)), rng.choice((8, 16, 32))
        c["rope_scaling"] = rng.choice((
            {"rope_type": "linear", "factor": factor},
            {"rope_type": "dynamic", "factor": factor},
            {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": before},
            {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": before, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 0.8},
            {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": before}))
        c[THETA.get(c["model_type"], "rope_theta")] = rng.choice((20.0, 500.0, 10000.0))


def leave_out(c, rng):
    for key in OPTIONAL:
        if key in c and rng.random() < 0.1 and c["model_type"] not in make_goldens.reference.TYPES:
            del c[key]


def draw_rows(name, spec, rng):
    if name in FIXED_ROWS:
        return
    most = 150 if "linear_num_key_heads" in spec["inner"] else 40  # delta nets go by chunks of 64 rows
    longest = min([most] + [spec["inner"][k] for k in POSITIONS if spec["inner"].get(k)])
    rows = [rng.randint(5, longest), rng.randint(15, longest) if longest > 15 else longest]
    spec["rows"] = tuple(rows + [rng.randint(1, longest) for _ in range(rng.randint(0, 3))])


def drawn(name, rng):
    spec = copy.deepcopy(make_goldens.CASES[name])
    for change in (draw_heads, draw_experts, draw_layers, draw_rest, draw_further, leave_out):
        change(spec["inner"], rng)
    draw_rows(name, spec, rng)
    spec["saved_again"] = rng.random() < 0.5
    return spec


def theirs(spec, tokens, dtype):
    model = make_goldens.load(spec, dtype)
    return make_goldens.in_files(model, make_goldens.gradients(model, tokens), spec)


def ours(args, folder):
    out = os.path.join(folder, "ours.safetensors")
    done = subprocess.run([args.program, "grad", folder, "--tokens", folder + "/tokens.json", "--out", out, "--logits", "--device", args.device, "--quiet"],
                          capture_output=True, text=True)
    return load_file(out) if done.returncode == 0 else done.stderr.strip()


def apart(a, b):
    """Relative distance; nothing but rounding is as good as nothing."""
    if max(x.double().square().mean().sqrt().item() for x in (a, b)) < 1e-7:
        return 0.0
    return make_goldens.distance(a, b)


def save_again(spec):
    """The config with the keys and the spelling that transformers has now."""
    if spec["inner"]["model_type"] not in make_goldens.reference.TYPES:
        config = AutoConfig.from_pretrained(spec["folder"])
        config.save_pretrained(spec["folder"])


def compare(args, name, spec):
    """None: to be drawn again.  Otherwise what differs, and how far the worst is."""
    try:
        tokens, _ = make_goldens.write_model(name, spec)
        rough, exact = (theirs(spec, tokens, t) for t in (torch.float32, torch.float64))
    except Exception as e:  # a shape that transformers itself refuses
        print(f"{name}: drawn again: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
        return None
    rounding = max(apart(rough[k], exact[k]) for k in rough)
    if rounding > ROUGH:
        return None
    if spec["saved_again"]:
        save_again(spec)
    found = ours(args, spec["folder"])
    if isinstance(found, str) and any(words in found for words in ("is not supported", "is missing; ", "is not a multiple of")):
        return [found.replace(spec["folder"], "...")], REFUSED
    if isinstance(found, str):
        return [found], 0
    nothing = {k for k in found if k not in rough and k.endswith("e_score_correction_bias") and not found[k].any()}  # what no training changes
    if found.keys() - nothing != rough.keys():
        return [f"other tensors: {sorted((found.keys() - nothing) ^ rough.keys())}"], 0
    far = {k: min(apart(found[k].reshape(rough[k].shape), rough[k]), apart(found[k].reshape(exact[k].shape), exact[k])) for k in rough}
    return [f"{k}: {d:.1e}" for k, d in far.items() if not d <= max(FAR, 10 * rounding)], max(far.values())


def try_draws(args, name, root):
    for turn in range(MOST_DRAWS):
        spec = {**drawn(name, random.Random(f"{args.seed} {name} {turn}")), "root": root, "draw": f"{args.seed} {turn}"}
        result = compare(args, name, spec)
        if result:
            return (*result, spec["folder"])
    return [f"{MOST_DRAWS} draws, and none tells more than rounding"], 0, root


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("seed", nargs="?", default="0")
    parser.add_argument("names", nargs="*", default=list(make_goldens.CASES))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    root, count = tempfile.mkdtemp(prefix="shapes-"), collections.Counter()
    for name in args.names:
        bad, worst, folder = try_draws(args, name, root)
        word = "refused" if worst == REFUSED else "DIFFERS" if bad else "equal"
        count[word] += 1
        print(f"{name}: {word}" + (f", at most {worst:.1e} away" if worst > 0 else ""), *bad[:10], sep="\n    ", flush=True)
        if word != "DIFFERS":
            shutil.rmtree(folder)
    print(f"{count['equal']} of {len(args.names)} equal, {count['refused']} refused" + (f"; the others are in {root}" if count["DIFFERS"] else ""))
    sys.exit(1 if count["DIFFERS"] else 0)


if __name__ == "__main__":
    main()
