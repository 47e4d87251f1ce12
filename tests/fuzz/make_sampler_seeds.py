#!/usr/bin/env python3
"""Writes corpus/sampler: conversations of the sample goldens with small templates, the layouts' odd records, each setting once.

The form is fuzz_sampler.c's: four bytes of settings (layout, max_seq_len, built-in template, flags), a template or nothing, a NUL byte, records."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
OUT = HERE / "corpus" / "sampler"
ALPACA, SHAREGPT, OPENAI, DIRECT, TEXT = range(5)
ON_PROMPT, MASK_HISTORY, MERGE, LAST, TRUNCATE, SPLIT, SKIP, AS_IS, KEEP = 1, 2, 4, 8, 16, 32, 48, 64, 128


def seed(name, records, layout=OPENAI, longest=0, built_in=0, flags=KEEP, template=""):
    rows = "\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in records)
    (OUT / name).write_bytes(bytes([layout, longest, built_in, flags]) + template.encode() + b"\0" + rows.encode())


def turns(*texts):
    return [{"role": "assistant" if i % 2 else "user", "content": t} for i, t in enumerate(texts)]


two = {"messages": turns("Hi", "Hello.", "Bye", "Bye!")}
system = {"messages": [{"role": "system", "content": "Be brief."}] + two["messages"]}
call = {"type": "function", "id": "abcde1234", "function": {"name": "f", "arguments": {"x": [1, None]}}}
calls = {"messages": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "content": "7", "tool_call_id": "abcde1234"}, {"role": "assistant", "content": "7."}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
thoughts = {"messages": turns("Why?", "<think>\nso\n</think>\n\nSo.", "And?", "<think>\n\n</think>\n\nNo.")}
parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "assistant", "content": ["c", "d"], "train": False},
                      {"role": "user", "content": "?"}, {"role": "assistant", "content": "", "weight": 1}, {"role": "user", "content": "left over"}]}

OUT.mkdir(parents=True, exist_ok=True)
for old in OUT.glob("seed_*"):
    old.unlink()
for i in range(14):
    seed(f"seed_built_in_{i:02}", [two, system, thoughts], built_in=i)
for bit, name in ((ON_PROMPT, "on_prompt"), (MASK_HISTORY, "mask_history"), (LAST, "last"), (AS_IS, "as_is")):
    seed(f"seed_{name}", [two, parts], flags=bit)
for bit, name in ((TRUNCATE, "truncate"), (SPLIT, "split"), (SKIP, "skip")):
    seed(f"seed_{name}", [two, system], longest=20, flags=bit)
seed("seed_merge", [{"messages": turns("a", "b") + turns("c", "d")[1:] + turns("e", "f")}], flags=MERGE)
seed("seed_alpaca", [{"instruction": "a", "input": "b", "output": "c", "system": "s", "history": [["q", "r"]]}, {"instruction": "a", "input": "", "output": None}], layout=ALPACA)
seed("seed_sharegpt", [{"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": json.dumps(call["function"])},
                                          {"from": "observation", "value": "o"}, {"from": "gpt", "value": "a"}], "tools": "[]"}], layout=SHAREGPT)
seed("seed_direct", [{"q": "a", "a": "b"}, {"q": "a"}, {"q": 1, "a": []}], layout=DIRECT)
seed("seed_text", [{"text": "A document."}, {"text": ""}, {"text": None}], layout=TEXT, longest=3)
loop = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
seed("seed_template", [two, system, thoughts, parts], template=loop)
seed("seed_generation", [two, calls], template=loop.replace("{{ m.content }}<|im_end|>", "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"))
seed("seed_thoughts", [thoughts, two], template=loop.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] if not loop.last else m.content }}")
     .replace("assistant\n{% e", "assistant\n<think>\n{% e"))
seed("seed_moves_system", [system], template="{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.last %}{{ messages[0].content }}{% endif %}{{ m.content }}[/INST]"
     "{% elif m.role == 'assistant' %} {{ m.content|trim }}</s>{% endif %}{% endfor %}")
seed("seed_calls", [calls], template=loop.replace("{{ m.content }}", "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<call>{{ c|tojson }}</call>{% endfor %}") + "{{ tools }}")
seed("seed_open_calls", [calls], template="{% for m in messages %}<|{{ 'observation' if m.role == 'tool' else m.role }}|>{{ m.content or '' }}"
     "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments|tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
seed("seed_no_end", [two], template="{% for m in messages %}{{ m.content }}{% endfor %}")
print(len(list(OUT.iterdir())), "files")
