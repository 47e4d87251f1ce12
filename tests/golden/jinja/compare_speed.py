#!/usr/bin/env python3
"""Renders a second, jinja2 against us, for a few templates: the table in docs/notebook.

    cc -O2 -std=c17 -D_DEFAULT_SOURCE -Isrc tests/golden/jinja/render_main.c build/libmt.a -lutf8proc -lm -lpthread -o render_main
    python3 tests/golden/jinja/compare_speed.py ./render_main"""
import json
import subprocess
import sys
import time

import make_goldens

CASES = [("chatml", "many turns"), ("llama31_tools", "tools"), ("qwen3_thinking", "many turns"), ("mistral_tools", "tools"), ("hermes_tools", "tools")]


def best_of(count, seconds_of):
    return min(seconds_of() for _ in range(count))


def main():
    conversations = json.loads((make_goldens.HERE / "conversations.json").read_text(encoding="utf-8"))
    print("| template | conversation | jinja2 | megatrain | ratio |\n|---|---|---|---|---|")
    for name, case in CASES:
        text = (make_goldens.HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        context = {**make_goldens.SPECIALS, "tools": None, "documents": None, **conversations[case], "add_generation_prompt": False}
        line = json.dumps({"template": text, "context": context}, ensure_ascii=False) + "\n"
        compiled = make_goldens.compile_template(text)

        def ours():
            return float(subprocess.run([sys.argv[1], "20000"], input=line, capture_output=True, text=True, check=True).stdout) / 20000

        def theirs():
            start = time.perf_counter()
            for _ in range(1000):
                compiled.render(**context)
            return (time.perf_counter() - start) / 1000

        a, b = 1 / best_of(5, theirs), 1 / best_of(5, ours)
        print(f"| {name} | {case} | {a:,.0f} | {b:,.0f} | {b / a:.0f}x |")


if __name__ == "__main__":
    main()
