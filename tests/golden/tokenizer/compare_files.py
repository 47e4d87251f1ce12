"""Compares tokenizer.model files with the libraries that write them, on random varied text.

    python tests/golden/tokenizer/compare_files.py [-n 20000] TEXTS [TOKENIZER.json ...]

TEXTS is any text file: SentencePiece models with several settings are trained on it.  A byte-level tokenizer.json is
turned into tiktoken's form and compared with tiktoken.  Needs sentencepiece, tiktoken and a built build/libmt.a."""
import argparse
import base64
import io
import json
import os
import tempfile

import sentencepiece as spm
import tiktoken

import compare_fuzz
import texts

PATTERN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def check(exe, name, path, lines, encode, decode):
    bad_ids = bad_text = 0
    for s, g in zip(lines, compare_fuzz.ours(exe, path, lines, False)):
        want = encode(s)
        if want != g.get("ids"):
            bad_ids += 1
            if bad_ids <= 3:
                print("IDS", json.dumps(s), "\n  want", want, "\n  got ", g)
        elif decode(want) != g["text"]:
            bad_text += 1
            if bad_text <= 3:
                print("TEXT", json.dumps(s), "\n  want", json.dumps(decode(want)), "\n  got ", json.dumps(g["text"]))
    print("%s: %d lines, %d ids and %d texts differ" % (name, len(lines), bad_ids, bad_text), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=20000)
    p.add_argument("texts")
    p.add_argument("tokenizers", nargs="*")
    args = p.parse_args()
    exe = compare_fuzz.build_tool("build")
    lines = [s for s in texts.lines(args.n, 5) if "\0" not in s]
    folder = tempfile.mkdtemp()
    corpus = [s for s in open(args.texts, encoding="utf-8", errors="ignore").read().replace("\0", "\n").split("\n") if s.strip()][:20000]
    corpus += [s.replace("\n", " ") for s in lines[:2000] if s.strip()]
    for kind in ("bpe", "unigram"):
        for rule in ("nmt_nfkc", "identity"):
            for more in ({"byte_fallback": True}, {"user_defined_symbols": ["<mask>", "ing", " the "]}, {"add_dummy_prefix": False, "remove_extra_whitespaces": False}):
                out = io.BytesIO()
                spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=out, model_type=kind, vocab_size=4000, normalization_rule_name=rule,
                                               character_coverage=0.99, minloglevel=2, hard_vocab_limit=False, **more)
                path = os.path.join(folder, "m.model")
                open(path, "wb").write(out.getvalue())
                sp = spm.SentencePieceProcessor(model_proto=out.getvalue())
                check(exe, "%s %s %s" % (kind, rule, more), path, lines, sp.encode, sp.decode)
    alphabet = {c: b for b, c in byte_chars().items()}
    for file in args.tokenizers:
        ranks = {}
        for token, i in json.load(open(file))["model"]["vocab"].items():
            if all(c in alphabet for c in token):
                ranks[bytes(alphabet[c] for c in token)] = i
        order = sorted(ranks, key=ranks.get)
        ranks = {t: i for i, t in enumerate(order)}
        path = os.path.join(folder, "t.model")
        with open(path, "w") as f:
            f.writelines(base64.b64encode(t).decode() + " %d\n" % i for t, i in ranks.items())
        enc = tiktoken.Encoding("x", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
        check(exe, "tiktoken form of " + file, path, lines, enc.encode_ordinary, enc.decode)


def byte_chars():
    plain = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


main()
