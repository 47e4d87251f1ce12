"""Compares ids, decoded text and token ranges with the Rust `tokenizers` package on random varied text.

    python tests/golden/tokenizer/compare_fuzz.py [-n 20000] [--seed 1] TOKENIZER.json|DIR ...

Needs the Python package `tokenizers` and a built build/libmt.a."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import texts

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")


def build_tool(build):
    exe = os.path.join(tempfile.mkdtemp(), "json_lines")
    libs = subprocess.check_output(["pkg-config", "--cflags", "--libs", "oniguruma", "libutf8proc"], text=True).split()
    subprocess.check_call(["cc", "-O2", "-std=gnu17", "-I" + os.path.join(ROOT, "src"), os.path.join(HERE, "json_lines.c"),
                           os.path.join(ROOT, build, "libmt.a"), "-o", exe, *libs, "-lm", "-lpthread"])
    return exe


def ours(exe, path, lines, special):
    data = "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in lines).encode()
    out = subprocess.run([exe, path] + (["special"] if special else []), input=data, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(x) for x in out.decode().split("\n")[:-1]]


def whole_chars(text):
    """For every byte of text, the characters' bounds [start, end) around it."""
    lo, hi = [], []
    for ch in text:
        n = len(ch.encode())
        at = len(lo)
        lo += [at] * n
        hi += [at + n] * n
    return lo, hi


def range_differs(text, enc, got):
    """The reference counts characters and may trim white space; ours must contain its range, whole characters taken."""
    lo, hi = whole_chars(text)
    starts = [0]
    for ch in text:
        starts.append(starts[-1] + len(ch.encode()))
    for (a, b), (x, y) in zip(enc.offsets, got):
        a, b = starts[a], starts[b]
        if a == b or x == y:
            continue
        if lo[x] > a or hi[y - 1] < b:
            return True
    return False


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--build", default="build")
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--no-ranges", action="store_true", help="where the reference's own offsets are off (byte fallback with affixes)")
    p.add_argument("paths", nargs="+")
    args = p.parse_args()
    exe = build_tool(args.build)
    lines = texts.lines(args.n, args.seed)
    failed = False
    for path in args.paths:
        file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        ref = Tokenizer.from_file(file)
        bad_ids = bad_text = bad_ranges = 0
        for special in (True, False):
            want = ref.encode_batch(lines, add_special_tokens=special)
            for s, e, g in zip(lines, want, ours(exe, path, lines, special)):
                if e.ids != g.get("ids"):
                    bad_ids += 1
                    if bad_ids <= args.show:
                        print("IDS", json.dumps(s), "\n  want", e.ids, "\n  got ", g.get("ids", g), [ref.id_to_token(i) for i in e.ids])
                    continue
                for key, skip in (("text", False), ("skipped", True)):
                    t = ref.decode(e.ids, skip_special_tokens=skip)
                    if t != g[key]:
                        bad_text += 1
                        if bad_text <= args.show:
                            print("TEXT", json.dumps(s), "\n  want", json.dumps(t), "\n  got ", json.dumps(g[key]))
                if not args.no_ranges and range_differs(s, e, g["ranges"]):
                    bad_ranges += 1
                    if bad_ranges <= args.show:
                        print("RANGE", json.dumps(s), e.offsets, g["ranges"])
        print("%s: %d lines, with and without special tokens: %d ids, %d texts, %d ranges differ" % (path, len(lines), bad_ids, bad_text, bad_ranges))
        failed |= bad_ids + bad_text > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
