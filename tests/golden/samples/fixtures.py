"""Ten records in the layout of each published dataset, with texts of our own, and the registry that describes them."""
import json

# question, answer, thought; with code, other scripts, emoji, tables, leading and trailing white space
QA = [
    ("A crate holds 12 jars and each jar holds 30 marbles. How many marbles are in 4 crates?",
     "One crate holds 12 * 30 = 360 marbles.\nFour crates hold 4 * 360 = 1440 marbles.\n#### 1440\nThe answer is: 1440",
     "12 jars of 30 are 360. Times 4 gives 1440."),
    ("Write a function that says whether a word reads the same backwards.",
     "```python\ndef is_palindrome(word: str) -> bool:\n    letters = [c for c in word.lower() if c.isalnum()]\n    return letters == letters[::-1]\n```\n",
     "Compare the letters with their reverse,\nignoring case and punctuation."),
    ("What is the capital of Iceland?", "Reykjavík.", "Iceland... its capital is Reykjavík."),
    ("Translate \"good morning\" into Japanese, Greek and Arabic.", "おはようございます, καλημέρα and صباح الخير.",
     "Three languages, one short greeting each."),
    ("Solve 3x + 7 = 22 for x.", "Subtract 7: $3x = 15$.\nDivide by 3: $x = 5$.\n\n$\\boxed{5}$", "22 - 7 = 15, and 15 / 3 = 5."),
    ("Give me a haiku about rain.", "Grey clouds lean closer;\nthe gutter hums an old tune\nto nobody's feet.", "5, 7, 5 syllables."),
    ("List the files of a folder by size in a shell.", "Use `ls -lS`:\n\n| flag | meaning |\n| --- | --- |\n| `-l` | one line each |\n| `-S` | by size |",
     "ls has -S for that."),
    ("Is 91 a prime number?", "No: 91 = 7 * 13.", "Try 2, 3, 5, 7: 7 * 13 = 91."),
    ("How do I feel better after a long day? 😅", "Sleep, water, a short walk 🚶‍♀️ - and no screens for an hour.", "They are tired. Be kind and brief."),
    ("Why is the sky blue?", "  Air scatters short waves more than long ones (Rayleigh scattering), so blue light reaches us from everywhere.",
     "Rayleigh scattering goes with the fourth power of the frequency."),
]
MORE = [("And why?", "Because it follows from what was said before."), ("Shorter, please.", "Yes."), ("Thank you!", "You are welcome.")]
INPUTS = ["", "Answer in one sentence.", "", "Use plain words.\nNo jargon.", "", "", "x is an integer.", "", "", ""]


def turns(i):
    """Question i, and up to three more exchanges."""
    out = [QA[i][:2]]
    return out + MORE[: i % 4]


def chat(i, user, assistant, role, content):
    return [{role: who, content: text} for q, a in turns(i) for who, text in ((user, q), (assistant, a))]


def thinking(i):
    q, a, thought = QA[i]
    return [{"role": "user", "content": q}, {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n\n{a.strip()}"}]


ROLES = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}

DATASETS = {
    "metamathqa": ({"columns": {"prompt": "query", "response": "response"}},
                   lambda i: {"type": "GSM_Rephrased", "query": QA[i][0], "original_question": QA[i][0], "response": QA[i][1]}),
    "open_platypus": ({}, lambda i: {"input": "", "output": QA[i][1], "instruction": QA[i][0], "data_source": "invented"}),
    "mathinstruct": ({"columns": {"prompt": "instruction", "response": "output"}},
                     lambda i: {"source": "data/CoT/invented.json", "output": QA[i][1], "instruction": QA[i][0]}),
    "codealpaca": ({"columns": {"prompt": "instruction", "query": "input", "response": "output"}},
                   lambda i: {"output": QA[i][1], "instruction": QA[i][0], "input": INPUTS[i]}),
    "alpaca": ({}, lambda i: {"instruction": QA[i][0], "input": INPUTS[i], "output": QA[i][1]}),
    "sharegpt4": ({"formatting": "sharegpt"}, lambda i: {"conversations": chat(i, "human", "gpt", "from", "value")}),
    "ultrachat_200k": ({"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": ROLES, "split": "train_sft"},
                       lambda i: {"prompt": QA[i][0], "prompt_id": f"{i:064x}", "messages": chat(i, "user", "assistant", "role", "content")}),
    "openthoughts_114k": ({"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": ROLES},
                          lambda i: {"messages": [{"role": "system", "content": "Think before you answer."}] * (i % 2) + thinking(i)}),
    "openr1_math_94k": ({"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": ROLES},
                        lambda i: {"source": "invented", "uuid": f"{i:08x}", "messages": thinking(i)}),
}

# More layouts of data/dataset_info.json.  The small tokenizer was trained on the nine above alone, so that it stays as it is.
OTHERS = {
    "gsm8k": ({"columns": {"prompt": "question", "response": "answer"}}, lambda i: {"question": QA[i][0], "answer": QA[i][1]}),
    "dolly_15k": ({"columns": {"prompt": "instruction", "query": "context", "response": "response"}},
                  lambda i: {"instruction": QA[i][0], "context": INPUTS[i], "response": QA[i][1], "category": "open_qa"}),
    "openorca": ({"columns": {"prompt": "question", "response": "response", "system": "system_prompt"}},
                 lambda i: {"id": f"flan.{i}", "system_prompt": "Think before you answer." * (i % 2), "question": QA[i][0], "response": QA[i][1]}),
    "openhermes": ({"formatting": "sharegpt", "columns": {"messages": "conversations"}},
                   lambda i: {"custom_instruction": None, "language": None, "conversations":
                              [{"from": "system", "value": "Be brief.", "weight": None}] * (i % 2) + chat(i, "human", "gpt", "from", "value")}),
    "tulu3": ({"formatting": "openai", "columns": {"messages": "messages"}},
              lambda i: {"id": f"invented_{i}", "messages": chat(i, "user", "assistant", "role", "content"), "source": "invented"}),
}
DATASETS_AND_OTHERS = {**DATASETS, **OTHERS}


def write(folder):
    """NAME.json (arrays) or NAME.jsonl, and dataset_info.json."""
    info = {}
    for n, (name, (entry, record)) in enumerate(DATASETS_AND_OTHERS.items()):
        file = f"{name}.{'json' if n % 2 == 0 else 'jsonl'}"
        rows = [json.dumps(record(i), ensure_ascii=False) for i in range(10)]
        text = "[\n" + ",\n".join(rows) + "\n]\n" if n % 2 == 0 else "\n".join(rows) + "\n"
        (folder / file).write_text(text, encoding="utf-8")
        info[name] = {"file_name": file, **entry}
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def messages_of(name, i):
    """What a record means, read off by hand: role and content."""
    record = DATASETS_AND_OTHERS[name][1](i)
    if "conversations" in record:
        return [{"role": {"human": "user", "gpt": "assistant", "system": "system"}[m["from"]], "content": m["value"]} for m in record["conversations"]]
    if "messages" in record:
        return record["messages"]
    prompt, more = record.get("query") or record.get("question") or record["instruction"], record.get("input") or record.get("context")
    if more:
        prompt += "\n" + more
    system = [{"role": "system", "content": record["system_prompt"]}] if record.get("system_prompt") else []
    return system + [{"role": "user", "content": prompt}, {"role": "assistant", "content": record.get("response") or record.get("answer") or record["output"]}]
