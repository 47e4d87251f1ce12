#!/usr/bin/env python3
"""Expected ids and labels of conversations, by transformers: the goldens of tests/golden/test_samples.c.

    python3 make_goldens.py [folder of unpacked tokenizers]

Needs transformers 5.x and tokenizers 0.2x.  Writes fixtures/, tokenizer/ (a small byte-level BPE), datasets.jsonl, masks.jsonl and, given the
folder, archives.jsonl.

The rule, written down once more and independently of the C code.  `end` and `gap` are given by each case, not found out:
  answer k is learned as P + gap + answer + end, where P = apply_chat_template(messages before k, add_generation_prompt=True);
  if all of these are prefixes of apply_chat_template(messages), as text, and each P is one in ids, the conversation is one sample;
  otherwise each answer is a sample: the ids of the text if those of P are a prefix of them, else the ids of P and of the rest, one behind the other;
  one whose ids begin with all ids of the sample before it takes its place and keeps what that trains.
Templates with {% generation %} blocks are compared with transformers' own assistant mask."""
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import fixtures

HERE = pathlib.Path(__file__).parent
TEMPLATES = HERE.parent / "jinja" / "templates"
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "<|end|>",
           "[gMASK]", "<sop>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
           "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def template(name):
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def train_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    texts = [m["content"] for name in fixtures.DATASETS for i in range(10) for m in fixtures.messages_of(name, i)]
    texts += ["system\nuser\nassistant\nYou are a helpful assistant.\nUser: Assistant: \n"] * 4
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator(texts, trainer)
    folder = HERE / "tokenizer"
    folder.mkdir(exist_ok=True)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>")


class Chat:
    """One tokenizer with one template."""

    def __init__(self, tok, text, end, gap="", generation=False, **kwargs):
        self.tok, self.text, self.end, self.gap, self.generation, self.kwargs = tok, text, end, gap, generation, kwargs

    def render(self, messages, tools=None, prompt=False):
        return self.tok.apply_chat_template(messages, tools=tools, chat_template=self.text, add_generation_prompt=prompt, tokenize=False, **self.kwargs)

    def ids(self, text):
        return self.tok(text, add_special_tokens=False)["input_ids"]

    def samples(self, messages, tools=None, said=None, trained=None, history="unroll"):
        """said[k]: the trained text of answer k where it is not gap + content + end."""
        said = said or {}
        answers = [k for k, m in enumerate(messages) if m["role"] == "assistant" and (trained is None or k in trained)]
        if self.generation:
            return [self.by_mask(messages, tools)]
        whole = self.render(messages, tools)
        ids = self.tok.apply_chat_template(messages, tools=tools, chat_template=self.text, tokenize=True, **self.kwargs)["input_ids"]
        assert ids == self.ids(whole)
        prompts = {k: self.render(messages[:k], tools, True) for k in answers}
        truths = {k: prompts[k] + said.get(k, self.gap + (messages[k].get("content") or "") + self.end) for k in answers}
        nested = all(whole.startswith(truths[k]) for k in answers)
        nested = nested and all(ids[: len(self.ids(prompts[k]))] == self.ids(prompts[k]) for k in answers)
        if nested:
            labels = [-100] * len(ids)
            for k in answers:
                begin, end = len(self.ids(prompts[k])), len(self.ids(truths[k]))
                assert ids[:end] == self.ids(truths[k])
                labels[begin:end] = ids[begin:end]
            return [{"ids": ids, "labels": labels}]
        if history == "last":
            answers = answers[-1:]
        out = []
        for turn in (self.turn(prompts[k], truths[k]) for k in answers):
            before = out.pop() if out and turn["ids"][: len(out[-1]["ids"])] == out[-1]["ids"] else None
            if before:  # the same sample, with one more answer
                turn["labels"][: len(before["labels"])] = before["labels"]
            out.append(turn)
        return out

    def turn(self, prompt, truth):
        before, ids = self.ids(prompt), self.ids(truth)
        if ids[: len(before)] != before:
            ids = before + self.ids(truth[len(prompt):])
        return {"ids": ids, "labels": [-100] * len(before) + ids[len(before):]}

    def by_mask(self, messages, tools):
        out = self.tok.apply_chat_template(messages, tools=tools, chat_template=self.text, tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
                                           **self.kwargs)
        return {"ids": out["input_ids"], "labels": [t if m else -100 for t, m in zip(out["input_ids"], out["assistant_masks"])]}


def user(text):
    return {"role": "user", "content": text}


def bot(text, **more):
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "You are a careful clerk."}
TWO = [user("What is 17 + 25?"), bot("42."), user("Twice that?"), bot("84, of course.\nAsk me more.")]
THOUGHTS = [user("What is 17 + 25?"), bot("<think>\n7 + 5 is 12, carry one.\n</think>\n\n42."), user("Twice that?"), bot("<think>\n2 * 42\n</think>\n\n84.")]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters":
          {"type": "object", "properties": {"city": {"type": "string", "description": "its name"}}, "required": ["city"]}}}]
CALL = {"type": "function", "id": "abcde1234", "function": {"name": "weather", "arguments": {"city": "Łódź", "days": [1, 2]}}}
CALLS = [user("How is the weather in Łódź?"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "tool", "content": "7 degrees, rain", "tool_call_id": "abcde1234"}, bot("Cold and wet.")]


def case(name, chat, messages, *, tools=None, said=None, trained=None, config=None, samples=None, **extra):
    config = config or {}
    if samples is None:
        samples = chat.samples(messages, tools, said, trained, config.get("history", "unroll"))
    row = {"name": name, "template": chat.text, "messages": messages, "config": config, "samples": samples}
    if tools:
        row["tools"] = tools
    if chat.kwargs:
        row["kwargs"] = chat.kwargs
    row.update(extra)
    return row


def call_text(opening, call=CALL, closing="<|im_end|>"):
    return opening + json.dumps(call["function"]["arguments"], ensure_ascii=False) + closing


def everything(samples):
    return [{"ids": s["ids"], "labels": s["ids"]} for s in samples]


def cut(samples, n):
    return [{"ids": s["ids"][:n], "labels": s["labels"][:n]} for s in samples]


def mask_cases(tok):
    chatml = Chat(tok, template("chatml"), "<|im_end|>")
    qwen = Chat(tok, template("qwen25"), "<|im_end|>")
    qwen3 = Chat(tok, template("qwen3_thinking"), "<|im_end|>")
    nemo = Chat(tok, template("mistral_tools"), "</s>")
    r1 = Chat(tok, template("deepseek_r1"), "<｜end▁of▁sentence｜>")
    straddle = Chat(tok, "{% for m in messages %}{{ ('User: ' if m.role == 'user' else 'Assistant: ') ~ m.content ~ ('\\n' if m.role == 'user' else eos_token) }}"
                         "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}", "</s>")
    llama2 = Chat(tok, template("llama2"), " </s>", gap=" ")
    gemma = Chat(tok, template("gemma"), "<end_of_turn>")
    single = [user("What is the capital of Iceland?"), bot("Reykjavík.")]
    yield case("single turn", chatml, single)
    yield case("several turns", chatml, TWO)
    yield case("system", chatml, [SYSTEM] + TWO)
    yield case("empty answer", chatml, [user("Say nothing."), bot("")])
    yield case("answer that looks like the end", chatml, [user("What ends a turn?"), bot("im_end"), user("And?"), bot("|>\n")])
    yield case("white space around the answer", chatml, [user("Go"), bot("\n\n  on \n")])
    yield case("generation block", Chat(tok, template("chatml_generation"), "", generation=True), [SYSTEM] + TWO)
    yield case("generation block in a macro's company", Chat(tok, template("smol_generation_macro"), "", generation=True), TWO)
    opening = '<tool_call>\n{"name": "weather", "arguments": '
    yield case("tools", qwen, [SYSTEM] + CALLS, tools=TOOLS, said={2: call_text(opening, closing="}\n</tool_call><|im_end|>")})
    yield case("a call with words before it", qwen, [CALLS[0], bot("Let me look.", tool_calls=[CALL])] + CALLS[2:], tools=TOOLS,
               said={1: call_text("Let me look.\n" + opening, closing="}\n</tool_call><|im_end|>")})
    two_calls = [CALLS[0], {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}, CALLS[2], CALLS[2], CALLS[3]]
    yield case("two calls at once", qwen, two_calls, tools=TOOLS,
               said={1: call_text(opening, closing="}\n</tool_call>") + "\n" + call_text(opening, closing="}\n</tool_call><|im_end|>")})
    yield case("Qwen3, two turns", qwen3, TWO)
    yield case("Qwen3, two turns, the last only", qwen3, TWO, config={"history": "last"})
    yield case("Qwen3, one turn", qwen3, TWO[:2])
    yield case("Qwen3, two turns with thoughts", qwen3, THOUGHTS)
    yield case("Qwen3 without thinking", Chat(tok, template("qwen3_thinking"), "<|im_end|>", enable_thinking=False), TWO)
    yield case("Qwen3 with tools", qwen3, CALLS, said={1: call_text(opening, closing="}\n</tool_call><|im_end|>")})
    yield case("Mistral Nemo with a system prompt", nemo, [SYSTEM] + TWO)
    yield case("Mistral Nemo without", nemo, TWO)
    shown = json.dumps(CALL["function"], ensure_ascii=False)[:-1] + ', "id": "abcde1234"}]</s>'
    yield case("Mistral Nemo with tools", nemo, CALLS, tools=TOOLS, said={1: "[TOOL_CALLS][" + shown})
    yield case("R1 with thoughts", r1, THOUGHTS, said={k: THOUGHTS[k]["content"][len("<think>\n"):] + r1.end for k in (1, 3)})
    yield case("a token across prompt and answer", straddle, TWO)
    yield case("a token across prompt and answer, one turn", straddle, TWO[:2])
    yield case("a line break across prompt and answer", chatml, [user("Go"), bot("\nfurther")])
    yield case("white space by the template", llama2, [SYSTEM] + TWO)
    yield case("white space by the template, and the answer's", llama2, [user("Hi"), bot("Hello \n")])
    yield case("a template that trims", gemma, [user("Hi"), bot("Hello\n"), user("Bye"), bot("Bye")])
    yield case("a second token behind the end", Chat(tok, template("phi3"), "<|end|>"), TWO)
    glm4 = Chat(tok, template("glm4"), "<|user|>", gap="\n")
    yield case("the next turn is the end", glm4, TWO, samples=ended_by_next(glm4, TWO))
    yield from open_calls(tok)
    yield from channels(tok)
    trained = chatml.samples(TWO)
    yield case("mask_history", chatml, TWO, config={"mask_history": True}, trained=[3])
    yield case("mask_history where turns do not nest", qwen3, THOUGHTS, config={"mask_history": True}, trained=[3])
    yield case("train_on_prompt", chatml, TWO, config={"train_on_prompt": True}, samples=everything(trained))
    marked = [TWO[0], bot("42.", train=False), TWO[2], TWO[3]]
    yield case("an answer's own train", chatml, marked, samples=chatml.samples(TWO, trained=[3]))
    weighed = [TWO[0], bot("42.", weight=1), TWO[2], bot(TWO[3]["content"], weight=0)]
    yield case("an answer's own weight", chatml, weighed, samples=chatml.samples(TWO, trained=[1]))
    n = len(trained[0]["ids"])
    yield case("cut within an answer", chatml, TWO, config={"max_seq_len": n - 4}, samples=cut(trained, n - 4), truncated=1, answers_cut=1)
    yield case("cut behind the end", chatml, TWO, config={"max_seq_len": n - 1}, samples=cut(trained, n - 1), truncated=1, answers_cut=0)
    yield case("cut within the first prompt", chatml, TWO, config={"max_seq_len": 5}, samples=[], reason="no answer token left within max_seq_len")
    yield case("skipped", chatml, TWO, config={"max_seq_len": n - 4, "overlong": "skip"}, samples=[], reason="longer than max_seq_len")
    half = (n + 1) // 2
    yield case("split", chatml, TWO, config={"max_seq_len": half, "overlong": "split"}, samples=[{"ids": trained[0]["ids"][a:a + half], "labels":
               trained[0]["labels"][a:a + half]} for a in (0, half)])


def open_calls(tok):
    """Templates that do not end a turn of calls, or only one of several (as DeepSeek V3's)."""
    forgets = Chat(tok, "{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' ~ m.content }}{% elif m.role == 'tool' %}{{ '[' ~ m.content ~ ']' }}"
                        "{% elif m.tool_calls %}{{ '<｜Assistant｜>' }}{% for c in m.tool_calls %}{{ '{' ~ c.function.name ~ c.function.arguments|tojson ~ '}' }}"
                        "{% if not loop.first %}{{ '(done)<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
                        "{% else %}{{ ('' if messages[loop.index0 - 1].role == 'tool' else '<｜Assistant｜>') ~ m.content ~ '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
                        "{% if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<｜Assistant｜>' }}{% endif %}", "<｜end▁of▁sentence｜>")
    one, done = "{weather" + json.dumps(CALL["function"]["arguments"], ensure_ascii=False) + "}", "(done)<｜end▁of▁sentence｜>"
    two = [CALLS[0], {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}, CALLS[2], CALLS[2], CALLS[3]]
    yield case("one call that the template leaves open", forgets, CALLS, said={1: one + done})
    yield case("two calls that it ends", forgets, two, said={1: one + one + done})
    last = forgets.render(CALLS[:1], prompt=True) + one + done
    yield case("a call that is left open at the end", forgets, CALLS[:2], samples=[forgets.turn(forgets.render(CALLS[:1], prompt=True), last)])
    glm4 = Chat(tok, "{% for m in messages %}{{ '<|' ~ ('observation' if m.role == 'tool' else m.role) ~ '|>' }}{% for c in m.tool_calls or [] %}"
                     "{{ c.function.name ~ '\n' ~ c.function.arguments|tojson }}{% else %}{{ '\n' ~ m.content }}{% endfor %}{% endfor %}"
                     "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}", "<|user|>", gap="\n")
    call = "weather\n" + json.dumps(CALL["function"]["arguments"], ensure_ascii=False) + "<|observation|>"
    yield case("calls whose end is the next header", glm4, CALLS, samples=ended_by_next(glm4, CALLS, {1: call}))
    yield case("such a call at the end", glm4, CALLS[:2], samples=ended_by_next(glm4, CALLS[:2], {1: call}, "<|observation|>"))


def channels(tok):
    """GPT-OSS: the channel's header is learned with the answer, a thought in a channel of its own before it; only the last turn shows its thought."""
    harmony = Chat(tok, template("harmony").replace("strftime_now('%Y-%m-%d')", "'2025-08-05'"), "<|return|>")
    answer = lambda m, end: ("<|channel|>analysis<|message|>" + m["thinking"] + "<|end|><|start|>assistant" if "thinking" in m else "") + "<|channel|>final<|message|>" + m["content"] + end
    thinking = [TWO[0], bot("42.", thinking="7 + 5 is 12, carry one."), TWO[2], bot("84.", thinking="2 * 42")]
    yield case("channels, one turn", harmony, TWO[:2], said={1: answer(TWO[1], "<|return|>")})
    yield case("channels, one turn with a thought", harmony, thinking[:2], said={1: answer(thinking[1], "<|return|>")})
    yield case("channels, two turns with thoughts", harmony, [SYSTEM] + thinking, said={2: answer(thinking[1], "<|return|>"), 4: answer(thinking[3], "<|return|>")})
    llama4 = Chat(tok, template("llama4"), "<|eot|>")
    yield case("Llama 4", llama4, [SYSTEM] + TWO)


def ended_by_next(chat, messages, said=None, last=None):
    """The last turn gets the token that ends the others."""
    whole = chat.render(messages) + (last or chat.end)
    ids = chat.ids(whole)
    labels = [-100] * len(ids)
    for k in (1, 3):
        if k >= len(messages):
            continue
        prompt = chat.render(messages[:k], prompt=True)
        truth = prompt + ((said or {}).get(k) or chat.gap + messages[k]["content"] + chat.end)
        assert whole.startswith(truth)
        begin, end = len(chat.ids(prompt)), len(chat.ids(truth))
        labels[begin:end] = ids[begin:end]
    return [{"ids": ids, "labels": labels}]


ARCHIVES = (("qwen2_5", ""), ("mistral_nemo", ""), ("deepseek_v3", ""), ("gemma2", "gemma"), ("llama2", "llama2"))


def archive_chat(folder, name):
    """A published tokenizer with its template, or with one of the built-in ones, written once more."""
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(folder / name)
    if name == "llama2":  # transformers 5 builds its own pre-tokenizer for LlamaTokenizer; the file's is the reference (see ../tokenizer)
        tok = PreTrainedTokenizerFast(tokenizer_file=str(folder / name / "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    if name == "gemma2":
        return Chat(tok, "{{ bos_token }}{% set s = messages[0].content ~ '\n\n' if messages[0].role == 'system' else '' %}"
                         "{% for m in messages if m.role != 'system' %}{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\n' ~ "
                         "(s if loop.first) ~ m.content ~ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
                    "<end_of_turn>")
    if name == "llama2":
        return Chat(tok, "{% set s = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' if messages[0].role == 'system' else '' %}"
                         "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}{{ '<s>[INST] ' ~ (s if loop.first) ~ m.content ~ ' [/INST]' }}"
                         "{% else %}{{ ' ' ~ m.content ~ ' </s>' }}{% endif %}{% endfor %}", " </s>", " ")
    return Chat(tok, None, {"qwen2_5": "<|im_end|>", "mistral_nemo": "</s>", "deepseek_v3": "<｜end▁of▁sentence｜>"}[name])


def archive_cases(folder):
    long = [SYSTEM] + [m for i in range(4) for m in (user(fixtures.QA[i][0]), bot(fixtures.QA[i][1]))]
    for name, builtin in ARCHIVES:
        chat = archive_chat(folder, name)
        for title, messages in (("two turns", TWO), ("system", [SYSTEM] + TWO), ("thoughts", THOUGHTS), ("long", long)):
            row = case(f"{name}: {title}", chat, messages)
            del row["template"]
            yield {"tokenizer": name, **row, "config": {"template": builtin} if builtin else {}}
        row = case(f"{name}: line break", chat, [user("Go"), bot("\n\n\tfurther")] + TWO)
        del row["template"]
        yield {"tokenizer": name, **row, "config": {"template": builtin} if builtin else {}}
        if name == "deepseek_v3":
            yield from deepseek_calls(chat)
        if name in ("qwen2_5", "mistral_nemo"):
            opening = '<tool_call>\n{"name": "weather", "arguments": '
            shown = json.dumps(CALL["function"], ensure_ascii=False)[:-1] + ', "id": "abcde1234"}]</s>'
            said = {1: call_text(opening, closing="}\n</tool_call><|im_end|>") if name == "qwen2_5" else "[TOOL_CALLS][" + shown}
            row = case(f"{name}: tools", chat, CALLS, tools=TOOLS, said=said)
            del row["template"]
            yield {"tokenizer": name, **row}


def deepseek_calls(chat):
    """Its template ends two calls and forgets to end one."""
    text = dict(CALL, function=dict(CALL["function"], arguments=json.dumps(CALL["function"]["arguments"], ensure_ascii=False)))
    call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + text["function"]["arguments"] + "\n```<｜tool▁call▁end｜>"
    end = "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
    for title, n, said in (("one call", 1, call), ("two calls", 2, call + "\n" + call)):
        messages = [CALLS[0], {"role": "assistant", "content": None, "tool_calls": [text] * n}] + [CALLS[2]] * n + [CALLS[3]]
        row = case(f"deepseek_v3: {title}", chat, messages, said={1: "<｜tool▁calls▁begin｜>" + said + end})
        del row["template"]
        yield {"tokenizer": "deepseek_v3", **row}


def dataset_rows(tok):
    chatml = Chat(tok, template("chatml"), "<|im_end|>")
    for name in fixtures.DATASETS_AND_OTHERS:
        for i in range(10):
            yield {"dataset": name, "row": i + 1, "samples": chatml.samples(fixtures.messages_of(name, i))}


def write(name, rows):
    rows = list(rows)
    with open(HERE / name, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(name, len(rows))


def main():
    (HERE / "fixtures").mkdir(exist_ok=True)
    fixtures.write(HERE / "fixtures")
    tok = train_tokenizer()
    write("datasets.jsonl", dataset_rows(tok))
    write("masks.jsonl", mask_cases(tok))
    if len(sys.argv) > 1:
        write("archives.jsonl", archive_cases(pathlib.Path(sys.argv[1])))


if __name__ == "__main__":
    main()
