#!/usr/bin/env python3
"""Writes states.safetensors: AdamW with each form of its moments, from the words of src/optim/adamw.h and src/ops/moments.h.

    python make_goldens.py

Everything is written the slow way, from the formulas: powers of two instead of shifted bits.  numpy's float32 arithmetic is IEEE's, so the
test compares bits.
"""
import math
import os

import numpy as np
from safetensors.numpy import save_file

F = np.float32
N, N_DECAY, STEPS, BLOCK = 1100, 700, 8, 256
LR, BETA1, BETA2, EPS, DECAY, SCALE = 1e-3, 0.9, 0.999, 1e-8, 0.1, 0.37
KEYS = [0x9E3779B97F4A7C15 * (t + 1) % 2**64 for t in range(STEPS)]


def random_bits(key, i):
    mask = 2**32 - 1
    x = (i + (key & mask)) & mask
    x = ((x ^ x >> 16) * 0x7FEB352D + (key >> 32)) & mask
    x = ((x ^ x >> 15) * 0x846CA68B) & mask
    return x ^ x >> 16


def coefficients(t, decay):
    return dict(b1=F(BETA1), c1=F(1 - BETA1), b2=F(BETA2), c2=F(1 - BETA2), step=F(LR / (1 - BETA1**t)), inv=F(1 / math.sqrt(1 - BETA2**t)),
                eps=F(EPS), decay=F(1 - LR * decay), scale=F(SCALE))


def update(w, m, v, g, t):
    for part, decay in ((slice(0, N_DECAY), DECAY), (slice(N_DECAY, N), 0.0)):
        c = coefficients(t, decay)
        gs = g[part] * c["scale"]
        m[part] = c["b1"] * m[part] + c["c1"] * gs
        v[part] = c["b2"] * v[part] + c["c2"] * (gs * gs)
        denom = np.sqrt(v[part]) * c["inv"] + c["eps"]
        w[part] = w[part] * c["decay"] - c["step"] * (m[part] / denom)
    return w, m, v


def between(x, step, r):
    """x down or up to a multiple of step; r of 65536 chances to go up past a fraction."""
    return math.floor(float(F(F(x / step) + F(r / 65536)))) * step


def to_bf16(x, r):
    a = abs(float(x))
    if a == 0:
        return float(x)
    exponent = max(math.frexp(a)[1] - 1, -126)
    step = 2.0 ** (exponent - 7)
    whole = math.floor(a / step)
    rest = int((a / step - whole) * 65536)  # bits that fall away, 16 of them
    return math.copysign((whole + (rest + r >= 65536)) * step, float(x))


def to_three_bits(a, r):
    """a > 0 as (1 + f/8) 2^k, where k is as small as a wants it."""
    step = 2.0 ** (math.frexp(a)[1] - 1 - 3)
    whole = math.floor(a / step)
    rest = int((a / step - whole) * 65536 * 16)  # 20 bits that fall away
    return (whole + (rest + 16 * r >= 65536 * 16)) * step


def block_exponent(xs, rs):
    largest = max(to_three_bits(abs(float(x)), r) if x else 0.0 for x, r in zip(xs, rs))
    e = math.frexp(largest)[1] - 1 if largest else -127
    return max(34 - 127, min(254 - 127, e))


def to_8bit(x, r, E, lowest):
    """The value (not the code) x is stored as; lowest: how far below E the smallest full exponent is."""
    a = abs(float(x))
    if a < 2.0 ** (E - lowest):
        q = between(a, 2.0 ** (E - lowest - 3), r)
    else:
        q = to_three_bits(a, r)
    return math.copysign(q, float(x))


def code_of(q, E, lowest):
    a = abs(q)
    if a < 2.0 ** (E - lowest):
        return int(a / 2.0 ** (E - lowest - 3))
    k = math.frexp(a)[1] - 1
    return (k - (E - lowest) + 1) * 8 + int((a / 2.0**k - 1) * 8)


def store(form, m, v, key):
    """What the next step sees of m and v, and the bytes they take."""
    bits = [random_bits(key, i) for i in range(N)]
    if form == "float32":
        return m, v, m.copy(), v.copy()
    if form == "bf16":
        m = np.array([to_bf16(m[i], bits[i] & 0xFFFF) for i in range(N)], F)
        v = np.array([to_bf16(v[i], bits[i] >> 16) for i in range(N)], F)
        return m, v, (m.view(np.uint32) >> 16).astype(np.uint16), (v.view(np.uint32) >> 16).astype(np.uint16)
    codes = [np.zeros((N + 15) // 16 * 16 + (N + BLOCK - 1) // BLOCK, np.uint8) for _ in range(2)]
    new = [np.zeros(N, F), np.zeros(N, F)]
    for which, (x, lowest) in enumerate(((m, 14), (v, 30))):
        rs = [r >> 16 if which else r & 0xFFFF for r in bits]
        for b in range(0, N, BLOCK):
            E = block_exponent(x[b:b + BLOCK], rs[b:b + BLOCK])
            codes[which][(N + 15) // 16 * 16 + b // BLOCK] = E + 127 - 34
            for i in range(b, min(b + BLOCK, N)):
                q = to_8bit(x[i], rs[i], E, lowest)
                if which and q == 0 and x[i] != 0:
                    q = 2.0 ** (E - lowest - 3)
                new[which][i] = q
                sign = 128 if not which and math.copysign(1, q) < 0 else 0
                codes[which][i] = sign | code_of(q, E, lowest)
    return new[0], new[1], codes[0], codes[1]


def halves(w):
    bits = w.view(np.uint32).astype(np.uint64)
    hi = (bits + 0x8000) >> 16
    return hi.astype(np.uint16), (bits & 0xFFFF).astype(np.uint16).view(np.int16)


def main():
    rng = np.random.default_rng(6)
    w0 = (rng.standard_normal(N) * 0.02).astype(F)
    size = 10.0 ** rng.uniform(-5, 0, N)
    size[300:340] = 0  # rows of an embedding that nobody used
    g = (rng.standard_normal((STEPS, N)) * size).astype(F)
    g[2:5, 600:700] *= F(1e-4)  # a block that fades and comes back
    out = {"w0": w0, "g": g, "keys": np.array(KEYS, np.uint64)}
    for form in ("float32", "bf16", "8bit"):
        w, m, v = w0.copy(), np.zeros(N, F), np.zeros(N, F)
        for t in range(STEPS):
            w, m, v = update(w, m, v, g[t], t + 1)
            m, v, stored_m, stored_v = store(form, m, v, KEYS[t])
        out[form + ".hi"], out[form + ".lo"] = halves(w)
        out[form + ".m"], out[form + ".v"] = stored_m, stored_v
    save_file(out, os.path.join(os.path.dirname(os.path.abspath(__file__)), "states.safetensors"))


main()
