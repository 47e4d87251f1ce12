#!/usr/bin/env python3
"""Makes the demo's files; run it in this folder after changing it, and commit what it writes.

    demo_train.json, demo_test.json     requests and answers, alpaca format
    demo_model/tokenizer.json           the vocabulary those requests need

Eight tasks whose answers can be checked by eye.  What is tested is held out by value: a date, time, number or word that appears in
demo_test.json appears in no phrasing of any task in demo_train.json.  Nothing but the standard library, nothing random but the
seed below, so the files come out the same everywhere."""
import collections
import datetime
import json
import random
import re

SEED = 7
N_TRAIN = 640 * 32
N_TEST_PER_TASK = 88
# Shares of the training samples: what is harder to learn gets more of them.
SHARES = {"date": 2, "time": 3, "to_words": 3, "to_digits": 2, "roman": 3, "capitals": 4, "letters": 2, "reverse": 5}

MONTHS = "January February March April May June July August September October November December".split()
ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
        "nineteen").split()
TENS = ". . twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    return ONES[n // 100] + " hundred" + (" and " + in_words(n % 100) if n % 100 else "")


def in_roman(n):
    out = ""
    for value, letters in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        while n >= value:
            out, n = out + letters, n - value
    return out


# ---- values, and how a request may spell them ----

def spell_date(d):
    month = MONTHS[d.month - 1]
    return [f"{month} {d.day}, {d.year}", f"{d.day} {month} {d.year}"]


def spell_time(t):
    hour, minute = (t // 60 + 11) % 12 + 1, t % 60
    half = "am" if t < 720 else "pm"
    return [f"{hour}:{minute:02} {half}"]


def quoted(word):
    return [f'"{word}"']


# task: values, spellings, answer, requests.  "{}" is the value; a request with "|" has it in the input field.
def tasks():
    first = datetime.date(1900, 1, 1)
    dates = [first + datetime.timedelta(days=i) for i in range(200 * 365)]
    words = [w for line in open("demo_words.txt") for w in line.split()]
    numbers = list(range(1, 1000))
    digits = lambda n: [str(n)]
    return {
        "date": (dates, spell_date, lambda d: d.isoformat(), [
            "Write {} as an ISO date.", "Convert {} to ISO format.", "Please put the date {} in ISO form.", "Rewrite this date in ISO format.|{}"]),
        "time": (list(range(1440)), spell_time, lambda t: f"{t // 60:02}:{t % 60:02}", [
            "What is {} on a 24-hour clock?", "Convert {} to 24-hour time.", "My train leaves at {}. What is that in 24-hour time?",
            "Write this in 24-hour time.|{}"]),
        "to_words": (numbers, digits, in_words, [
            "Write {} in words.", "Spell out the number {}.", "How do you write {} in words?", "Write this number in words.|{}"]),
        "to_digits": (numbers, lambda n: [in_words(n)], str, [
            "Write {} in digits.", "What is {} in digits?", "Please write {} as a number.", "Write this number in digits.|{}"]),
        "roman": (numbers[:399], digits, in_roman, [
            "Write {} in Roman numerals.", "What is {} in Roman numerals?", "How did the Romans write {}?", "Convert this to Roman numerals.|{}"]),
        "capitals": (words, quoted, str.upper, [
            "Write {} in capital letters.", "Put {} in upper case.", "Please capitalize every letter of {}.", "Write this word in capitals.|{}"]),
        "letters": (words, quoted, lambda w: str(len(w)), [
            "How many letters are in {}?", "Count the letters in {}.", "How long is the word {}?", "Count the letters in this word.|{}"]),
        "reverse": (words, quoted, lambda w: w[::-1], [
            "Spell {} backwards.", "Reverse the word {}.", "What is {} spelled backwards?", "Reverse this word.|{}"]),
    }


def make_sample(rng, task, value):
    _, spell, answer, requests = task
    instruction, _, given = rng.choice(requests).partition("|")
    text = rng.choice(spell(value))
    if given:
        text = text.strip("\"'")
    return {"instruction": instruction if given else instruction.replace("{}", text), "input": given.replace("{}", text), "output": answer(value)}


def hold_out(rng, all_tasks):
    """Values that only the test may use, by kind; tasks of one kind share them."""
    dates, times, words = (all_tasks[t][0] for t in ("date", "time", "reverse"))
    small, large = rng.sample(range(21, 400), N_TEST_PER_TASK), rng.sample(range(400, 1000), N_TEST_PER_TASK)
    mixed = rng.sample(small + large, N_TEST_PER_TASK)
    tested_words = rng.sample(words, N_TEST_PER_TASK)
    tested = {"date": rng.sample(dates, N_TEST_PER_TASK), "time": rng.sample(times, N_TEST_PER_TASK), "to_words": mixed, "to_digits": mixed, "roman": small,
              "capitals": tested_words, "letters": tested_words, "reverse": tested_words}
    hidden = {name: set(values) for name, values in tested.items()}
    for name in ("to_words", "to_digits", "roman"):
        hidden[name] = set(small + large)
    return tested, hidden


def make_train(rng, all_tasks, hidden):
    total, out, seen = sum(SHARES.values()), [], set()
    for name, task in all_tasks.items():
        values = [v for v in task[0] if v not in hidden[name]]
        want, turn = N_TRAIN * SHARES[name] // total, 0
        if name == "reverse":  # takes what rounding leaves
            want = N_TRAIN - len(out)
        while want:
            if turn % len(values) == 0:
                rng.shuffle(values)
            for _ in range(4):  # a new one if there is one: numbers below 400 have few phrasings
                sample = make_sample(rng, task, values[turn % len(values)])
                if tuple(sample.values()) not in seen:
                    break
            seen.add(tuple(sample.values()))
            out.append(sample)
            turn, want = turn + 1, want - 1
    rng.shuffle(out)
    return out


def make_test(rng, all_tasks, tested):
    return [dict(make_sample(rng, all_tasks[name], v), task=name) for name in all_tasks for v in tested[name]]


def write(path, records):
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in records) + "\n]\n")


# ---- the tokenizer ----

SPLIT = r" ?[A-Za-z]+|[0-9]| ?[^A-Za-z0-9\s]|\s"  # words and signs with the space before them; digits alone


def byte_letters():
    """The 256 printable stand-ins of byte-level vocabularies, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) if b in plain else chr(256 + rest.index(b)) for b in range(256)}


def make_tokenizer(train, all_tasks):
    letters = byte_letters()
    spelled = lambda s: "".join(letters[b] for b in s.encode())
    counts = collections.Counter()
    for sample in train:
        counts.update(re.findall(SPLIT, f"{sample['instruction']}\n{sample['input']}"))
        counts.update(re.findall(SPLIT, sample["output"]))
    values = set(all_tasks["reverse"][0])
    values |= {w.upper() for w in values} | {w[::-1] for w in values} | {in_roman(n) for n in range(1, 400)}
    whole = {w for w, n in counts.items() if n >= 20 and len(w) > 1 and w.strip() not in values}
    whole |= {space + w for w in MONTHS + ONES + TENS[2:] for space in ("", " ")} | {"user", "assistant", "system"}
    vocab = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [letters[b] for b in sorted(letters)] + sorted(spelled(w) for w in whole)
    special = [{"id": i, "content": vocab[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(3)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        # Without merges a word is either a token of its own (ignore_merges) or single bytes.
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": True, "vocab": {t: i for i, t in enumerate(vocab)}, "merges": []},
    }


def main():
    rng = random.Random(SEED)
    all_tasks = tasks()
    tested, hidden = hold_out(rng, all_tasks)
    train, test = make_train(rng, all_tasks, hidden), make_test(rng, all_tasks, tested)
    write("demo_train.json", train)
    write("demo_test.json", test)
    with open("demo_model/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(make_tokenizer(train, all_tasks), f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
