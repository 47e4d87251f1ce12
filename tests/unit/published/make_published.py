"""Published models by the values their config.json files document, with the sizes transformers gives them: published.json.

    python make_published.py            write published.json
    python make_published.py --check    compare with what is committed

A row is a name, the configuration and the parameter count its makers publish, in millions.  The count is checked against what transformers
builds from the configuration (on its meta device, without memory; the three families that have no code there by the reference beside the
golden models): a misremembered value shows.  Written out are that exact count and the sizes of the three kinds of unit.  Needed here and nowhere else:
torch, transformers."""
import json
import os
import re
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../golden/models"))
import reference  # noqa: E402


def usual(kind, arch, D, F, L, H, K, V, **more):
    return {"architectures": [arch], "model_type": kind, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L,
            "num_attention_heads": H, "num_key_value_heads": K, "vocab_size": V, **more}


def llama(*dims, **more):
    return usual("llama", "LlamaForCausalLM", *dims, **{"hidden_act": "silu", "rms_norm_eps": 1e-5, **more})


def mistral(*dims, **more):
    return usual("mistral", "MistralForCausalLM", *dims, **{"hidden_act": "silu", "rms_norm_eps": 1e-5, "sliding_window": None, **more})


def qwen2(*dims, **more):
    return usual("qwen2", "Qwen2ForCausalLM", *dims, **{"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "use_sliding_window": False,
                                                       "sliding_window": 32768, "max_window_layers": dims[2], **more})


def qwen3(*dims, **more):
    return usual("qwen3", "Qwen3ForCausalLM", *dims, **{"head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                                                       "use_sliding_window": False, "sliding_window": None, "attention_bias": False, **more})


def phi3(*dims, **more):
    return usual("phi3", "Phi3ForCausalLM", *dims, **{"hidden_act": "silu", "rms_norm_eps": 1e-5, "pad_token_id": 32000, **more})


def neox(D, L, H, V, **more):
    return {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": D, "intermediate_size": 4 * D, "num_hidden_layers": L,
            "num_attention_heads": H, "vocab_size": V, "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": True,
            "hidden_act": "gelu", "layer_norm_eps": 1e-5, "max_position_embeddings": 2048, "tie_word_embeddings": False, **more}


def gpt2(D, L, H):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": D, "n_layer": L, "n_head": H,
            "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5}


def moe(kind, arch, *dims, **more):
    return usual(kind, arch, *dims, **{"hidden_act": "silu", **more})


def latent(kind, arch, D, F, L, H, V, q_rank, widths, experts, **more):
    (dn, dr, dv), (E, T, wide) = widths, experts
    return moe(kind, arch, D, F, L, H, H, V, q_lora_rank=q_rank, kv_lora_rank=512, qk_nope_head_dim=dn, qk_rope_head_dim=dr, v_head_dim=dv, n_routed_experts=E,
               num_experts_per_tok=T, moe_intermediate_size=wide, **more)


GPT_OSS = {"head_dim": 64, "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128, "swiglu_limit": 7.0, "attention_bias": True,
           "rms_norm_eps": 1e-5, "rope_theta": 150000, "initial_context_length": 4096, "max_position_embeddings": 131072,
           "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False}}


def llama4(**more):
    text = usual("llama4_text", "Llama4ForCausalLM", 5120, 8192, 48, 40, 8, 202048, hidden_act="silu", head_dim=128, intermediate_size_mlp=16384,
                 num_experts_per_tok=1, attention_chunk_size=8192, attn_temperature_tuning=True, floor_scale=8192, attn_scale=0.1, no_rope_layers=[],
                 rms_norm_eps=1e-5, rope_theta=500000.0, **more)
    return {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "vision_config": {"model_type": "llama4_vision_model"}, "text_config": text}


def baichuan(*dims, **more):
    config = usual("baichuan", "BaichuanForCausalLM", *dims, hidden_act="silu", rms_norm_eps=1e-6, model_max_length=4096, tie_word_embeddings=False, **more)
    del config["num_key_value_heads"]
    return config


def internlm2(*dims, **more):
    return usual("internlm2", "InternLM2ForCausalLM", *dims, hidden_act="silu", rms_norm_eps=1e-5, bias=False, rope_theta=1e6, max_position_embeddings=32768, **more)


def gemma(kind, arch, *dims, **more):
    return usual(kind, arch, *dims, **{"head_dim": 256, "rms_norm_eps": 1e-6, **more})


def gemma3(*dims, **more):
    return gemma("gemma3_text", "Gemma3ForCausalLM", *dims, **{"hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6, "rope_local_base_freq": 10000,
                                                              "query_pre_attn_scalar": 256, **more})


def qwen3_5(D, F, L, H, K, values, tied):
    """As published: the text model inside a multimodal one."""
    text = usual("qwen3_5_text", None, D, F, L, H, K, 248320, head_dim=256, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
                 full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=values, linear_key_head_dim=128, linear_value_head_dim=128,
                 linear_conv_kernel_dim=4, max_position_embeddings=262144, mtp_num_hidden_layers=1, tie_word_embeddings=tied, dtype="bfloat16",
                 rope_parameters={"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
                                  "partial_rotary_factor": 0.25})
    del text["architectures"]
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": tied, "image_token_id": 248056,
            "vision_config": {"model_type": "qwen3_5"}, "text_config": text}


def qwen3_5_moe(D, L, H, values, E, T, width):
    config = qwen3_5(D, None, L, H, 2, values, False)
    text = config["text_config"]
    del text["intermediate_size"]
    text.update(model_type="qwen3_5_moe_text", num_experts=E, num_experts_per_tok=T, moe_intermediate_size=width, shared_expert_intermediate_size=width)
    return {**config, "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "vision_config": {"model_type": "qwen3_5_moe"}}


def yarn(factor, mscale):
    return {"type": "yarn", "factor": factor, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": mscale, "mscale_all_dim": mscale}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}

# name: (configuration, family, published count in millions)
MINISTRAL3_ROPE = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                   "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
PUBLISHED = {
    "Llama-2-7b": (llama(4096, 11008, 32, 32, 32, 32000), "llama", 6738.4),
    "Llama-2-13b": (llama(5120, 13824, 40, 40, 40, 32000), "llama", 13015.9),
    "Llama-2-70b": (llama(8192, 28672, 80, 64, 8, 32000), "llama", 68976.6),
    "Llama-3.1-8B": (llama(4096, 14336, 32, 32, 8, 128256, rope_theta=5e5, rope_scaling=LLAMA3, max_position_embeddings=131072), "llama", 8030.3),
    "Llama-3.1-70B": (llama(8192, 28672, 80, 64, 8, 128256, rope_theta=5e5, rope_scaling=LLAMA3, max_position_embeddings=131072), "llama", 70553.7),
    "Llama-3.1-405B": (llama(16384, 53248, 126, 128, 8, 128256, rope_theta=5e5, rope_scaling=LLAMA3, max_position_embeddings=131072), "llama", 405853.4),
    "Llama-3.2-1B": (llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, rope_theta=5e5, tie_word_embeddings=True), "llama", 1235.8),
    "Llama-3.2-3B": (llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, rope_theta=5e5, tie_word_embeddings=True), "llama", 3212.7),
    "TinyLlama-1.1B": (llama(2048, 5632, 22, 32, 4, 32000), "llama", 1100.0),
    "Yi-1.5-6B": (llama(4096, 11008, 32, 32, 4, 64000, rope_theta=5e6, rms_norm_eps=1e-6), "llama", 6061.0),
    "Yi-1.5-34B": (llama(7168, 20480, 60, 56, 8, 64000, rope_theta=5e6, rms_norm_eps=1e-6), "llama", 34388.9),
    "deepseek-llm-7b": (llama(4096, 11008, 30, 32, 32, 102400, rms_norm_eps=1e-6), "llama", 6910.4),
    "deepseek-coder-1.3b": (llama(2048, 5504, 24, 16, 16, 32256, rope_theta=1e5, rope_scaling={"type": "linear", "factor": 4.0}), "llama", 1346.5),
    "SmolLM2-135M": (llama(576, 1536, 30, 9, 3, 49152, rope_theta=1e5, tie_word_embeddings=True), "llama", 134.5),
    "SmolLM2-360M": (llama(960, 2560, 32, 15, 5, 49152, rope_theta=1e5, tie_word_embeddings=True), "llama", 361.8),
    "SmolLM2-1.7B": (llama(2048, 8192, 24, 32, 32, 49152, rope_theta=1.3e5, tie_word_embeddings=True), "llama", 1711.4),
    "Mistral-7B-v0.1": (mistral(4096, 14336, 32, 32, 8, 32000, sliding_window=4096), "mistral", 7241.7),
    "Mistral-7B-v0.3": (mistral(4096, 14336, 32, 32, 8, 32768, rope_theta=1e6), "mistral", 7248.0),
    "Mistral-Nemo-Base-2407": (mistral(5120, 14336, 40, 32, 8, 131072, head_dim=128, rope_theta=1e6), "mistral", 12247.8),
    "Mistral-Small-24B-2501": (mistral(5120, 32768, 40, 32, 8, 131072, head_dim=128, rope_theta=1e8), "mistral", 23572.4),
    "Qwen2.5-0.5B": (qwen2(896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True), "qwen2", 494.0),
    "Qwen2.5-1.5B": (qwen2(1536, 8960, 28, 12, 2, 151936, tie_word_embeddings=True), "qwen2", 1543.7),
    "Qwen2.5-3B": (qwen2(2048, 11008, 36, 16, 2, 151936, tie_word_embeddings=True), "qwen2", 3085.9),
    "Qwen2.5-7B": (qwen2(3584, 18944, 28, 28, 4, 152064), "qwen2", 7615.6),
    "Qwen2.5-14B": (qwen2(5120, 13824, 48, 40, 8, 152064), "qwen2", 14770.0),
    "Qwen2.5-32B": (qwen2(5120, 27648, 64, 40, 8, 152064), "qwen2", 32763.9),
    "Qwen2.5-72B": (qwen2(8192, 29568, 80, 64, 8, 152064), "qwen2", 72706.2),
    "Qwen3-0.6B": (qwen3(1024, 3072, 28, 16, 8, 151936, tie_word_embeddings=True), "qwen3", 596.0),
    "Qwen3-1.7B": (qwen3(2048, 6144, 28, 16, 8, 151936, tie_word_embeddings=True), "qwen3", 1720.6),
    "Qwen3-4B": (qwen3(2560, 9728, 36, 32, 8, 151936, tie_word_embeddings=True), "qwen3", 4022.5),
    "Qwen3-8B": (qwen3(4096, 12288, 36, 32, 8, 151936), "qwen3", 8190.7),
    "Qwen3-14B": (qwen3(5120, 17408, 40, 40, 8, 151936), "qwen3", 14768.3),
    "Qwen3-32B": (qwen3(5120, 25600, 64, 64, 8, 151936), "qwen3", 32762.1),
    "Qwen3.5-0.8B": (qwen3_5(1024, 3584, 24, 8, 2, 16, True), "qwen3_5", 752.4),
    "Qwen3.5-2B": (qwen3_5(2048, 6144, 24, 8, 2, 16, True), "qwen3_5", 1881.8),
    "Qwen3.5-4B": (qwen3_5(2560, 9216, 32, 16, 4, 32, True), "qwen3_5", 4205.8),
    "Qwen3.5-9B": (qwen3_5(4096, 12288, 32, 16, 4, 32, False), "qwen3_5", 8953.8),
    "Qwen3.5-27B": (qwen3_5(5120, 17408, 64, 24, 4, 48, False), "qwen3_5", 26896.0),
    "Qwen3.5-35B-A3B": (qwen3_5_moe(2048, 40, 16, 32, 256, 8, 512), "qwen3_5_moe", 34661),
    "Qwen3.5-122B-A10B": (qwen3_5_moe(3072, 48, 32, 64, 256, 8, 1024), "qwen3_5_moe", 122112),
    "Qwen3.5-397B-A17B": (qwen3_5_moe(4096, 60, 32, 64, 512, 10, 1024), "qwen3_5_moe", 396346),
    "Qwen3-Next-80B-A3B": (usual("qwen3_next", "Qwen3NextForCausalLM", 2048, 5120, 48, 16, 2, 151936, head_dim=256, hidden_act="silu", rms_norm_eps=1e-6,
                                 full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                                 linear_value_head_dim=128, linear_conv_kernel_dim=4, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512,
                                 shared_expert_intermediate_size=512, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                                 partial_rotary_factor=0.25, rope_theta=10000000, max_position_embeddings=262144, tie_word_embeddings=False),
                           "qwen3_next", 79674),
    "Phi-3-mini-4k": (phi3(3072, 8192, 32, 32, 32, 32064, sliding_window=2047), "phi3", 3821.1),
    "Phi-3-medium-4k": (phi3(5120, 17920, 40, 40, 10, 32064, sliding_window=2047), "phi3", 13960.2),
    "phi-4": (phi3(5120, 17920, 40, 40, 10, 100352, rope_theta=250000), "phi3", 14659.5),
    "Phi-4-mini": (phi3(3072, 8192, 32, 24, 8, 200064, partial_rotary_factor=0.75, tie_word_embeddings=True), "phi3", 3836.0),
    "gemma-2b": (gemma("gemma", "GemmaForCausalLM", 2048, 16384, 18, 8, 1, 256000, hidden_act="gelu"), "gemma", 2506.2),
    "gemma-7b": (gemma("gemma", "GemmaForCausalLM", 3072, 24576, 28, 16, 16, 256000, hidden_act="gelu"), "gemma", 8537.7),
    "gemma-2-2b": (gemma("gemma2", "Gemma2ForCausalLM", 2304, 9216, 26, 8, 4, 256000, hidden_activation="gelu_pytorch_tanh", sliding_window=4096), "gemma2", 2614.3),
    "gemma-2-9b": (gemma("gemma2", "Gemma2ForCausalLM", 3584, 14336, 42, 16, 8, 256000, hidden_activation="gelu_pytorch_tanh", sliding_window=4096), "gemma2", 9241.7),
    "gemma-2-27b": (gemma("gemma2", "Gemma2ForCausalLM", 4608, 36864, 46, 32, 16, 256000, head_dim=128, query_pre_attn_scalar=144,
                          hidden_activation="gelu_pytorch_tanh", sliding_window=4096), "gemma2", 27227.1),
    "gemma-3-270m": (gemma3(640, 2048, 18, 4, 1, 262144, sliding_window=512), "gemma3", 268.1),
    "gemma-3-1b": (gemma3(1152, 6912, 26, 4, 1, 262144, sliding_window=512), "gemma3", 999.9),
    # The text part of a multimodal model; its config leaves most keys to the class's defaults.
    "gemma-3-4b": ({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}, "gemma3", 3880.1),
    "glm-4-9b-hf": (usual("glm", "GlmForCausalLM", 4096, 13696, 40, 32, 2, 151552, head_dim=128, attention_bias=True, rms_norm_eps=1.5625e-7,
                          partial_rotary_factor=0.5), "glm", 9399.9),
    "GLM-4-9B-0414": (usual("glm4", "Glm4ForCausalLM", 4096, 13696, 40, 32, 2, 151552, head_dim=128, attention_bias=True, rms_norm_eps=1e-5,
                            partial_rotary_factor=0.5), "glm4", 9400.3),
    "GLM-4-32B-0414": (usual("glm4", "Glm4ForCausalLM", 6144, 23040, 61, 48, 2, 151552, head_dim=128, attention_bias=False, rms_norm_eps=1e-5,
                             partial_rotary_factor=0.5), "glm4", 32566.1),
    "glm-4-9b-chat": ({"architectures": ["ChatGLMModel"], "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40,
                       "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
                       "padded_vocab_size": 151552, "add_qkv_bias": True, "add_bias_linear": False, "rope_ratio": 500, "rmsnorm": True,
                       "layernorm_epsilon": 1.5625e-7, "seq_length": 131072}, "chatglm", 9399.9),
    "internlm2-1_8b": (internlm2(2048, 8192, 24, 16, 8, 92544), "internlm2", 1889.1),
    "internlm2_5-7b": (internlm2(4096, 14336, 32, 32, 8, 92544, rope_scaling={"type": "dynamic", "factor": 2.0}), "internlm2", 7737.7),
    "internlm2-20b": (internlm2(6144, 16384, 48, 48, 8, 92544), "internlm2", 19861.1),
    "Baichuan-7B": (baichuan(4096, 11008, 32, 32, 32, 64000, max_position_embeddings=4096), "baichuan", 7000.6),
    "Baichuan2-7B": (baichuan(4096, 11008, 32, 32, 32, 125696, max_position_embeddings=4096, z_loss_weight=0), "baichuan", 7505.97),
    "Baichuan2-13B": (baichuan(5120, 13696, 40, 40, 40, 125696), "baichuan", 13896.7),
    "OLMo-2-0425-1B": (usual("olmo2", "Olmo2ForCausalLM", 2048, 8192, 16, 16, 16, 100352, rope_theta=5e5, rms_norm_eps=1e-6), "olmo2", 1484.9),
    "OLMo-2-1124-7B": (usual("olmo2", "Olmo2ForCausalLM", 4096, 11008, 32, 32, 32, 100352, rope_theta=5e5, rms_norm_eps=1e-6), "olmo2", 7298.6),
    "Olmo-3-7B": (usual("olmo3", "Olmo3ForCausalLM", 4096, 11008, 32, 32, 32, 100278, rope_theta=5e5, rms_norm_eps=1e-6, sliding_window=4096,
                        layer_types=["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(32)]), "olmo3", 7298.0),
    "granite-3.1-2b": (usual("granite", "GraniteForCausalLM", 2048, 8192, 40, 32, 8, 49155, attention_multiplier=0.015625, embedding_multiplier=12.0,
                             residual_multiplier=0.22, logits_scaling=8.0, rope_theta=5e6, tie_word_embeddings=True), "granite", 2533.5),
    "granite-3.1-8b": (usual("granite", "GraniteForCausalLM", 4096, 12800, 40, 32, 8, 49155, attention_multiplier=0.0078125, embedding_multiplier=12.0,
                             residual_multiplier=0.22, logits_scaling=16.0, rope_theta=1e7, tie_word_embeddings=True), "granite", 8170.8),
    "SmolLM3-3B": (usual("smollm3", "SmolLM3ForCausalLM", 2048, 11008, 36, 16, 4, 128256, no_rope_layer_interval=4, rope_theta=5e6,
                         rms_norm_eps=1e-6), "smollm3", 3075.1),
    "EXAONE-4.0-1.2B": (usual("exaone4", "Exaone4ForCausalLM", 2048, 4096, 30, 32, 8, 102400, head_dim=64, sliding_window=None, sliding_window_pattern=None,
                              layer_types=["full_attention"] * 30, rope_theta=1e6, tie_word_embeddings=True), "exaone4", 1279.4),
    "EXAONE-4.0-32B": (usual("exaone4", "Exaone4ForCausalLM", 5120, 27392, 64, 40, 8, 102400, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG",
                             layer_types=["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(64)], rope_theta=1e6), "exaone4", 32003.2),
    "ERNIE-4.5-0.3B": (usual("ernie4_5", "Ernie4_5ForCausalLM", 1024, 3072, 18, 16, 2, 103424, head_dim=128, rope_theta=5e5, use_bias=False,
                             tie_word_embeddings=True), "ernie4_5", 360.7),
    "Seed-OSS-36B": (usual("seed_oss", "SeedOssForCausalLM", 5120, 27648, 64, 80, 8, 155136, head_dim=128, attention_bias=True, attention_out_bias=False,
                           rope_theta=1e7), "seed_oss", 36151.1),
    "helium-1-preview-2b": (usual("helium", "HeliumForCausalLM", 2560, 7040, 24, 20, 20, 48000, head_dim=128, hidden_act="silu", rms_norm_eps=1e-8,
                                  rope_theta=100000.0), "helium", 2172.6),
    "Jais-2-8B-Chat": (usual("jais2", "Jais2ForCausalLM", 3328, 26624, 32, 26, 26, 150272, hidden_act="relu2", layer_norm_eps=1e-5), "jais2", 8092),
    "cwm": (usual("cwm", "CwmForCausalLM", 6144, 21504, 64, 48, 8, 128256, head_dim=128, hidden_act="silu", rms_norm_eps=1e-5, sliding_window=8192),
            "cwm", 32600),
    "vaultgemma-1b": (usual("vaultgemma", "VaultGemmaForCausalLM", 1152, 6912, 26, 4, 1, 256000, head_dim=256, hidden_activation="gelu_pytorch_tanh",
                            rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=512), "vaultgemma", 993),
    "Ministral-3-8B-Base-2512": (usual("ministral3", "Ministral3ForCausalLM", 4096, 14336, 34, 32, 8, 131072, head_dim=128, hidden_act="silu",
                                       rms_norm_eps=1e-5, max_position_embeddings=262144, rope_parameters=MINISTRAL3_ROPE), "ministral3", 8490.0),
    "OLMo-1B-hf": (usual("olmo", "OlmoForCausalLM", 2048, 8192, 16, 16, 16, 50304, hidden_act="silu", clip_qkv=None, tie_word_embeddings=True),
                   "olmo", 1176.8),
    "OLMo-7B-0424-hf": (usual("olmo", "OlmoForCausalLM", 4096, 11008, 32, 32, 32, 50304, hidden_act="silu", clip_qkv=8.0,
                              max_position_embeddings=4096), "olmo", 6888.1),
    "Hunyuan-0.5B-Instruct": (usual("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", 1024, 3584, 24, 16, 8, 120818, head_dim=128, hidden_act="silu",
                                    rms_norm_eps=1e-5, tie_word_embeddings=True, use_qk_norm=True,
                                    rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0}), "hunyuan", 539.0),
    "Hunyuan-7B-Instruct": (usual("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", 4096, 14336, 32, 32, 8, 128167, head_dim=128, hidden_act="silu",
                                  rms_norm_eps=1e-5, tie_word_embeddings=True, use_qk_norm=True,
                                  rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0}), "hunyuan", 7505.0),
    "nanochat-d32": (usual("nanochat", "NanoChatForCausalLM", 2048, 8192, 32, 16, 16, 65536, hidden_act="relu2", final_logit_softcapping=15.0),
                     "nanochat", 1879.0),
    "Apertus-8B-2509": (usual("apertus", "ApertusForCausalLM", 4096, 21504, 32, 32, 8, 131072, hidden_act="xielu", rms_norm_eps=1e-5,
                              max_position_embeddings=65536), "apertus", 8053.0),
    "gpt-j-6b": ({"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_inner": None,
                  "n_positions": 2048, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": False}, "gptj", 6053.4),
    "gpt-neo-125m": ({"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12,
                      "intermediate_size": None, "max_position_embeddings": 2048, "window_size": 256, "vocab_size": 50257,
                      "attention_types": [[["global", "local"], 6]]}, "gpt_neo", 125.2),
    "starcoderbase-1b": ({"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 2048, "n_layer": 24, "n_head": 16,
                          "n_inner": 8192, "n_positions": 8192, "multi_query": True, "vocab_size": 49152}, "gpt_bigcode", 1137.2),
    "mpt-7b": ({"architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "max_seq_len": 2048,
                "vocab_size": 50432, "expansion_ratio": 4, "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None}}, "mpt", 6649.3),
    "biogpt": ({"architectures": ["BioGptForCausalLM"], "model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096,
                "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 42384, "max_position_embeddings": 1024,
                "scale_embedding": True}, "biogpt", 346.8),
    "HyperCLOVAX-SEED-Think-14B": (usual("hyperclovax", "HyperCLOVAXForCausalLM", 6144, 14336, 38, 48, 8, 110592, head_dim=128, hidden_act="silu",
                                         use_post_norm=True, residual_multiplier=1.0), "hyperclovax", 14748.0),
    "AFM-4.5B": (usual("arcee", "ArceeForCausalLM", 2560, 18432, 36, 20, 4, 128004, head_dim=128, hidden_act="relu2", rms_norm_eps=1e-5), "arcee", 4618.6),
    "Minitron-4B": (usual("nemotron", "NemotronForCausalLM", 3072, 9216, 32, 24, 8, 256000, head_dim=128, hidden_act="relu2", norm_eps=1e-5,
                          partial_rotary_factor=0.5), "nemotron", 4190.9),
    "c4ai-command-r-v01": (usual("cohere", "CohereForCausalLM", 8192, 22528, 40, 64, 64, 256000, logit_scale=0.0625, rope_theta=8e6), "cohere", 34980.8),
    "c4ai-command-r-plus": (usual("cohere", "CohereForCausalLM", 12288, 33792, 64, 96, 8, 256000, logit_scale=0.8333333333333334, rope_theta=7.5e7,
                                  use_qk_norm=True), "cohere", 103810.7),
    "aya-expanse-8b": (usual("cohere", "CohereForCausalLM", 4096, 14336, 32, 32, 8, 256000, logit_scale=0.125, rope_theta=10000), "cohere", 8028.0),
    "c4ai-command-r7b-12-2024": (usual("cohere2", "Cohere2ForCausalLM", 4096, 14336, 32, 32, 8, 256000, logit_scale=0.25, rope_theta=50000, sliding_window=4096,
                                       sliding_window_pattern=4), "cohere2", 8028.0),
    "starcoder2-3b": (usual("starcoder2", "Starcoder2ForCausalLM", 3072, 12288, 30, 24, 2, 49152, sliding_window=4096, use_bias=True), "starcoder2", 3030.4),
    "starcoder2-7b": (usual("starcoder2", "Starcoder2ForCausalLM", 4608, 18432, 32, 36, 4, 49152, sliding_window=4096, use_bias=True), "starcoder2", 7173.9),
    "stablelm-3b-4e1t": (usual("stablelm", "StableLmForCausalLM", 2560, 6912, 32, 32, 32, 50304, partial_rotary_factor=0.25), "stablelm", 2795.4),
    "stablelm-2-1_6b": (usual("stablelm", "StableLmForCausalLM", 2048, 5632, 24, 32, 32, 100352, partial_rotary_factor=0.25, use_qkv_bias=True), "stablelm", 1644.5),
    "stablelm-2-12b": (usual("stablelm", "StableLmForCausalLM", 5120, 13824, 40, 32, 8, 100352, partial_rotary_factor=0.25, qk_layernorm=True,
                             use_parallel_residual=True, use_qkv_bias=False), "stablelm", 12143.0),
    "phi-1_5": (usual("phi", "PhiForCausalLM", 2048, 8192, 24, 32, 32, 51200, partial_rotary_factor=0.5, hidden_act="gelu_new"), "phi", 1418.3),
    "phi-2": (usual("phi", "PhiForCausalLM", 2560, 10240, 32, 32, 32, 51200, partial_rotary_factor=0.4, hidden_act="gelu_new"), "phi", 2779.7),
    "pythia-70m": (neox(512, 6, 8, 50304), "gpt_neox", 70.4),
    "pythia-410m": (neox(1024, 24, 16, 50304), "gpt_neox", 405.3),
    "pythia-6.9b": (neox(4096, 32, 32, 50432), "gpt_neox", 6857.3),
    "pythia-12b": (neox(5120, 36, 40, 50688), "gpt_neox", 11846.1),
    "gpt-neox-20b": (neox(6144, 44, 64, 50432, hidden_act="gelu_fast"), "gpt_neox", 20554.6),
    "falcon-rw-1b": ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
                      "vocab_size": 50304, "multi_query": False, "alibi": True, "bias": True, "parallel_attn": False, "new_decoder_architecture": False}, "falcon", 1311.6),
    "falcon-7b": ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                   "vocab_size": 65024, "multi_query": True, "alibi": False, "bias": False, "parallel_attn": True, "new_decoder_architecture": False}, "falcon", 6921.7),
    "falcon-40b": ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
                    "num_kv_heads": 8, "vocab_size": 65024, "alibi": False, "bias": False, "parallel_attn": True, "new_decoder_architecture": True}, "falcon", 41303.3),
    "gpt2": (gpt2(768, 12, 12), "gpt2", 124.4),
    "gpt2-medium": (gpt2(1024, 24, 16), "gpt2", 354.8),
    "gpt2-xl": (gpt2(1600, 48, 25), "gpt2", 1557.6),
    "opt-125m": ({"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
                  "num_attention_heads": 12, "vocab_size": 50272, "word_embed_proj_dim": 768, "max_position_embeddings": 2048,
                  "do_layer_norm_before": True, "activation_function": "relu"}, "opt", 125.2),
    "opt-6.7b": ({"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "vocab_size": 50272, "word_embed_proj_dim": 4096, "max_position_embeddings": 2048,
                  "do_layer_norm_before": True, "activation_function": "relu"}, "opt", 6658.5),
    "Mixtral-8x7B-v0.1": (moe("mixtral", "MixtralForCausalLM", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2), "mixtral", 46702.8),
    "Mixtral-8x22B-v0.1": (moe("mixtral", "MixtralForCausalLM", 6144, 16384, 56, 48, 8, 32768, num_local_experts=8, num_experts_per_tok=2), "mixtral", 140630),
    "Qwen3-30B-A3B": (moe("qwen3_moe", "Qwen3MoeForCausalLM", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
                          moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]), "qwen3_moe", 30532.1),
    "Qwen3-235B-A22B": (moe("qwen3_moe", "Qwen3MoeForCausalLM", 4096, 12288, 94, 64, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
                            moe_intermediate_size=1536, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]), "qwen3_moe", 235093.6),
    "Qwen3-Coder-480B-A35B-Instruct": (moe("qwen3_moe", "Qwen3MoeForCausalLM", 6144, 8192, 62, 96, 8, 151936, head_dim=128, num_experts=160, num_experts_per_tok=8,
                                           moe_intermediate_size=2560, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]), "qwen3_moe", 480155),
    "Qwen1.5-MoE-A2.7B": (moe("qwen2_moe", "Qwen2MoeForCausalLM", 2048, 5632, 24, 16, 16, 151936, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
                              shared_expert_intermediate_size=5632), "qwen2_moe", 14316),
    "Qwen2-57B-A14B": (moe("qwen2_moe", "Qwen2MoeForCausalLM", 3584, 18944, 28, 28, 4, 151936, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=2560,
                           shared_expert_intermediate_size=20480), "qwen2_moe", 57409),
    "OLMoE-1B-7B-0924": (moe("olmoe", "OlmoeForCausalLM", 2048, 1024, 16, 16, 16, 50304, num_experts=64, num_experts_per_tok=8), "olmoe", 6919),
    "deepseek-moe-16b-base": (moe("deepseek", "DeepseekForCausalLM", 2048, 10944, 28, 16, 16, 102400, n_routed_experts=64, num_experts_per_tok=6,
                                  moe_intermediate_size=1408, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False,
                                  rms_norm_eps=1e-6), "deepseek", 16376),
    "DeepSeek-V2-Lite": (latent("deepseek_v2", "DeepseekV2ForCausalLM", 2048, 10944, 27, 16, 102400, None, (128, 64, 128), (64, 6, 1408), n_shared_experts=2,
                                first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.0,
                                scoring_func="softmax", moe_layer_freq=1, rope_theta=10000, max_position_embeddings=163840, rope_scaling=yarn(40, 0.707)),
                         "deepseek_v2", 15706),
    "DeepSeek-V2": (latent("deepseek_v2", "DeepseekV2ForCausalLM", 5120, 12288, 60, 128, 102400, 1536, (128, 64, 128), (160, 6, 1536), n_shared_experts=2,
                           first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=8, topk_group=3, norm_topk_prob=False, routed_scaling_factor=16.0,
                           scoring_func="softmax", moe_layer_freq=1, rope_theta=10000, max_position_embeddings=163840, rope_scaling=yarn(40, 1.0)),
                    "deepseek_v2", 235741),
    "DeepSeek-V3": (latent("deepseek_v3", "DeepseekV3ForCausalLM", 7168, 18432, 61, 128, 129280, 1536, (128, 64, 128), (256, 8, 2048), n_shared_experts=1,
                           first_k_dense_replace=3, topk_method="noaux_tc", n_group=8, topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5,
                           scoring_func="sigmoid", moe_layer_freq=1, rope_theta=10000, max_position_embeddings=163840, rope_scaling=yarn(40, 1.0),
                           num_nextn_predict_layers=1), "deepseek_v3", 671026),
    "Moonlight-16B-A3B": (latent("deepseek_v3", "DeepseekV3ForCausalLM", 2048, 11264, 27, 16, 163840, None, (128, 64, 128), (64, 6, 1408), n_shared_experts=2,
                                 first_k_dense_replace=1, topk_method="noaux_tc", n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.446,
                                 scoring_func="sigmoid", moe_layer_freq=1, rope_theta=50000.0, max_position_embeddings=8192, rms_norm_eps=1e-5),
                          "deepseek_v3", 15960),
    "Kimi-K2-Base": (latent("kimi_k2", "DeepseekV3ForCausalLM", 7168, 18432, 61, 64, 163840, 1536, (128, 64, 128), (384, 8, 2048), n_shared_experts=1,
                            first_k_dense_replace=1, topk_method="noaux_tc", n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.827,
                            scoring_func="sigmoid", moe_layer_freq=1, rope_theta=50000.0, max_position_embeddings=131072, rope_scaling=yarn(32, 1.0)),
                     "deepseek_v3", 1026408),
    "GLM-4.7-Flash": (latent("glm4_moe_lite", "Glm4MoeLiteForCausalLM", 2048, 10240, 47, 20, 154880, 768, (192, 64, 256), (64, 4, 1536), n_shared_experts=1,
                             first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.8, rope_theta=1e6,
                             max_position_embeddings=202752, rms_norm_eps=1e-5, num_nextn_predict_layers=1), "glm4_moe_lite", 29943),
    "GLM-4.5-Air": (moe("glm4_moe", "Glm4MoeForCausalLM", 4096, 10944, 46, 96, 8, 151552, head_dim=128, attention_bias=True, use_qk_norm=False, n_routed_experts=128,
                        num_experts_per_tok=8, moe_intermediate_size=1408, n_shared_experts=1, first_k_dense_replace=1, partial_rotary_factor=0.5), "glm4_moe", 106852),
    "GLM-4.5": (moe("glm4_moe", "Glm4MoeForCausalLM", 5120, 12288, 92, 96, 8, 151552, head_dim=128, attention_bias=True, use_qk_norm=True, n_routed_experts=160,
                    num_experts_per_tok=8, moe_intermediate_size=1536, n_shared_experts=1, first_k_dense_replace=3, routed_scaling_factor=2.5,
                    partial_rotary_factor=0.5), "glm4_moe", 352798),
    "dots.llm1.base": (moe("dots1", "Dots1ForCausalLM", 4096, 10944, 62, 32, 32, 152064, head_dim=128, n_routed_experts=128, num_experts_per_tok=6,
                           moe_intermediate_size=1408, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                           sliding_window=None, max_window_layers=62), "dots1", 142774),
    "granite-3.0-1b-a400m": (moe("granitemoe", "GraniteMoeForCausalLM", 1024, 512, 24, 16, 8, 49155, num_local_experts=32, num_experts_per_tok=8,
                                 tie_word_embeddings=True, embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.22,
                                 logits_scaling=6.0), "granitemoe", 1334.6),
    "ERNIE-4.5-21B-A3B": (moe("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", 2560, 12288, 28, 20, 4, 103424, moe_num_experts=64, moe_k=6, moe_intermediate_size=1536,
                              moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=27, moe_layer_interval=1, tie_word_embeddings=True),
                          "ernie4_5_moe", 21825),
    "Hunyuan-A13B": (moe("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", 4096, 3072, 32, 32, 8, 128167, head_dim=128, num_experts=64, moe_topk=8,
                         tie_word_embeddings=True), "hunyuan_v1_moe", 80393),
    "MiniMax-M2": (moe("minimax_m2", "MiniMaxM2ForCausalLM", 3072, 1536, 62, 48, 8, 200064, head_dim=128, rotary_dim=64, num_local_experts=256,
                       num_experts_per_tok=8), "minimax_m2", 228690),
    "Phi-3.5-MoE-instruct": (moe("phimoe", "PhiMoEForCausalLM", 4096, 6400, 32, 32, 8, 32064, num_local_experts=16, num_experts_per_tok=2, attention_bias=True,
                                 lm_head_bias=True), "phimoe", 41873),
    "gpt-oss-20b": (moe("gpt_oss", "GptOssForCausalLM", 2880, 2880, 24, 64, 8, 201088, **GPT_OSS, num_local_experts=32), "gpt_oss", 20915),
    "gpt-oss-120b": (moe("gpt_oss", "GptOssForCausalLM", 2880, 2880, 36, 64, 8, 201088, **GPT_OSS, num_local_experts=128), "gpt_oss", 116829),
    "Llama-4-Scout-17B-16E": (llama4(num_local_experts=16, interleave_moe_layer_step=1, use_qk_norm=True, max_position_embeddings=10485760, rope_scaling={
        "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}), "llama4", 107770),
    "Llama-4-Maverick-17B-128E": (llama4(num_local_experts=128, interleave_moe_layer_step=2, use_qk_norm=False, max_position_embeddings=1048576,
                                         rope_scaling=None), "llama4", 400712),
}

LAYER = re.compile(r"(?:layers|h|blocks)\.(\d+)\.")
EMBED = ("embed_tokens", "wte", "wpe", "word_embeddings", "tok_embeddings", "embed_in", "embed_positions")


def build(config):
    text = config.get("text_config", config)
    with torch.device("meta"):
        if text["model_type"] in reference.TYPES:
            return reference.build(text), text.get("tie_word_embeddings", False)
        if text["model_type"] == "kimi_k2":  # deepseek_v3 by another name, which transformers does not have
            text = {**text, "model_type": "deepseek_v3"}
        c = AutoConfig.for_model(**text)
        return AutoModelForCausalLM.from_config(c), c.tie_word_embeddings


def active_weights(model, config):
    """Of a mixture of experts: the weights of products a token passes, those of the head included; a convolution over rows is none."""
    E = next((config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") if k in config), 0)
    T = next((config[k] for k in ("num_experts_per_tok", "moe_k", "moe_topk") if k in config), 0)
    if not E:
        return {}
    n = config["hidden_size"] * config["vocab_size"]
    for name, p in model.named_parameters():
        if LAYER.search(name) and p.ndim > 1 and not any(word in name for word in ("norm", "bias", "conv1d")):
            n += p.numel() * T // E if ".experts." in name else p.numel()
    return {"active": n}


def sizes(config):
    """Parameters of the embedding's unit, of every layer, and of the head's; a tied head has none of its own."""
    model, tied = build(config)
    embed, head, layers = 0, 0, {}
    fixed = [(k, b) for k, b in model.named_buffers() if k.endswith("e_score_correction_bias")]  # in the files, and never trained
    for name, p in list(model.named_parameters()) + fixed:  # a tied weight is listed once
        layer = LAYER.search(name)
        if layer:
            layers[int(layer[1])] = layers.get(int(layer[1]), 0) + p.numel()
        elif any(e in name for e in EMBED):
            embed += p.numel()
        else:
            head += p.numel()
    assert sorted(layers) == list(range(len(layers)))
    each = [layers[i] for i in range(len(layers))]
    active = active_weights(model, config.get("text_config", config))
    if tied:
        embed, head = embed + head, 0
    return {**active, "params": embed + head + sum(layers.values()), "embedding": embed, "layers": len(layers), "layer": each[0] if len(set(each)) == 1 else each, "head": head}


def main():
    rows = []
    for name, (config, family, published) in PUBLISHED.items():
        found = sizes(config)
        off = found["params"] / 1e6 / published - 1
        assert abs(off) < 2e-3, f"{name}: {found['params'] / 1e6:.2f} million by transformers, {published} published"
        rows.append({"name": name, "family": family, **found, "config": config})
    text = "[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n"
    path = os.path.join(HERE, "published.json")
    if "--check" in sys.argv:
        assert open(path).read() == text, "published.json is not what this script writes"
    else:
        open(path, "w").write(text)
    print(len(rows), "models")


main()
