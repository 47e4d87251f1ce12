"""Families whose code lives in their model repositories, written from their published formulas: internlm2, baichuan, chatglm, deepseek.

The last is transformers' llama with experts of ours.  Of the others one class builds the parameters under the checkpoint's names and computes logits and the loss, plainly.  What differs between the three is
a few lines each: how q, k and v are packed, how positions enter, what the tensors are called."""
import math
from types import SimpleNamespace

import torch
from torch import nn

TYPES = ("internlm2", "baichuan", "chatglm", "deepseek")


def put(module, path, shape):
    """A parameter under a dotted name."""
    *parents, name = path.split(".")
    for p in parents:
        if not hasattr(module, p):
            module.add_module(p, nn.Module())
        module = getattr(module, p)
    module.register_parameter(name, nn.Parameter(torch.zeros(shape)))


def alibi_slopes(n):
    """2^(-8 (h+1) / n) for a power of two; otherwise the largest one below, then every second slope of twice that."""
    m = 2 ** int(math.log2(n))
    slopes = [2 ** (-8 * (h + 1) / m) for h in range(m)]
    return slopes + [2 ** (-8 * (h + 1) / (2 * m)) for h in range(2 * m)][0::2][:n - m]


class Reference(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.kind = config["model_type"]
        c = config
        self.D, self.L, self.H = c["hidden_size"], c.get("num_layers", c.get("num_hidden_layers")), c["num_attention_heads"]
        self.K = c.get("multi_query_group_num", c.get("num_key_value_heads", self.H))
        self.Dh = c.get("kv_channels", self.D // self.H)
        self.F, self.V = c.get("ffn_hidden_size", c.get("intermediate_size")), c.get("padded_vocab_size", c.get("vocab_size"))
        self.eps = c.get("layernorm_epsilon", c.get("rms_norm_eps"))
        self.alibi = self.kind == "baichuan" and "max_position_embeddings" not in c
        self.norm_head = self.kind == "baichuan" and ("z_loss_weight" in c or self.V > 64000)  # the second generation
        self.names = self.tensor_names()
        for role, shape in self.shapes().items():
            for i in range(self.L if "%d" in self.names[role] else 1):
                put(self, self.names[role].replace("%d", str(i)), shape)

    def tensor_names(self):
        if self.kind == "internlm2":
            p = "model.layers.%d."
            return {"embed": "model.tok_embeddings.weight", "norm1": p + "attention_norm.weight", "qkv": p + "attention.wqkv.weight",
                    "qkv_b": p + "attention.wqkv.bias", "o": p + "attention.wo.weight", "o_b": p + "attention.wo.bias",
                    "norm2": p + "ffn_norm.weight", "gate": p + "feed_forward.w1.weight", "up": p + "feed_forward.w3.weight",
                    "down": p + "feed_forward.w2.weight", "norm": "model.norm.weight", "head": "output.weight"}
        if self.kind == "baichuan":
            p = "model.layers.%d."
            return {"embed": "model.embed_tokens.weight", "norm1": p + "input_layernorm.weight", "qkv": p + "self_attn.W_pack.weight",
                    "o": p + "self_attn.o_proj.weight", "norm2": p + "post_attention_layernorm.weight",
                    "gate": p + "mlp.gate_proj.weight", "up": p + "mlp.up_proj.weight", "down": p + "mlp.down_proj.weight",
                    "norm": "model.norm.weight", "head": "lm_head.weight"}
        p = "transformer.encoder.layers.%d."
        return {"embed": "transformer.embedding.word_embeddings.weight", "norm1": p + "input_layernorm.weight",
                "qkv": p + "self_attention.query_key_value.weight", "qkv_b": p + "self_attention.query_key_value.bias",
                "o": p + "self_attention.dense.weight", "norm2": p + "post_attention_layernorm.weight",
                "gate_up": p + "mlp.dense_h_to_4h.weight", "down": p + "mlp.dense_4h_to_h.weight",
                "norm": "transformer.encoder.final_layernorm.weight", "head": "transformer.output_layer.weight"}

    def shapes(self):
        D, F, qkv, o = self.D, self.F, (self.H + 2 * self.K) * self.Dh, self.H * self.Dh
        all_shapes = {"embed": (self.V, D), "norm1": (D,), "qkv": (qkv, D), "qkv_b": (qkv,), "o": (D, o), "o_b": (D,), "norm2": (D,),
                      "gate_up": (2 * F, D), "gate": (F, D), "up": (F, D), "down": (D, F), "norm": (D,), "head": (self.V, D)}
        return {r: all_shapes[r] for r in self.names if r not in ("qkv_b", "o_b") or self.biased()}

    def biased(self):
        c = vars(self.config)
        return c.get("bias", True) if self.kind == "internlm2" else c.get("add_qkv_bias", False)

    def w(self, role, layer=0):
        return dict(self.named_parameters()).get(self.names.get(role, "-").replace("%d", str(layer)))

    def norm(self, x, w):
        return w * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))

    def rotate(self, x):
        """x [heads, T, Dh]."""
        dr = self.Dh // 2 if self.kind == "chatglm" else self.Dh
        base = 10000.0 * vars(self.config).get("rope_ratio", 1) if self.kind == "chatglm" else vars(self.config).get("rope_theta", 10000.0)
        theta = base ** (-torch.arange(0, dr, 2).double() / dr)
        angle = torch.arange(x.shape[1]).double()[:, None] * theta
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        turned, rest = x[..., :dr], x[..., dr:]
        if self.kind == "chatglm":  # pairs (2j, 2j + 1)
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * c - b * s, b * c + a * s), -1)
        return torch.cat((turned, rest), -1)

    def split(self, qkv):
        """[T, (H + 2K) Dh] to q, k, v as [heads, T, Dh]."""
        T, g = qkv.shape[0], self.H // self.K
        if self.kind == "internlm2":
            grouped = qkv.view(T, self.K, g + 2, self.Dh)
            q, k, v = grouped[:, :, :g].reshape(T, self.H, self.Dh), grouped[:, :, g], grouped[:, :, g + 1]
        else:
            q, k, v = (p.view(T, -1, self.Dh) for p in qkv.split([self.H * self.Dh, self.K * self.Dh, self.K * self.Dh], -1))
        return q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)

    def attention(self, h, i):
        T, b = h.shape[0], self.w("qkv_b", i)
        q, k, v = self.split(h @ self.w("qkv", i).T + (0 if b is None else b))
        if not self.alibi:
            q, k = self.rotate(q), self.rotate(k)
        k, v = (t.repeat_interleave(self.H // self.K, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(self.Dh)
        back = torch.arange(T)[None, :] - torch.arange(T)[:, None]
        if self.alibi:
            scores = scores + torch.tensor(alibi_slopes(self.H), dtype=h.dtype)[:, None, None] * back.to(h.dtype)
        scores = scores.masked_fill(back > 0, -math.inf)
        out = (scores.softmax(-1) @ v).transpose(0, 1).reshape(T, -1) @ self.w("o", i).T
        b = self.w("o_b", i)
        return out if b is None else out + b

    def mlp(self, h, i):
        if "gate_up" in self.names:
            gate, up = (h @ self.w("gate_up", i).T).chunk(2, -1)
        else:
            gate, up = h @ self.w("gate", i).T, h @ self.w("up", i).T
        return (nn.functional.silu(gate) * up) @ self.w("down", i).T

    def forward(self, input_ids, labels, num_items_in_batch, use_cache=False):
        x = self.w("embed")[input_ids[0]]
        for i in range(self.L):
            x = x + self.attention(self.norm(x, self.w("norm1", i)), i)
            x = x + self.mlp(self.norm(x, self.w("norm2", i)), i)
        head = self.w("head")
        if self.norm_head:
            head = nn.functional.normalize(head)
        logits = self.norm(x, self.w("norm")) @ head.T
        loss = nn.functional.cross_entropy(logits[:-1].float() if logits.dtype != torch.float64 else logits[:-1], labels[0][1:],
                                           ignore_index=-100, reduction="sum") / num_items_in_batch
        return SimpleNamespace(loss=loss, logits=logits[None])


class Mlp(nn.Module):
    def __init__(self, D, F):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(D, F, bias=False), nn.Linear(D, F, bias=False), nn.Linear(F, D, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """Weights are the T largest of a softmax over all experts, divided by their sum plus 1e-20 if norm_topk_prob says so."""

    def __init__(self, c):
        super().__init__()
        D, I, E = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
        self.T, self.norm = c["num_experts_per_tok"], c.get("norm_topk_prob", False)
        self.gate = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(Mlp(D, I) for _ in range(E))
        self.shared_experts = Mlp(D, I * c["n_shared_experts"])

    def forward(self, x):
        p, chosen = torch.topk(torch.softmax(self.gate(x), dim=-1), self.T, dim=-1)
        if self.norm and self.T > 1:
            p = p / (p.sum(-1, keepdim=True) + 1e-20)
        y = self.shared_experts(x)
        for e, expert in enumerate(self.experts):
            y = y + expert(x) * (p * (chosen == e)).sum(-1, keepdim=True)
        return y


def deepseek(c):
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM._from_config(LlamaConfig(**{**c, "model_type": "llama"}), attn_implementation="eager")
    model.config.model_type = "deepseek"
    for i, layer in enumerate(model.model.layers):
        if i >= c.get("first_k_dense_replace", 0) and i % c.get("moe_layer_freq", 1) == 0:
            layer.mlp = Experts(c)
    return model


def build(config):
    return deepseek(config) if config["model_type"] == "deepseek" else Reference(config)
