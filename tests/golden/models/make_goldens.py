"""Toy models of every family and what Hugging Face transformers computes with them, in fp32 on the CPU.

    python make_goldens.py            write every case
    python make_goldens.py NAME...    write these
    python make_goldens.py --check    recompute all, compare with what is committed, write nothing

README.md beside this file says what each file holds and how it is compared.  Needed here and nowhere else: torch,
transformers, safetensors.  The files are committed; building and testing use no Python."""
import copy
import json
import math
import os
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import reference

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../real"))
from exact import doubles  # noqa: E402
V = 97
STEPS, LR, BETAS, EPS, DECAY = 10, 1e-3, (0.9, 0.999), 1e-8, 0.1
LONG, LONG_LR = 200, 3e-4
CURVE = 60
BALANCED = {"balance_batch.safetensors": True, "balance_rows.safetensors": False}  # all rows together
BALANCE = 0.3  # coefficient of the load-balancing loss: large, so that it shows in every gradient

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
    "mlp_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    "torch_dtype": "float32", "use_cache": True,
}
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": 5, "attention_dropout": 0.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", "use_cache": True,
}
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": V, "max_position_embeddings": 128,
    "max_window_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 64, "use_sliding_window": False,
    "attention_dropout": 0.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
    "use_cache": True,
}
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V,
    "max_position_embeddings": 256, "max_window_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
    "attention_bias": False, "attention_dropout": 0.0, "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", "use_cache": True,
}
# Further families: the keys they share, in a smaller vocabulary.  What a case does not say takes the class's default.
SMALL = {
    "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 37,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "torch_dtype": "float32",
}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0], "original_max_position_embeddings": 12}
ABSENT = object()  # the key is left out of config.json
MIXTURE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 6, "shared_expert_intermediate_size": 7}
# Gated delta nets: two layers of them, then attention; head widths that are no powers of two, documents around a chunk's 64 rows.
QWEN3_5 = {
    **SMALL, "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_act": "silu", "num_hidden_layers": 3, "head_dim": 8,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256, "rms_norm_eps": 1e-4, "attention_bias": False,
    "tie_word_embeddings": False, "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
    "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1,
    "rope_parameters": {"mrope_interleaved": True, "mrope_section": [1, 0, 0], "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
}


def case(base, rows=(7, 19, 12), full=False, labels=True, shards=1, dtype=torch.float32, rename=(), wrap=None, attention="eager",
         **changes):
    """full: store Adam's m and v too, not only the weights after ten steps.  rename: (beginning in transformers' module, in the files), first that
    fits.  wrap: the config becomes the text_config of this one."""
    config = {k: v for k, v in {**base, **changes}.items() if v is not ABSENT}
    config["torch_dtype"] = str(dtype).removeprefix("torch.")
    if "rope_parameters" in config:
        config["dtype"] = config.pop("torch_dtype")
    key = "dtype" if "dtype" in config else "torch_dtype"
    whole = {**wrap, key: config.pop(key), "text_config": config} if wrap else config
    return dict(config=whole, inner=config, rows=rows, full=full, labels=labels, shards=shards, dtype=dtype, rename=rename, attention=attention)


def small(model_type, architecture, rows=(6, 14, 9), **changes):
    return case({"architectures": [architecture], "model_type": model_type, **SMALL}, rows=rows, **changes)


def experts(model_type, architecture, fused=False, beside=(), long=False, balance=False, draw="", **changes):
    """A mixture of experts: the files have the names that transformers writes, or (fused) those it has in memory.
    draw: another draw of the same case, where the first has a near tie (README.md).  long: also the losses of 200 steps.  balance: also the
    load-balancing loss.  beside: names and shapes of tensors that are in the files and no part of the model."""
    return {**small(model_type, architecture, **changes), "experts": "fused" if fused else "each", "beside": beside, "long": long, "balance": balance,
            "draw": draw}


def latent(model_type, architecture, **changes):
    return experts(model_type, architecture, **{**dict(num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                                       moe_intermediate_size=6, hidden_act="silu"), **changes})


GPT = {"num_key_value_heads": ABSENT, "intermediate_size": ABSENT, "hidden_size": ABSENT, "num_hidden_layers": ABSENT,
       "num_attention_heads": ABSENT, "max_position_embeddings": ABSENT, "n_embd": 16, "n_layer": 2, "n_head": 4}
CASES = {
    # The widest one, with head_dim left out: hidden_size / num_attention_heads.
    "llama_default": case(LLAMA, hidden_size=32, intermediate_size=48, head_dim=ABSENT, full=True),
    "llama_tied": case(LLAMA, tie_word_embeddings=True, rms_norm_eps=ABSENT, full=True),
    # num_key_value_heads left out: as many as attention heads.
    "llama_linear": case(LLAMA, num_key_value_heads=ABSENT, rope_scaling={"type": "linear", "factor": 2.0}),
    # Wavelengths 6.3, 63, 628, 6283: kept (< 128/4), blended, divided (> 128/1), divided.
    "llama_llama3": case(LLAMA, max_position_embeddings=256, rope_scaling={
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 128, "rope_type": "llama3"}),
    # With base 20 and 16 original positions the ramp over the four frequencies is 0, 1/2, 1, 1.
    "llama_yarn": case(LLAMA, rows=(7, 23, 12), rope_theta=20.0, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
    "llama_dynamic": case(LLAMA, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "llama_bias": case(LLAMA, attention_bias=True, mlp_bias=True),
    "llama_sharded": case(LLAMA, shards=3),
    "llama_bf16": case(LLAMA, dtype=torch.bfloat16),
    "llama_fp16": case(LLAMA, dtype=torch.float16),
    "mistral_window": case(MISTRAL, full=True),
    "mistral_full": case(MISTRAL, sliding_window=None, num_key_value_heads=4),
    "qwen2": case(QWEN2, full=True),
    "qwen2_tied": case(QWEN2, tie_word_embeddings=True, num_key_value_heads=2),
    "qwen2_window": case(QWEN2, num_hidden_layers=3, use_sliding_window=True, max_window_layers=1, sliding_window=6),
    "qwen3": case(QWEN3, head_dim=16, full=True),
    "qwen3_tied": case(QWEN3, tie_word_embeddings=True, num_key_value_heads=1, labels=False),
    # The spelling transformers 5 writes.
    "qwen3_bias": case(QWEN3, attention_bias=True, rope_theta=ABSENT, rope_scaling=ABSENT,
                       rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}),

    "phi3_window": small("phi3", "Phi3ForCausalLM", rows=(7, 14, 9), num_attention_heads=2, num_key_value_heads=1, sliding_window=5,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}),
    # All rows on one side of the original length: ours decides by the longest, transformers row by row.
    "phi3_short": small("phi3", "Phi3ForCausalLM", rows=(7, 14, 9), original_max_position_embeddings=16, tie_word_embeddings=True,
                        rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]}),
    "phi3_long": small("phi3", "Phi3ForCausalLM", rows=(17, 18, 18), original_max_position_embeddings=16, tie_word_embeddings=True,
                       rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]}),
    "gemma": small("gemma", "GemmaForCausalLM", rows=(7, 15, 11), num_key_value_heads=1, head_dim=8, hidden_act="gelu"),
    "gemma2": small("gemma2", "Gemma2ForCausalLM", num_hidden_layers=3, head_dim=8, sliding_window=5, query_pre_attn_scalar=12,
                    attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3": small("gemma3_text", "Gemma3ForCausalLM", num_hidden_layers=3, head_dim=8, sliding_window=5, query_pre_attn_scalar=12,
                    sliding_window_pattern=2, rope_theta=1000.0, rope_local_base_freq=50.0, rope_scaling={"rope_type": "linear", "factor": 8.0}),
    # The text model of a multimodal checkpoint, under the two prefixes in use.
    "gemma3_vl": small("gemma3_text", "Gemma3ForCausalLM", num_hidden_layers=1, head_dim=8, sliding_window=5, query_pre_attn_scalar=8, sliding_window_pattern=2,
                       wrap={"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"},
                       rename=(("model.", "language_model.model."),)),
    "gemma3_vl_new": small("gemma3_text", "Gemma3ForCausalLM", num_hidden_layers=1, head_dim=8, sliding_window=5, query_pre_attn_scalar=8, sliding_window_pattern=2,
                           wrap={"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"},
                           rename=(("model.", "model.language_model."),)),
    "glm": small("glm", "GlmForCausalLM", head_dim=8),
    "glm4": small("glm4", "Glm4ForCausalLM", head_dim=8),
    "chatglm": small("chatglm", "ChatGLMModel", add_qkv_bias=True, multi_query_group_num=2, num_layers=2, kv_channels=8, ffn_hidden_size=20,
                     padded_vocab_size=37, layernorm_epsilon=1e-5, rope_ratio=5, seq_length=64, num_hidden_layers=ABSENT,
                     num_key_value_heads=ABSENT, intermediate_size=ABSENT, vocab_size=ABSENT, max_position_embeddings=ABSENT),
    "internlm2": small("internlm2", "InternLM2ForCausalLM", bias=False, rms_norm_eps=1e-5, rope_theta=1000000.0),
    "internlm2_bias": small("internlm2", "InternLM2ForCausalLM", num_hidden_layers=1, rms_norm_eps=1e-5),
    "baichuan": small("baichuan", "BaichuanForCausalLM", num_key_value_heads=ABSENT, rms_norm_eps=1e-6, model_max_length=64),
    # ALiBi; six heads, so that the slopes are of both kinds.
    "baichuan_alibi": small("baichuan", "BaichuanForCausalLM", hidden_size=24, num_attention_heads=6, num_key_value_heads=ABSENT,
                            rms_norm_eps=1e-6, model_max_length=64, max_position_embeddings=ABSENT),
    # Baichuan 2: rows of the head are normalized.  The published vocabulary tells it; so does the key, in a toy.
    "baichuan2": small("baichuan", "BaichuanForCausalLM", num_key_value_heads=ABSENT, rms_norm_eps=1e-6, model_max_length=64, z_loss_weight=0),
    "baichuan2_alibi": small("baichuan", "BaichuanForCausalLM", num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=ABSENT,
                             rms_norm_eps=1e-6, model_max_length=64, max_position_embeddings=ABSENT, z_loss_weight=0),
    "olmo2": small("olmo2", "Olmo2ForCausalLM"),
    "olmo3": small("olmo3", "Olmo3ForCausalLM", num_hidden_layers=3, sliding_window=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                   rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}),
    # Longrope on one of the two rotations, and rows on both sides of its original length: of the full layers, and of those with windows.
    "gemma3_long": small("gemma3_text", "Gemma3ForCausalLM", rows=(6, 17, 12), head_dim=4, sliding_window=5, query_pre_attn_scalar=12, layer_types=["sliding_attention", "full_attention"],
                         rope_parameters={"full_attention": {**LONGROPE, "rope_theta": 1000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
    "olmo3_long": small("olmo3", "Olmo3ForCausalLM", rows=(6, 17, 12), sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                                         "sliding_attention": {**LONGROPE, "rope_theta": 500.0}}),
    "granite": small("granite", "GraniteForCausalLM", embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4,
                     logits_scaling=2.5, tie_word_embeddings=True),
    "smollm3": small("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=3, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=5),
    "exaone4": small("exaone4", "Exaone4ForCausalLM", num_hidden_layers=3, sliding_window=5, sliding_window_pattern=2),
    "ernie4_5": small("ernie4_5", "Ernie4_5ForCausalLM", head_dim=8, use_bias=True),
    "seed_oss": small("seed_oss", "SeedOssForCausalLM", head_dim=8, attention_out_bias=True),
    "arcee": small("arcee", "ArceeForCausalLM", tie_word_embeddings=True),
    "nemotron": small("nemotron", "NemotronForCausalLM", rows=(7, 14, 10)),
    "cohere": small("cohere", "CohereForCausalLM", logit_scale=0.3),
    "cohere2": small("cohere2", "Cohere2ForCausalLM", num_hidden_layers=2, sliding_window=5, sliding_window_pattern=2),
    "cohere_qk_norm": small("cohere", "CohereForCausalLM", num_hidden_layers=1, head_dim=4, use_qk_norm=True, logit_scale=1.0),
    "starcoder2": small("starcoder2", "Starcoder2ForCausalLM", sliding_window=5),
    "stablelm": small("stablelm", "StableLmForCausalLM", num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True),
    "stablelm_parallel": small("stablelm", "StableLmForCausalLM", num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, use_parallel_residual=True),
    "stablelm_qk_norm": small("stablelm", "StableLmForCausalLM", num_hidden_layers=1, qk_layernorm=True, use_parallel_residual=True,
                              partial_rotary_factor=0.5),
    "phi": small("phi", "PhiForCausalLM"),
    # The head's name on the hub; the next one has that of transformers 5.
    "gpt_neox": small("gpt_neox", "GPTNeoXForCausalLM", num_key_value_heads=ABSENT, num_attention_heads=2, rotary_pct=0.5,
                      rename=(("lm_head.", "embed_out."),)),
    "gpt_neox_serial": small("gpt_neox", "GPTNeoXForCausalLM", num_hidden_layers=1, num_key_value_heads=ABSENT, num_attention_heads=2, use_parallel_residual=False),
    "falcon_7b": small("falcon", "FalconForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, ffn_hidden_size=20),
    "falcon_40b": small("falcon", "FalconForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, ffn_hidden_size=20,
                        new_decoder_architecture=True, num_kv_heads=2),
    # Not eager: that path adds ALiBi to the scores and, scaled, once more with the mask.
    "falcon_rw": small("falcon", "FalconForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, ffn_hidden_size=20, alibi=True,
                       multi_query=False, parallel_attn=False, bias=True, attention="sdpa"),
    "gpt2": small("gpt2", "GPT2LMHeadModel", num_key_value_heads=ABSENT, intermediate_size=ABSENT, n_embd=16, n_layer=2, n_head=4, n_inner=20,
                  n_positions=32, hidden_size=ABSENT, num_hidden_layers=ABSENT, num_attention_heads=ABSENT, max_position_embeddings=ABSENT),
    "helium": small("helium", "HeliumForCausalLM", head_dim=4),
    "jais2": small("jais2", "Jais2ForCausalLM"),
    "cwm": small("cwm", "CwmForCausalLM", num_hidden_layers=5, head_dim=8, sliding_window=5,
                 rope_parameters={"rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                  "original_max_position_embeddings": 32}),
    "vaultgemma": small("vaultgemma", "VaultGemmaForCausalLM", num_hidden_layers=3, head_dim=8, sliding_window=5, query_pre_attn_scalar=12,
                        attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "ministral": small("ministral", "MinistralForCausalLM", num_hidden_layers=3, head_dim=8, sliding_window=5,
                       layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    # The longest row reaches the fourth step of the scale on queries.
    "ministral3": small("ministral3", "Ministral3ForCausalLM", head_dim=8,
                        rope_parameters={"type": "yarn", "rope_theta": 20.0, "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 4.0,
                                         "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}),
    "olmo": small("olmo", "OlmoForCausalLM"),
    "olmo_clip": small("olmo", "OlmoForCausalLM", num_hidden_layers=1, clip_qkv=0.8, attention_bias=True),
    "hunyuan": small("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=8, tie_word_embeddings=True,
                     rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                                   "mscale_all_dim": 1.0}),
    "nanochat": small("nanochat", "NanoChatForCausalLM", num_hidden_layers=3, final_logit_softcapping=3.0),
    "apertus": small("apertus", "ApertusForCausalLM",
                     rope_parameters={"rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                      "original_max_position_embeddings": 32}),
    # ALiBi with six heads, so that the slopes are of both kinds; the embedding's norm is a part of the first layer.
    "bloom": small("bloom", "BloomForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, num_hidden_layers=ABSENT,
                   num_attention_heads=ABSENT, hidden_size=24, n_layer=2, n_head=6, max_position_embeddings=ABSENT, seq_length=64),
    "gptj": small("gptj", "GPTJForCausalLM", **GPT, n_inner=20, n_positions=64, rotary_dim=2),
    "gpt_neo": small("gpt_neo", "GPTNeoForCausalLM", num_key_value_heads=ABSENT, num_hidden_layers=ABSENT, num_attention_heads=ABSENT, num_layers=3,
                     num_heads=4, window_size=5, attention_types=[[["global", "local"], 1], [["local"], 1]]),
    "gpt_bigcode": small("gpt_bigcode", "GPTBigCodeForCausalLM", **GPT, n_inner=20, n_positions=32),
    "gpt_bigcode_heads": small("gpt_bigcode", "GPTBigCodeForCausalLM", **{**GPT, "n_layer": 1}, n_inner=20, n_positions=32, multi_query=False),
    "mpt": small("mpt", "MptForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, num_hidden_layers=ABSENT, num_attention_heads=ABSENT,
                 hidden_size=ABSENT, max_position_embeddings=ABSENT, d_model=24, n_layers=2, n_heads=6, max_seq_len=64, expansion_ratio=4,
                 attn_config={"clip_qkv": 0.9, "alibi": True}),
    "biogpt": small("biogpt", "BioGptForCausalLM", num_key_value_heads=ABSENT, max_position_embeddings=16),
    "hyperclovax": small("hyperclovax", "HyperCLOVAXForCausalLM", head_dim=4, embedding_multiplier=3.0, attention_multiplier=0.3, logits_scaling=0.4),
    "qwen3_5": {**case(QWEN3_5, rows=(65, 200, 1, 63, 64), full=True), "curve": True},
    "qwen3_5_tied": case(QWEN3_5, rows=(6, 14, 9), tie_word_embeddings=True, attention_bias=True, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, full_attention_interval=ABSENT, layer_types=["full_attention", "linear_attention"],
                         linear_num_value_heads=2, linear_key_head_dim=11, linear_value_head_dim=7, linear_conv_kernel_dim=3),
    "qwen3_5_vl": case(QWEN3_5, rows=(6, 14, 9), num_hidden_layers=2, full_attention_interval=2, linear_num_key_heads=1, linear_num_value_heads=3,
                       linear_key_head_dim=12, linear_value_head_dim=6, dtype=torch.bfloat16,
                       wrap={"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "image_token_id": 35, "tie_word_embeddings": False,
                             "vision_config": {"model_type": "qwen3_5", "depth": 1, "hidden_size": 4}},
                       rename=(("model.", "model.language_model."),)),
    # Positions begin in the third row of their table.
    "opt": small("opt", "OPTForCausalLM", num_key_value_heads=ABSENT, intermediate_size=ABSENT, ffn_dim=20, word_embed_proj_dim=16, dropout=0.0,
                 max_position_embeddings=16),
    "mixtral": experts("mixtral", "MixtralForCausalLM", num_local_experts=5, num_experts_per_tok=2, intermediate_size=6, sliding_window=5, rms_norm_eps=1e-5,
                       long=True, balance=True),
    "mixtral_fused": experts("mixtral", "MixtralForCausalLM", fused=True, num_local_experts=3, num_experts_per_tok=2, intermediate_size=6,
                             num_hidden_layers=1, tie_word_embeddings=True),
    # Layer 1 is dense by the list, the others by the step have experts; published files say num_experts.
    "qwen3_moe": experts("qwen3_moe", "Qwen3MoeForCausalLM", num_hidden_layers=3, head_dim=8, num_experts=6, num_experts_per_tok=3,
                         moe_intermediate_size=6, norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1, rms_norm_eps=1e-6, balance=True),
    "qwen3_moe_fused": experts("qwen3_moe", "Qwen3MoeForCausalLM", fused=True, num_hidden_layers=2, head_dim=8, num_local_experts=4, num_experts_per_tok=4,
                               moe_intermediate_size=6, decoder_sparse_step=2, attention_bias=True),
    # A window on layer 0 alone: the even ones before max_window_layers.
    "qwen2_moe": experts("qwen2_moe", "Qwen2MoeForCausalLM", num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=6,
                         shared_expert_intermediate_size=10, mlp_only_layers=[1], use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "qwen2_moe_fused": experts("qwen2_moe", "Qwen2MoeForCausalLM", fused=True, num_hidden_layers=1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
                               shared_expert_intermediate_size=10, qkv_bias=False, norm_topk_prob=True, tie_word_embeddings=True),
    "olmoe": experts("olmoe", "OlmoeForCausalLM", num_experts=5, num_experts_per_tok=3, intermediate_size=6),
    # The first generation: its own code; layer 0 dense.
    "deepseek": experts("deepseek", "DeepseekForCausalLM", num_hidden_layers=2, num_key_value_heads=4, n_routed_experts=5, num_experts_per_tok=3,
                        moe_intermediate_size=6, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False, rms_norm_eps=1e-6,
                        scoring_func="softmax", aux_loss_alpha=0.001, seq_aux=True),
    "deepseek_norm": experts("deepseek", "DeepseekForCausalLM", num_hidden_layers=1, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
                             n_shared_experts=1, norm_topk_prob=True, rms_norm_eps=1e-6),
    "glm4_moe": experts("glm4_moe", "Glm4MoeForCausalLM", head_dim=8, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, n_routed_experts=8,
                        num_experts_per_tok=3, moe_intermediate_size=6, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.5, n_group=4,
                        topk_group=2, norm_topk_prob=True,
                        # Of the layer that predicts a token further, whose number is that of the layers.
                        beside=(("model.layers.2.eh_proj.weight", (16, 32)), ("model.layers.2.enorm.weight", (16,)))),
    "glm4_moe_air": experts("glm4_moe", "Glm4MoeForCausalLM", fused=True, num_hidden_layers=1, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
                            n_shared_experts=2, first_k_dense_replace=0, norm_topk_prob=False),
    "dots1": experts("dots1", "Dots1ForCausalLM", num_hidden_layers=3, head_dim=8, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=6,
                     n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, sliding_window=5, max_window_layers=2),
    # Latent attention.  head_dim is the rotated width in files that transformers writes; none is here, and others elsewhere.
    "deepseek_v2": latent("deepseek_v2", "DeepseekV2ForCausalLM", rows=(7, 23, 12), q_lora_rank=None, v_head_dim=5, n_routed_experts=6, num_experts_per_tok=3,
                          n_shared_experts=2, first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
                          scoring_func="softmax", moe_layer_freq=1, rope_theta=20.0,
                          rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                                        "mscale_all_dim": 0.707}),
    # All experts in one tensor, biases, and factors on cos and sin that are not 1.
    "deepseek_v2_groups": latent("deepseek_v2", "DeepseekV2ForCausalLM", rows=(7, 23, 12), fused=True, num_hidden_layers=1, q_lora_rank=10, v_head_dim=14,
                                 n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                                 routed_scaling_factor=3.0, attention_bias=True, mlp_bias=True, rope_theta=20.0,
                                 rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5}),
    "deepseek_v3": latent("deepseek_v3", "DeepseekV3ForCausalLM", rows=(7, 23, 12), num_hidden_layers=2, q_lora_rank=10, v_head_dim=5, head_dim=4, qk_head_dim=10,
                          n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.5, n_group=4,
                          topk_group=2, norm_topk_prob=True, scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=1, rope_theta=20.0,
                          rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                                        "mscale_all_dim": 1.0},
                          beside=(("model.layers.2.eh_proj.weight", (16, 32)), ("model.layers.2.enorm.weight", (16,)))),
    # As Moonlight: queries at once, no groups; here also halves for pairs, and weights that are not normed.
    "deepseek_v3_plain": latent("deepseek_v3", "DeepseekV3ForCausalLM", num_hidden_layers=1, q_lora_rank=None, v_head_dim=10, n_routed_experts=5,
                                num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=0, routed_scaling_factor=2.446, n_group=1, topk_group=1,
                                norm_topk_prob=False, rope_interleave=False, attention_bias=True, rope_theta=50.0),
    # Dense throughout: no choice of experts that rounding could turn.
    "deepseek_v3_dense": latent("deepseek_v3", "DeepseekV3ForCausalLM", num_hidden_layers=1, q_lora_rank=10, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2,
                                n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, rope_theta=50.0),
    "glm4_moe_lite": latent("glm4_moe_lite", "Glm4MoeLiteForCausalLM", num_hidden_layers=2, q_lora_rank=9, v_head_dim=12, n_routed_experts=5, num_experts_per_tok=2,
                            n_shared_experts=1, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    "granitemoe": experts("granitemoe", "GraniteMoeForCausalLM", num_local_experts=5, num_experts_per_tok=2, intermediate_size=6, embedding_multiplier=3.0,
                          attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=0.8, tie_word_embeddings=True, draw="c"),
    "granitemoeshared": experts("granitemoeshared", "GraniteMoeSharedForCausalLM", num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2,
                                intermediate_size=6, shared_intermediate_size=10, embedding_multiplier=3.0, attention_multiplier=0.3,
                                residual_multiplier=0.6, logits_scaling=0.8),
    # Layer 0 is dense by moe_layer_start_index's default, layer 2 by moe_layer_end_index.
    "ernie4_5_moe": experts("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", num_hidden_layers=3, moe_num_experts=6, moe_k=3, moe_intermediate_size=6,
                            moe_num_shared_experts=2, moe_layer_end_index=1),
    "ernie4_5_moe_bias": experts("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", num_hidden_layers=2, moe_num_experts=4, moe_k=2, moe_intermediate_size=6,
                                 moe_num_shared_experts=1, moe_layer_interval=2, use_bias=True, tie_word_embeddings=False),
    "hunyuan_v1_moe": experts("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", head_dim=8, num_experts=5, moe_topk=2, intermediate_size=6,
                              rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0}),
    "minimax_m2": experts("minimax_m2", "MiniMaxM2ForCausalLM", balance=True, head_dim=8, rotary_dim=4, num_local_experts=6, num_experts_per_tok=2,
                          intermediate_size=6, draw="b"),
    "phimoe": experts("phimoe", "PhiMoEForCausalLM", num_local_experts=5, num_experts_per_tok=2, intermediate_size=6, attention_bias=True, lm_head_bias=True,
                      router_jitter_noise=0.3),
    # One list of factors at every length, and a factor on cos and sin that changes after 12 positions; fused.
    "phimoe_long": experts("phimoe", "PhiMoEForCausalLM", fused=True, rows=(6, 17, 9), num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2,
                           intermediate_size=6, router_jitter_noise=0.3, rope_scaling={"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0], "short_mscale": 1.2,
                                                              "long_mscale": 1.5, "original_max_position_embeddings": 12}),
    # Layer 0 is dense by the list; qkvz and ba by key head; two value heads for each.
    "qwen3_next": {**case(QWEN3_5, rows=(6, 14, 9), architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", **MIXTURE, mlp_only_layers=[0],
                          decoder_sparse_step=1, norm_topk_prob=True, full_attention_interval=2, rope_parameters=ABSENT, rope_theta=1e7,
                          partial_rotary_factor=0.25), "experts": "each"},
    # As published: one tensor for all experts of a layer, inside a multimodal model.
    "qwen3_5_moe_vl": {**case(QWEN3_5, rows=(6, 14, 9), architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", **{**MIXTURE, "num_experts": 4, "num_experts_per_tok": 2},
                              intermediate_size=ABSENT, num_hidden_layers=2, full_attention_interval=2, linear_num_value_heads=2,
                              wrap={"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
                                    "vision_config": {"model_type": "qwen3_5_moe", "depth": 1, "hidden_size": 4}},
                              rename=(("model.", "model.language_model."),)), "experts": "fused"},
    # Windows of 5 on the first layer alone; gates and ups beyond the limit; a ramp of yarn that is not cut to whole dimensions.
    "gpt_oss": experts("gpt_oss", "GptOssForCausalLM", fused=True, head_dim=8, num_local_experts=5, num_experts_per_tok=2, experts_per_token=2, intermediate_size=6,
                       sliding_window=5, swiglu_limit=1.25, rope_theta=20.0, hidden_act="silu", attention_bias=True, rms_norm_eps=1e-5,
                       rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False,
                                     "original_max_position_embeddings": 16}),
    # Windows by layer_types, no biases on attention, the class's own yarn, all experts but one, and a steeper sigmoid.
    "gpt_oss_full": experts("gpt_oss", "GptOssForCausalLM", fused=True, num_hidden_layers=1, head_dim=8, num_local_experts=4, num_experts_per_tok=3, intermediate_size=6,
                            sliding_window=4, layer_types=["full_attention"], attention_bias=False, swiglu_limit=1.5, swiglu_alpha=2.5),
    # Chunks of 5 end inside the rows; the second layer has no positions, and its queries grow every 4 rows.  One expert for each row.
    "llama4": experts("llama4_text", "Llama4ForCausalLM", fused=True, num_hidden_layers=3, head_dim=8, num_local_experts=4, num_experts_per_tok=1, intermediate_size=6,
                      intermediate_size_mlp=10, interleave_moe_layer_step=1, no_rope_layers=[1, 0, 1], attention_chunk_size=5, floor_scale=4, attn_scale=0.3,
                      attn_temperature_tuning=True, use_qk_norm=True, rms_norm_eps=1e-5, rope_theta=500000.0,
                      rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 128,
                                    "rope_type": "llama3"}),
    # As Maverick, inside a multimodal model: the first layer is dense, no norms of heads; two experts for each row.
    "llama4_vl": experts("llama4_text", "Llama4ForCausalLM", fused=True, head_dim=8, num_local_experts=5, num_experts_per_tok=2, intermediate_size=6,
                         intermediate_size_mlp=10, interleave_moe_layer_step=2, no_rope_layers=[], no_rope_layer_interval=2, attention_chunk_size=6, floor_scale=5,
                         attn_scale=0.2, attn_temperature_tuning=True, use_qk_norm=False, rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=None,
                         wrap={"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "boi_token_index": 30, "image_token_index": 31,
                               "vision_config": {"model_type": "llama4_vision_model", "num_hidden_layers": 1, "hidden_size": 4}},
                         rename=(("model.", "language_model.model."), ("lm_head.", "language_model.lm_head."))),
}
ONE_PLUS = ("gemma", "gemma2", "gemma3_text", "nemotron", "vaultgemma", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")  # norm weights are stored as w - 1


def write_json(path, value):
    with open(path, "w") as f:
        f.write(json.dumps(value, indent=2) + "\n")


def file_name(name, spec):
    for ours, theirs in spec["rename"]:
        if name.startswith(ours):
            return theirs + name[len(ours):]
    return name


def make_weights(model, generator):
    """Matrices wide enough that softmax and silu leave their linear range, norms around 1, biases far from 0."""
    for p in model.parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.data = 0.25 * noise if p.ndim >= 2 else 0.2 * noise
    for name, p in model.named_parameters():
        if ("norm" in name or ".ln_" in name) and name.endswith("weight") and (model.config.model_type not in ONE_PLUS or "linear_attn" in name):
            p.data += 1.0
        if name.endswith("conv1d.weight"):  # values far from 0: a norm of almost nothing would show rounding alone
            p.data *= 4
        if name.endswith("A_log"):  # from states that last for hundreds of rows to states that are gone after three
            p.data += torch.linspace(-4, -1, p.numel())
    for name, b in biases_of_choice(model).items():
        b.data = 0.2 * torch.randn(b.shape, generator=generator)


def biases_of_choice(model):
    """Correction biases of routers: no training changes them, and files have them all the same."""
    return {k: v for k, v in {**dict(model.named_buffers()), **dict(model.named_parameters())}.items() if k.endswith("e_score_correction_bias")}


def trained(model):
    return [(k, p) for k, p in model.named_parameters() if p.requires_grad and k not in biases_of_choice(model)]


def as_files(model, tensors, spec):
    """Tensors by the names that files have for the parameters of these names.  transformers has the experts of a layer in one tensor, and writes one for each:
    a copy of the model with these numbers is saved."""
    if spec.get("experts") != "each" or spec["inner"]["model_type"] in reference.TYPES:
        return {file_name(k, spec): v for k, v in tensors.items()}
    other = copy.deepcopy(model).to(next(iter(tensors.values())).dtype)
    with torch.no_grad():
        for k, p in {**dict(other.named_parameters()), **biases_of_choice(other)}.items():
            p.copy_(tensors.get(k, torch.full_like(p, math.nan)))
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        stored = load_file(os.path.join(folder, "model.safetensors"))
    return {k: v for k, v in stored.items() if not v.isnan().any()}


def write_weights(folder, model, spec):
    """The names transformers reads, in the order of the model; lm_head is left out when it is tied."""
    tensors = as_files(model, {k: v.detach() for k, v in {**dict(model.named_parameters()), **biases_of_choice(model)}.items()}, spec)
    tensors = {k: v.to(spec["dtype"]).contiguous() for k, v in tensors.items()}
    tensors.update({k: v.to(spec["dtype"]) for k, v in model.named_buffers() if ".act_fn." in k})  # constants that are stored
    if "text_config" in spec["config"]:  # what is not of the text model is none of ours
        names = {"qwen": ("model.visual.patch.weight", "mtp.fc.weight"), "gemm": ("vision_tower.patch.weight",),
                 "llam": ("vision_model.patch_embedding.linear.weight", "multi_modal_projector.linear_1.weight")}
        for name in names[spec["config"]["model_type"][:4]]:
            tensors[name] = torch.ones(2, 3, dtype=spec["dtype"])
    if spec["shards"] == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    n = spec["shards"]
    names = list(tensors)
    weight_map = {}
    for s in range(n):
        file = f"model-{s + 1:05d}-of-{n:05d}.safetensors"
        part = names[len(names) * s // n:len(names) * (s + 1) // n]
        save_file({k: tensors[k] for k in part}, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map.update({k: file for k in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(os.path.join(folder, "model.safetensors.index.json"), index)


def make_tokens(spec, generator):
    """Rows of different length.  Labels are not shifted (as Hugging Face takes them): a prompt of -100, and a hole."""
    vocab = spec["inner"].get("vocab_size", spec["inner"].get("padded_vocab_size"))
    ids = [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in spec["rows"]]
    tokens = {"input_ids": ids}
    if spec["labels"]:
        labels = [list(row) for row in ids]
        labels[0][:3] = [-100] * 3
        labels[1][:6] = [-100] * 6
        labels[1][11:14] = [-100] * 3
        tokens["labels"] = labels
    with open(os.path.join(spec["folder"], "tokens.json"), "w") as f:
        f.write("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in tokens.items()) + "\n}\n")
    return tokens


def fresh(spec):
    """A model of the case's config, without weights."""
    if spec["inner"]["model_type"] in reference.TYPES:
        return reference.build(spec["inner"])
    config = AutoConfig.for_model(**spec["inner"])
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")


def load(spec, dtype):
    folder = spec["folder"]
    if spec["rename"] or spec["inner"]["model_type"] in reference.TYPES or spec.get("experts") == "fused":
        model = fresh(spec).to(dtype)
        stored = load_file(os.path.join(folder, "model.safetensors"))
        with torch.no_grad():
            for k, p in {**dict(model.named_parameters()), **biases_of_choice(model)}.items():
                p.copy_(stored[file_name(k, spec)])
        return plain_experts(model).eval()
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=spec["attention"], output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return plain_experts(model).eval()


def plain_experts(model):
    """The plain loop over experts: torch's grouped product wants wider rows than a toy has."""
    if "experts" in str(model):
        model.config._experts_implementation = "eager"
    return model


def run(model, tokens):
    """Loss and logits of the rows, each alone, one position after the other: no padding, no row sees another."""
    ids = tokens["input_ids"]
    labels = tokens.get("labels", ids)
    count = sum(label != -100 for row in labels for label in row[1:])
    loss, logits = 0, []
    for row, row_labels in zip(ids, labels):
        out = model(input_ids=torch.tensor([row]), labels=torch.tensor([row_labels]),
                    num_items_in_batch=torch.tensor(count), use_cache=False)
        loss = loss + out.loss
        logits.append(out.logits[0])
    check_loss(loss, logits, labels, count)
    return loss, logits


def check_loss(loss, logits, labels, count):
    """The definition, spelled out: the mean over all trained targets of all rows."""
    total = 0
    for z, row in zip(logits, labels):
        log_p = torch.log_softmax(z.detach().double(), dim=-1)
        total -= sum(log_p[t, row[t + 1]] for t in range(len(row) - 1) if row[t + 1] != -100)
    assert abs(total / count - loss.item()) < 1e-5, (total / count, loss.item())


def gradients(model, tokens):
    model.zero_grad()
    loss, logits = run(model, tokens)
    loss.backward()
    out = {"loss": loss.detach().reshape(1)}
    out.update({f"logits.{i}": z.detach() for i, z in enumerate(logits)})
    out.update({f"grad.{k}": p.grad.clone() for k, p in trained(model)})
    return out


def balanced(model, tokens, together):
    """Loss with the load-balancing loss that transformers adds, and its gradients: all rows in one padded call, which is a micro-batch of ours, or
    each row in its own, weighted by its tokens."""
    ids = tokens["input_ids"]
    labels = tokens.get("labels", ids)
    count = sum(label != -100 for row in labels for label in row[1:])
    total = sum(len(row) for row in ids)
    longest = max(len(row) for row in ids)
    model.zero_grad()
    model.router_aux_loss_coef = BALANCE
    padded = [[row + [filler] * (longest - len(row)) for row in rows] for rows, filler in ((ids, 0), (labels, -100), ([[1] * len(r) for r in ids], 0))]
    calls = [padded] if together else [([row], [row_labels], [[1] * len(row)]) for row, row_labels in zip(ids, labels)]
    loss, aux = 0, 0
    for call_ids, call_labels, mask in calls:
        share = sum(map(sum, mask)) / total
        out = model(input_ids=torch.tensor(call_ids), labels=torch.tensor(call_labels), attention_mask=torch.tensor(mask), use_cache=False,
                    num_items_in_batch=torch.tensor(count), output_router_logits=True)
        loss = loss + out.loss - (1 - share) * BALANCE * out.aux_loss
        aux = aux + share * out.aux_loss
    loss.backward()
    return {"loss": loss.detach().reshape(1), "aux": aux.detach().reshape(1), **{f"grad.{k}": p.grad.clone() for k, p in trained(model)}}


def train(spec, tokens, dtype, max_norm, steps=STEPS, lr=LR):
    model = load(spec, dtype)
    decays = {k: (p.ndim >= 2 and "norm" not in k and "bias" not in k) or k.endswith(("A_log", "alpha_p", "alpha_n", "sinks"))
              for k, p in trained(model)}  # as Trainer's
    decayed = [p for k, p in trained(model) if decays[k]]
    others = [p for k, p in trained(model) if not decays[k]]
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                            lr=lr, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for _ in range(steps):
        opt.zero_grad()
        loss, _ = run(model, tokens)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item())
        opt.step()
        losses.append(loss.item())
    state = {f"w.{k}": p.detach() for k, p in {**dict(trained(model)), **biases_of_choice(model)}.items()}
    state.update({f"m.{k}": opt.state[p]["exp_avg"] for k, p in trained(model)})
    state.update({f"v.{k}": opt.state[p]["exp_avg_sq"] for k, p in trained(model)})
    return state, losses, norms


def write_curve(folder, spec, tokens, max_norm):
    """Losses and norms of CURVE steps in float64, everywhere, and what becomes of the parameters of decays, which torch's own float32 misses most."""
    with doubles():
        state, losses, norms = train(spec, tokens, torch.float64, max_norm, CURVE, LONG_LR)
    rough_state, rough_losses, rough_norms = train(spec, tokens, torch.float32, max_norm, CURVE, LONG_LR)
    decays = [k for k in state if k.startswith("w.") and k.endswith(("A_log", "dt_bias"))]
    write_json(os.path.join(folder, "curve.json"), {"lr": LONG_LR, "losses": losses, "grad_norms": norms, "decays": {k[2:]: state[k].tolist() for k in decays}})
    far = lambda a, b: max(abs(x / y - 1) for x, y in zip(a, b))
    print(f"   {CURVE} steps: loss {losses[0]:.4f} -> {losses[-1]:.4f}; fp32 against float64 at most: loss {far(rough_losses, losses):.1e}, norm"
          f" {far(rough_norms, norms):.1e}, decays {max((rough_state[k].double() - state[k]).abs().max().item() for k in decays):.1e}")


def choose_max_norm(spec, tokens):
    """Near the median of the ten norms, on a multiple of 1/64, so that some steps clip and some do not."""
    norms = sorted(train(spec, tokens, torch.float32, math.inf)[2])
    return round(64 * (norms[4] + norms[5]) / 2) / 64


def gradient_only(model):
    """Key biases, alone or in a tensor with others, where nothing normalizes the key: see README.md."""
    return [k for k, _ in model.named_parameters() if k.endswith(("k_proj.bias", "query_key_value.bias", "wqkv.bias", "c_attn.bias"))
            and model.config.model_type not in ("qwen3", "qwen3_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")]


def by_frequency(bias, model):
    """rms over the heads and the two halves, for each rotary frequency."""
    if model.config.model_type not in ("llama", "qwen2"):
        return []
    half = model.model.rotary_emb.inv_freq.numel()
    return bias.reshape(-1, half).square().mean(0).sqrt().tolist()


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-300)).item()


def worst(found, exact, prefixes):
    errors = {k: distance(found[k], exact[k]) for k in found if k.split(".")[0] in prefixes}
    name = max(errors, key=errors.get)
    return f"{errors[name]:.1e} ({name})"


def expected_rope(config):
    """The frequencies and the factor on cos and sin, from their definitions."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    base = rope.get("rope_theta", config.get("rope_theta"))
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    f, old = rope.get("factor", 1.0), rope.get("original_max_position_embeddings")
    freqs = [base ** (-2 * i / width) for i in range(width // 2)]
    if kind == "linear":
        return [t / f for t in freqs], 1.0
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        blend = [min(max((old * t / (2 * math.pi) - low) / (high - low), 0), 1) for t in freqs]
        assert 1 in blend and 0 in blend and any(0 < s < 1 for s in blend)
        return [(1 - s) * t / f + s * t for s, t in zip(blend, freqs)], 1.0
    if kind == "yarn":
        def corner(turns):
            return width * math.log(old / (2 * math.pi * turns)) / (2 * math.log(base))
        lo, hi = max(math.floor(corner(32)), 0), min(math.ceil(corner(1)), width - 1)
        ramp = [min(max((i - lo) / (hi - lo), 0), 1) for i in range(width // 2)]
        assert any(0 < r < 1 for r in ramp)
        return [t * (1 - r) + t / f * r for r, t in zip(ramp, freqs)], 0.1 * math.log(f) + 1
    return freqs, 1.0


def check_config(folder, model):
    """config.json is in the published spelling: what transformers 5 would write for it must mean the same, and be
    what the published spelling says.  Of the families whose settings are one flat set."""
    if model.config.model_type not in ("llama", "mistral", "qwen2", "qwen3"):
        return "of its family"
    config = AutoConfig.from_pretrained(folder)
    again = type(config).from_dict(json.loads(config.to_json_string()))
    assert again.rope_parameters == config.rope_parameters == model.config.rope_parameters
    freqs, factor = expected_rope(json.load(open(os.path.join(folder, "config.json"))))
    rotary = model.model.rotary_emb
    assert abs(rotary.attention_scaling - factor) < 1e-12 and distance(rotary.inv_freq, torch.tensor(freqs)) < 1e-6
    return config.rope_parameters["rope_type"]


def in_files(model, found, spec):
    """grad.NAME, w.NAME ... with the files' names; loss and logits as they are."""
    out = {}
    for kind in ("grad", "w", "m", "v"):
        some = {k.partition(".")[2]: v for k, v in found.items() if k.partition(".")[0] == kind}
        out.update({f"{kind}.{k}": v.contiguous() for k, v in as_files(model, some, spec).items()} if some else {})
    out.update({k: v.contiguous() for k, v in found.items() if k.partition(".")[0] not in ("grad", "w", "m", "v")})
    return {k: out[k] for k in sorted(out, key=lambda k: list(found).index(k) if k in found else len(found))}


def write_model(name, spec):
    """The case's folder with config.json, weights and tokens; the tokens, and what draws further numbers."""
    folder = spec["folder"] = os.path.join(spec["root"], name)
    os.makedirs(folder, exist_ok=True)
    generator = torch.Generator().manual_seed(zlib.crc32((name + spec.get("draw", "")).encode()))
    write_json(os.path.join(folder, "config.json"), spec["config"])
    model = fresh(spec)
    make_weights(model, generator)
    write_weights(folder, model, spec)
    return make_tokens(spec, generator), generator


def make(name, spec):
    tokens, generator = write_model(name, spec)
    folder = spec["folder"]
    model = load(spec, torch.float32)
    rope = check_config(folder, model)
    expected = gradients(model, tokens)
    save_file(in_files(model, expected, spec), os.path.join(folder, "expected.safetensors"))

    max_norm = choose_max_norm(spec, tokens)
    state, losses, norms = train(spec, tokens, torch.float32, max_norm)
    clipped = [n > max_norm for n in norms]
    assert 3 <= sum(clipped) <= 9, (name, norms)
    kept = state if spec["full"] else {k: v for k, v in state.items() if k.startswith("w.")}
    save_file(in_files(model, kept, spec), os.path.join(folder, "adamw.safetensors"))
    write_json(os.path.join(folder, "steps.json"), {
        "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY, "max_norm": max_norm,
        "losses": losses, "grad_norms": norms, "clipped": clipped, "gradient_only": [file_name(k, spec) for k in gradient_only(model)]})

    for file, together in BALANCED.items() if spec.get("balance") else ():
        found, exact = (balanced(load(spec, t), tokens, together) for t in (torch.float32, torch.float64))
        save_file(in_files(model, found, spec), os.path.join(folder, file))
        print(f"   {file}: aux {found['aux'].item():.4f}, fp32 against float64: gradients {worst(found, exact, ['grad'])}")

    if spec.get("long"):
        many, exact_many = (train(spec, tokens, t, max_norm, LONG, LONG_LR)[1] for t in (torch.float32, torch.float64))
        write_json(os.path.join(folder, "long.json"), {"lr": LONG_LR, "losses": many})
        print(f"   {LONG} steps: loss {many[0]:.4f} -> {many[-1]:.4f}, fp32 against float64 at most"
              f" {max(abs(a / b - 1) for a, b in zip(many, exact_many)):.1e}")

    if spec.get("curve"):
        write_curve(folder, spec, tokens, max_norm)

    if spec.get("beside"):
        stored = load_file(os.path.join(folder, "model.safetensors"))
        stored.update({k: torch.randn(shape, generator=generator) for k, shape in spec["beside"]})

    # The same in float64: how far fp32 itself is from the truth, which the tolerances in README.md rest on.
    exact = gradients(load(spec, torch.float64), tokens)
    exact_state, exact_losses, exact_norms = train(spec, tokens, torch.float64, max_norm)
    for k in gradient_only(model):
        print(f"   {k}: w differs by {distance(state['w.' + k], exact_state['w.' + k]):.1e}, its gradient by"
              f" {distance(expected['grad.' + k], exact['grad.' + k]):.1e}, rms of each frequency's gradient"
              f" {[float(f'{g:.1e}') for g in by_frequency(expected['grad.' + k], model)]}")
        state.pop("w." + k)
    smallest = min((v.norm().item() / math.sqrt(v.numel()), k) for k, v in expected.items() if k.startswith("grad."))
    print(f"{name}: loss {expected['loss'].item():.4f} -> {losses[-1]:.4f}, clipped {sum(clipped)}, rope {rope}\n"
          f"   fp32 against float64: loss {distance(torch.tensor(losses), torch.tensor(exact_losses)):.1e}, norm"
          f" {distance(torch.tensor(norms), torch.tensor(exact_norms)):.1e}, logits {worst(expected, exact, ['logits'])},\n"
          f"   gradients {worst(expected, exact, ['grad'])},\n"
          f"   weights {worst(state, exact_state, 'w')}, m {worst(state, exact_state, 'm')}, v {worst(state, exact_state, 'v')};"
          f" smallest gradient (rms) {smallest[0]:.1e} {smallest[1]}", flush=True)
    if spec.get("beside"):
        save_file(stored, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def check(name, spec, committed):
    """Recomputed elsewhere, by another version or machine: the same numbers within rounding."""
    make(name, spec)
    for file in ("model.safetensors", "expected.safetensors", "adamw.safetensors", *BALANCED):
        if not os.path.exists(os.path.join(committed, name, file)):
            continue
        old, new = load_file(os.path.join(committed, name, file)), load_file(os.path.join(spec["folder"], file))
        assert old.keys() == new.keys()
        for k in old:
            assert distance(new[k], old[k]) < 1e-4, (name, file, k, distance(new[k], old[k]))


def main():
    torch.set_num_threads(1)
    names = [a for a in sys.argv[1:] if a != "--check"] or list(CASES)
    if "--check" in sys.argv:
        with tempfile.TemporaryDirectory() as root:
            for name in names:
                check(name, {**CASES[name], "root": root}, HERE)
        print("all agree with what is committed")
        return
    for name in names:
        make(name, {**CASES[name], "root": HERE})


if __name__ == "__main__":
    main()
