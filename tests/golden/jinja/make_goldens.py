#!/usr/bin/env python3
"""Record what transformers (jinja2) makes of the templates here: the goldens of tests/golden/test_jinja.c.

    python3 make_goldens.py [folder of unpacked tokenizers]

Needs jinja2 3.1.6 and transformers 5.x.  Writes snippets.jsonl, chats.jsonl and, given the folder, archives.jsonl."""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils as ctu

import snippets

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


def compile_template(text):
    compiled = ctu._cached_compile_jinja_template(text)
    compiled.environment.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return compiled


def render(text, context):
    """(output, spans of generation blocks in characters); raises whatever jinja2 does."""
    compiled = compile_template(text)
    blocks, spans = [], []
    with compiled.environment.activate_tracker(blocks, spans):
        for block in compiled.generate(**context):
            blocks.append(block)
    out = "".join(blocks)
    out.encode("utf-8")
    return out, [list(s) for s in spans]


def outcome(text, context):
    try:
        out, spans = render(text, context)
    except Exception as e:  # any failure counts: only that it fails is compared
        return {"error": f"{type(e).__name__}: {e}"[:200]}
    return {"out": out, "spans": spans} if spans else {"out": out}


def write(name, rows):
    with open(HERE / name, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(name, len(rows))


def chat_rows(key, name, text, extra=None):
    cases = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    for case, context in cases.items():
        for prompt in (False, True):
            full = {**(extra or {}), "tools": None, "documents": None, **context, "add_generation_prompt": prompt}
            yield {key: name, "case": case, "add_generation_prompt": prompt, **outcome(text, full)}


SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def special_tokens(config):
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    text = lambda v: v["content"] if isinstance(v, dict) else v
    return {n: text(config[n]) for n in names if config.get(n) is not None}


def main():
    write("snippets.jsonl", [{"template": t, **outcome(t, snippets.CONTEXT)} for t in snippets.all_templates()])
    (HERE / "context.json").write_text(json.dumps(snippets.CONTEXT, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        rows += chat_rows("template", path.name, path.read_text(encoding="utf-8"), SPECIALS)
    write("chats.jsonl", rows)
    if len(sys.argv) > 1:
        rows = []
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*/tokenizer_config.json")):
            config = json.loads(path.read_text(encoding="utf-8"))
            template = config.get("chat_template")
            named = template if isinstance(template, list) else [{"name": "default", "template": template}]
            for t in named:
                if t["template"]:
                    for row in chat_rows("archive", path.parent.name, t["template"], special_tokens(config)):
                        rows.append({"name": t["name"], **row})
        write("archives.jsonl", rows)


if __name__ == "__main__":
    main()
