"""Writes the tokenizer goldens beside this file.  Needs the Python packages tokenizers, sentencepiece and tiktoken.

    python tests/golden/tokenizer/make_goldens.py small           models/*.json and small.jsonl
    python tests/golden/tokenizer/make_goldens.py files           files/*: SentencePiece and tiktoken models, files.jsonl
    python tests/golden/tokenizer/make_goldens.py archives DIR    archives/NAME.jsonl for each DIR/NAME/tokenizer.json
"""
import base64
import glob
import io
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models as M, normalizers as N, pre_tokenizers as P, processors as R, trainers

import texts

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["", " ", "Hello, world! Don't stop.", "  two  spaces \t tab\nnew\r\nline  ", "ÀÉÎõü ﬁ Å ẛ̣ e\u0301\u0323", "İI ẞß ΑΣ ǅ", "日本語テスト カタカナ한국어ㅎ\u1112\u1161", "مُحَمَّد שָׁלוֹם नमस्ते สวัสดี",
         "👨‍👩‍👧‍👦 🇩🇪🏽 1️⃣ ☎️", "abc123 4५६ ½ Ⅷ ①", "a.b,c!d?e—f“g”…$+<=>^`|~", "x\x00y\x07z\x7f\u0085\u200b\u200d\ufeff\ufffd\u2028", "[CLS] hi<s>there </s> <mask>now[SEP]", "foo-bar-baz--qux", "the the theory of token tokens tokenizers",
         "\u0344\u0958\u2126\uf900\U0001d15e\u1e9b", "▁already▁marked ▁x", "hello </w> ##ing <0x41> Ġx"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TIES = [c * 3 for c in LETTERS] + [c * 5 for c in LETTERS] + ["a?b<unk>"]
CORPUS = [t for t in TEXTS if t] + ["the quick brown fox jumps over the lazy dog " * 3, "tokenizers cut text into tokens the model knows", "Hello there, world of words and letters"] + texts.lines(12, 7)


def body(tok):
    return json.loads(tok.to_str())


def probe():
    """Ids show every byte the model got, and by the prefix where words began."""
    vocab = {"<0x%02X>" % b: b for b in range(256)}
    return Tokenizer(M.BPE(vocab=vocab, merges=[], byte_fallback=True, continuing_subword_prefix="#"))


def trained(model, trainer, pre=None, norm=None):
    tok = Tokenizer(model)
    if pre:
        tok.pre_tokenizer = pre
    if norm:
        tok.normalizer = norm
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def models():
    special = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "<mask>"]
    out = {"probe": probe()}
    out["bytes"] = trained(M.BPE(), trainers.BpeTrainer(vocab_size=420, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=special[1:3], show_progress=False), P.ByteLevel(add_prefix_space=False))
    out["chars"] = trained(M.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer(vocab_size=160, limit_alphabet=60, special_tokens=special, show_progress=False), P.Metaspace())
    out["suffix"] = trained(M.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainers.BpeTrainer(vocab_size=160, limit_alphabet=60, special_tokens=special, end_of_word_suffix="</w>", show_progress=False), P.Whitespace())
    out["wordpiece"] = trained(M.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(vocab_size=180, limit_alphabet=60, special_tokens=special, show_progress=False), P.BertPreTokenizer())
    out["wordlevel"] = trained(M.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=80, special_tokens=special, show_progress=False), P.Whitespace())
    out["unigram"] = trained(M.Unigram(), trainers.UnigramTrainer(vocab_size=420, special_tokens=special, unk_token="<unk>", show_progress=False), P.Metaspace())
    fallback = json.loads(out["unigram"].to_str())
    fallback["model"]["byte_fallback"] = True
    fallback["model"]["vocab"] += [["<0x%02X>" % b, -30.0] for b in range(256)]
    out["unigram_bytes"] = Tokenizer.from_str(json.dumps(fallback))
    r = random.Random(4)  # two ways to cut "aaa" tie but for rounding; a token is there twice
    ties = [["<unk>", 0.0], ["<unk>", -1.0]] + [[c * k, -5 * k - r.random()] for c in LETTERS for k in (1, 2)]
    out["unigram_ties"] = Tokenizer(M.Unigram(vocab=[tuple(t) for t in ties], unk_id=0))
    for name in ("bytes", "chars"):  # tokens with the flags models differ in
        v = json.loads(out[name].to_str())
        v["model"]["ignore_merges" if name == "bytes" else "byte_fallback"] = True
        if name == "chars":
            n = len(v["model"]["vocab"])
            v["model"]["vocab"].update({"<0x%02X>" % b: n + b for b in range(256)})
        else:
            v["model"]["vocab"]["Ġlazy!"] = len(v["model"]["vocab"])
            v["model"]["vocab"]["Ġworld"] = len(v["model"]["vocab"])
        out[name + "_2"] = Tokenizer.from_str(json.dumps(v))
    nofuse = json.loads(out["chars"].to_str())
    nofuse["model"]["fuse_unk"] = False
    out["chars_nofuse"] = Tokenizer.from_str(json.dumps(nofuse))
    return out


def charsmap():
    """A small precompiled map, from a SentencePiece model with rules of our own."""
    rules = {"Å": "A", "ﬁ": "fi", "ẛ": "s", "e\u0301": "é", "\t": " ", "\n": " ", "…": "...", "①": "1", "\u200b": "", "한": "han", "👨": "man"}
    tsv = "rules.tsv.tmp"  # its name ends up in the model
    with open(tsv, "w") as f:
        for k, v in rules.items():
            f.write(" ".join("%X" % ord(c) for c in k) + "\t" + " ".join("%X" % ord(c) for c in v) + "\n")
    return tsv


def steps():
    """(name, model, parts)"""
    s = []
    norm = lambda name, n: s.append(("normalizer " + name, "probe", {"normalizer": json.loads(n) if isinstance(n, str) else part(n, "normalizer")}))
    for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"):
        norm(n, getattr(N, n)())
    norm("Strip", N.Strip())
    norm("Strip left", N.Strip(left=True, right=False))
    norm("Strip right", N.Strip(left=False, right=True))
    norm("Replace string", N.Replace("o", "00"))
    norm("Replace regex", N.Replace(Regex(r"\s+"), " "))
    norm("Replace empty match", N.Replace(Regex(r"x*"), "-"))
    norm("Prepend", N.Prepend("▁"))
    norm("BertNormalizer", N.BertNormalizer())
    norm("BertNormalizer keep", N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False))
    norm("Sequence", N.Sequence([N.NFKD(), N.StripAccents(), N.Sequence([N.Lowercase(), N.Strip()])]))
    norm("Precompiled", json.dumps({"type": "Precompiled", "precompiled_charsmap": PRECOMPILED}))
    pre = lambda name, p, model="probe": s.append(("pre_tokenizer " + name, model, {"pre_tokenizer": part(p, "pre_tokenizer")}))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            pre("Split %s%s" % (behavior, " invert" if invert else ""), P.Split(Regex(r"[aeo]|\s"), behavior, invert))
        pre("Split string " + behavior, P.Split(" ", behavior))
        pre("Punctuation " + behavior, P.Punctuation(behavior))
    for scheme in ("always", "first", "never"):
        pre("Metaspace " + scheme, P.Metaspace(prepend_scheme=scheme))
    pre("Metaspace nosplit", P.Metaspace(replacement="_", split=False))
    for n in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"):
        pre(n, getattr(P, n)())
    pre("Digits", P.Digits())
    pre("Digits individual", P.Digits(individual_digits=True))
    pre("CharDelimiterSplit", P.CharDelimiterSplit("-"))
    pre("FixedLength", P.FixedLength(4))
    pre("ByteLevel", P.ByteLevel())
    pre("ByteLevel no prefix", P.ByteLevel(add_prefix_space=False))
    pre("ByteLevel no regex", P.ByteLevel(add_prefix_space=True, use_regex=False))
    pre("Sequence", P.Sequence([P.WhitespaceSplit(), P.Punctuation(), P.Digits(individual_digits=True)]))
    pre("Sequence after bytes", P.Sequence([P.ByteLevel(add_prefix_space=False), P.Split("Ġ", "isolated")]))
    pre("Split \\b", P.Split(Regex(r"\b"), "isolated"))
    s.append(("strip then first", "probe", {"normalizer": part(N.Strip(), "normalizer"), "pre_tokenizer": part(P.Metaspace(prepend_scheme="first"), "pre_tokenizer")}))
    bl = lambda **k: part(P.ByteLevel(**k), "pre_tokenizer")
    for name in ("bytes", "bytes_2"):
        s.append(("model " + name, name, {"pre_tokenizer": bl(add_prefix_space=False), "decoder": part(D.ByteLevel(), "decoder"), "post_processor": part(R.ByteLevel(), "post_processor")}))
    s.append(("model bytes, prefix space", "bytes", {"pre_tokenizer": bl(), "decoder": part(D.ByteLevel(), "decoder")}))
    for name in ("chars", "chars_2", "chars_nofuse", "unigram", "unigram_bytes"):
        s.append(("model " + name, name, {"pre_tokenizer": part(P.Metaspace(), "pre_tokenizer"), "decoder": part(D.Sequence([D.ByteFallback(), D.Metaspace()]), "decoder")}))
        s.append(("model %s, whole text" % name, name, {"normalizer": part(N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), "normalizer"),
                                                       "decoder": part(D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), "decoder")}))
    s.append(("model unigram_ties", "unigram_ties", {"added_tokens": [{"id": 1, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]}))
    s.append(("model suffix", "suffix", {"pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"), "decoder": part(D.BPEDecoder(), "decoder")}))
    s.append(("model wordpiece", "wordpiece", {"normalizer": part(N.BertNormalizer(), "normalizer"), "pre_tokenizer": part(P.BertPreTokenizer(), "pre_tokenizer"),
                                               "decoder": part(D.WordPiece(), "decoder"), "post_processor": part(R.BertProcessing(("[SEP]", 4), ("[CLS]", 3)), "post_processor")}))
    s.append(("model wordlevel", "wordlevel", {"pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"), "post_processor": part(R.RobertaProcessing(("</s>", 2), ("<s>", 1)), "post_processor")}))
    template = R.TemplateProcessing(single="<s> [CLS] $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2), ("[CLS]", 3)])
    s.append(("post Template", "wordlevel", {"pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"), "post_processor": part(template, "post_processor")}))
    s.append(("post Sequence", "wordlevel", {"pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"),
                                             "post_processor": part(R.Sequence([R.ByteLevel(), R.TemplateProcessing(single="[CLS] $A [SEP]", pair="$A $B", special_tokens=[("[CLS]", 3), ("[SEP]", 4)])]), "post_processor")}))
    dec = lambda name, d, model="wordpiece": s.append(("decoder " + name, model, {"pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"), "decoder": part(d, "decoder")}))
    dec("none", None)
    dec("WordPiece no cleanup", D.WordPiece(cleanup=False))
    dec("CTC", D.CTC(pad_token="<unk>", word_delimiter_token="e"))
    dec("CTC raw", D.CTC(pad_token="l", cleanup=False))
    dec("Strip", D.Sequence([D.Strip("e", 2, 0), D.Fuse()]))
    dec("Replace regex", D.Replace(Regex("[a-e]+"), "_"))
    dec("Metaspace never", D.Metaspace(prepend_scheme="never"), "chars")
    dec("Metaspace", D.Metaspace(), "chars")
    dec("ByteFallback", D.ByteFallback(), "probe")
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"lstrip": True, "rstrip": True}, {"normalized": True}, {"special": True}):
        added = [dict({"content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}, **flags)
                 for c in ("<mask>", "two", "the", "spaces", "  ", "ÀÉ", "token")]
        s.append(("added " + " ".join(flags), "probe", {"normalizer": part(N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase()]), "normalizer"), "pre_tokenizer": part(P.Whitespace(), "pre_tokenizer"),
                  "decoder": part(D.Sequence([D.ByteFallback(), D.Fuse()]), "decoder"), "added_tokens": [dict(a, id=256 + i) for i, a in enumerate(added)]}))
    return s


def part(obj, key):
    if obj is None:
        return None
    t = probe()
    setattr(t, key, obj)
    return body(t)[key]


def compact(v):
    return json.dumps(v, ensure_ascii=False, separators=(",", ":"))


def cases(tok, some):
    out = []
    for t in some:
        e, plain = tok.encode(t), tok.encode(t, add_special_tokens=False)
        c = {"in": t, "ids": e.ids, "out": tok.decode(e.ids, skip_special_tokens=False)}
        if plain.ids != e.ids:
            c["plain"] = plain.ids
        skipped = tok.decode(e.ids)
        if skipped != c["out"]:
            c["skipped"] = skipped
        out.append(c)
    return out


def small():
    global PRECOMPILED
    PRECOMPILED = base64.b64encode(train_spm("unigram", normalization_rule_tsv=charsmap())[1]).decode()
    made = models()
    os.makedirs(os.path.join(HERE, "models"), exist_ok=True)
    for name, tok in made.items():
        with open(os.path.join(HERE, "models", name + ".json"), "w") as f:
            f.write(compact(body(tok)["model"]) + "\n")
    with open(os.path.join(HERE, "small.jsonl"), "w") as f:
        for name, model, parts in steps():
            whole = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
            whole.update(parts, model=body(made[model])["model"])
            tok = Tokenizer.from_str(json.dumps(whole))
            f.write(compact({"name": name, "model": model, "parts": parts, "cases": cases(tok, TIES if model == "unigram_ties" else TEXTS)}) + "\n")


def fields(data):
    """(number, value) of a protobuf message; enough for ModelProto."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]
            at += 1
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                return v

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            n = varint()
            value, at = data[at:at + n], at + n
        elif key & 7 == 5:
            value, at = data[at:at + 4], at + 4
        else:
            value = varint()
        yield key >> 3, value


def train_spm(kind, **more):
    """(model bytes, charsmap bytes)"""
    import sentencepiece as spm
    out = io.BytesIO()
    args = dict(vocab_size=700 if more.get("byte_fallback") else 420, hard_vocab_limit=False, character_coverage=0.98, minloglevel=2)
    if "normalization_rule_tsv" not in more:
        args["normalization_rule_name"] = "identity"
    args.update(more)
    spm.SentencePieceTrainer.train(sentence_iterator=iter([t for t in CORPUS if "\0" not in t and t.strip()]), model_writer=out, model_type=kind, **args)
    normalizer = dict(fields(out.getvalue()))[3]
    return out.getvalue(), dict(fields(normalizer)).get(2, b"")


def files():
    import sentencepiece as spm
    import tiktoken
    from tiktoken._educational import bpe_train
    folder = os.path.join(HERE, "files")
    os.makedirs(folder, exist_ok=True)
    rows = []
    variants = {
        "spm_unigram": ("unigram", {}),
        "spm_unigram_bytes": ("unigram", {"byte_fallback": True, "user_defined_symbols": ["<mask>", "the theory"]}),
        "spm_bpe": ("bpe", {}),
        "spm_bpe_bytes": ("bpe", {"byte_fallback": True, "user_defined_symbols": ["<mask>", "ing"]}),
        "spm_bpe_plain": ("bpe", {"byte_fallback": True, "add_dummy_prefix": False, "remove_extra_whitespaces": False}),
        "spm_unigram_rules": ("unigram", {"normalization_rule_tsv": charsmap(), "remove_extra_whitespaces": False}),
    }
    for name, (kind, more) in variants.items():
        data = train_spm(kind, **more)[0]
        with open(os.path.join(folder, name + ".model"), "wb") as f:
            f.write(data)
        sp = spm.SentencePieceProcessor(model_proto=data)
        some = [t for t in TEXTS if "\0" not in t]
        rows.append({"name": name, "file": name + ".model", "cases": [{"in": t, "ids": sp.encode(t), "out": sp.decode(sp.encode(t))} for t in some]})
    pattern = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    ranks = bpe_train("\n".join(CORPUS), 330, pattern, visualise=None)
    with open(os.path.join(folder, "tiktoken.model"), "w") as f:
        for token, rank in ranks.items():
            f.write(base64.b64encode(token).decode() + " %d\n" % rank)
    enc = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    rows.append({"name": "tiktoken", "file": "tiktoken.model", "cases": [{"in": t, "ids": enc.encode(t), "out": enc.decode(enc.encode(t))} for t in TEXTS]})
    with open(os.path.join(HERE, "files.jsonl"), "w") as f:
        for row in rows:
            f.write(compact(row) + "\n")


def archives(folder):
    os.makedirs(os.path.join(HERE, "archives"), exist_ok=True)
    for path in sorted(glob.glob(os.path.join(folder, "*", "tokenizer.json"))):
        tok = Tokenizer.from_file(path)
        name = os.path.basename(os.path.dirname(path))
        with open(os.path.join(HERE, "archives", name + ".jsonl"), "w") as f:
            for c in cases(tok, TEXTS + texts.SPECIAL + texts.lines(80, 11)):
                f.write(compact(c) + "\n")


if len(sys.argv) > 2:
    sys.argv[2] = os.path.abspath(sys.argv[2])
os.chdir(HERE)
if sys.argv[1] == "small":
    small()
elif sys.argv[1] == "files":
    files()
else:
    archives(sys.argv[2])
for junk in glob.glob(os.path.join(HERE, "*.tmp")):
    os.remove(junk)
