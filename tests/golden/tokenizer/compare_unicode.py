"""Every code point through every normalizer and pre-tokenizer that looks at characters, against the Rust package.

Each code point is tried alone between letters and between combining marks, so that classes, mappings, canonical order and
composition all show.  Needs the Python package `tokenizers` and a built build/libmt.a."""
import json
import os
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer, models as M, normalizers as N, pre_tokenizers as P, Regex

import compare_fuzz


def probe():
    vocab = {"<0x%02X>" % b: b for b in range(256)}
    return Tokenizer(M.BPE(vocab=vocab, merges=[], byte_fallback=True, continuing_subword_prefix="#"))


def dull(c):
    """One of a large block whose members behave alike (a few of each are still tried)."""
    return c % 61 and (unicodedata.category(chr(c)) in ("Cn", "Co") or 0x3400 <= c <= 0x9FFF or 0xAC00 <= c <= 0xD7A3 or 0x17000 <= c <= 0x18CFF
                       or 0x20000 <= c <= 0x2F7FF or 0xA000 <= c <= 0xA48C or 0x13000 <= c <= 0x16A38)


def lines():
    for c in range(0x110000):
        if 0xD800 <= c <= 0xDFFF or dull(c):
            continue
        yield "a" + chr(c) + "\u0334\u0301b" + chr(c) + "\u05b0x"


def main():
    exe = compare_fuzz.build_tool("build")
    every = list(lines())
    group = [" | ".join(every[i:i + 16]) for i in range(0, len(every), 16)]
    cases = {n: ("normalizer", getattr(N, n)()) for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer", "Strip")}
    cases.update({n: ("pre_tokenizer", getattr(P, n)()) for n in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts", "Punctuation", "Digits")})
    cases["Split \\p{L}"] = ("pre_tokenizer", P.Split(Regex(r"\p{L}+|\p{N}+|\p{M}+|\p{P}+|\s+"), "isolated"))
    failed = False
    for name, (part, obj) in cases.items():
        tok = probe()
        setattr(tok, part, obj)
        path = os.path.join(tempfile.mkdtemp(), "tokenizer.json")
        tok.save(path)
        want = tok.encode_batch(group)
        bad = []
        for s, e, g in zip(group, want, compare_fuzz.ours(exe, path, group, False)):
            if e.ids != g.get("ids"):
                parts = s.split(" | ")
                w = [tok.encode(x).ids for x in parts]
                o = [x["ids"] for x in compare_fuzz.ours(exe, path, parts, False)] if len(bad) < 200 else w
                bad += [hex(ord(x[1])) for x, a, b in zip(parts, w, o) if a != b] or ["?"]
        print("%-18s %d code points differ %s" % (name, len(bad), bad[:40]), flush=True)
        failed |= bool(bad)
    sys.exit(failed)


main()
