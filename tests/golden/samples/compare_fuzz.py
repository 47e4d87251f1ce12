#!/usr/bin/env python3
"""Random conversations through `megatrain tokenize --chat` and through the rule in make_goldens.py, on published tokenizers.

    python3 compare_fuzz.py PROGRAM FOLDER_OF_UNPACKED_TOKENIZERS [conversations [seed]]"""
import json
import pathlib
import random
import subprocess
import sys

import make_goldens as rule

PIECES = ["Hello", " world", "\n", "\n\n", " ", "  ", "\t", "42", ".", "?!", "é", "你好", "😀", "🚶\u200d♀️", "<think>", "\n</think>\n\n", "<|im_end|>", "</s>", "```py\n", "x = {1: 2}",
          "[INST]", "ő", "\u00a0", "\r\n", "'s", "don't", "—", "<", ">", "|", "im_end", "اهلا", "end_of_turn", "\\boxed{5}", "a" * 30, "#### 7"]


def text(rng, most):
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, most)))


def conversation(rng):
    out = [{"role": "system", "content": text(rng, 6)}] if rng.random() < 0.3 else []
    for _ in range(rng.randrange(1, 4)):
        out += [{"role": "user", "content": text(rng, 8)}, {"role": "assistant", "content": text(rng, 12)}]
    return out


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    n, seed = int(sys.argv[3]) if len(sys.argv) > 3 else 200, int(sys.argv[4]) if len(sys.argv) > 4 else 1
    for name, builtin in rule.ARCHIVES:
        rng, chat, bad = random.Random(seed), rule.archive_chat(folder, name), 0
        conversations = [conversation(rng) for _ in range(n)]
        command = [program, "tokenize", "--chat", *(["--template", builtin] if builtin else []), str(folder / name)]
        lines = "".join(json.dumps(c) + "\n" for c in conversations)
        done = subprocess.run(command, input=lines, capture_output=True, text=True)
        got = [json.loads(line) for line in done.stdout.splitlines()]
        for c in conversations:
            want = chat.samples(c)
            have = [{"ids": g["input_ids"], "labels": g["labels"]} for g in got[: len(want)]]
            got = got[len(want):]
            if want != have:
                bad += 1
                print(f"{name}: {json.dumps(c, ensure_ascii=False)}\n  want {want}\n  have {have}")
                break
        print(name, n, "conversations,", "the first that differs is shown" if bad else "no difference", done.stderr.strip())


if __name__ == "__main__":
    main()
