"""Writes src/tokenizer/unicode_data.c: the properties of every code point as the reference sees them.

The reference implementation mixes several Unicode versions (its regular-expression engine, the Rust
standard library, and two crates each bring their own), so the sets are asked of it rather than taken from
a Unicode release.  Needs the Python packages `tokenizers` and `regex`:

    python tests/golden/tokenizer/make_unicode.py > src/tokenizer/unicode_data.c
"""
import sys
import unicodedata
import regex
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 2048
GC = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def chunks():
    for i in range(0, len(CPS), CHUNK):
        yield CPS[i:i + CHUNK]


def matching(pattern):
    """Code points the reference's regular expressions put into `pattern`."""
    keep, found = N.Replace(Regex("[^%s]" % pattern), ""), set()
    for part in chunks():
        found |= {ord(c) for c in keep.normalize_str("".join(map(chr, part)))}
    return found


def isolated(pre):
    """Code points `pre` cuts off from a letter on either side (x is a letter to all of them)."""
    found = set()
    for part in chunks():
        text = "x" + "".join(chr(c) + "x" for c in part if c != ord("x"))
        for piece, _ in pre.pre_tokenize_str(text):
            if "x" not in piece:
                found |= set(map(ord, piece))
    return found


def removed_by_split(pre):
    found = set()
    for part in chunks():
        left = set("".join(p for p, _ in pre.pre_tokenize_str("".join(map(chr, part)))))
        found |= {c for c in part if chr(c) not in left}
    return found


def not_word(pre):
    """Code points that separate two letters for `pre`, kept or dropped."""
    found = set()
    for part in chunks():
        text = "x" + "".join(chr(c) + "x" for c in part)
        joined = set("".join(p for p, _ in pre.pre_tokenize_str(text) if "x" in p)) - {"x"}
        found |= {c for c in part if chr(c) not in joined and c != ord("x")}
    return found


def vanishing(norm):
    return {c for c in CPS if norm.normalize_str(chr(c)) == ""}


def inert(forms):
    """Code points that every form leaves alone, that start a character and never join the one before."""
    second = {ord(unicodedata.normalize("NFD", chr(c))[-1]) for c in CPS if len(unicodedata.normalize("NFD", chr(c))) > 1}
    return {c for c in CPS if unicodedata.category(chr(c)) != "Cn" and not unicodedata.combining(chr(c)) and c not in second
            and not 0x1160 <= c <= 0x11FF and all(f.normalize_str(chr(c)) == chr(c) for f in forms)}


def opaque():
    """Code points younger than the reference's normal forms: it neither decomposes, reorders nor joins them."""
    nfd, nfkd = N.NFD(), N.NFKD()
    moves = lambda c: nfd.normalize_str("a\u035d" + c) == "a" + c + "\u035d" or nfd.normalize_str("a" + c + "\u0334") == "a\u0334" + c
    return {c for c in CPS if (unicodedata.category(chr(c)) == "Cn" or unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c)))
            and not 0xAC00 <= c <= 0xD7A3 and nfkd.normalize_str(chr(c)) == chr(c) and not moves(chr(c))}


def script_classes():
    """{code point: class}: 0 is "joins anything", others only need to differ where the reference cuts."""
    pre = P.UnicodeScripts()
    names = sorted({regex_script(c) for c in CPS if regex_script(c)})
    out, reps = {}, {}
    joins = lambda a, b: len(pre.pre_tokenize_str(chr(a) + chr(b))) == 1
    for c in CPS:
        if len(pre.pre_tokenize_str("a" + chr(c) + "\u4e00")) == 2 and len(pre.pre_tokenize_str("a" + chr(c))) == 1 \
           and len(pre.pre_tokenize_str("\u4e00" + chr(c))) == 1:
            continue  # joins Latin and Han alike
        known = reps.setdefault(regex_script(c), [])
        for rep, k in known + [rk for lst in reps.values() for rk in lst]:
            if joins(rep, c):
                out[c] = k
                break
        else:
            k = 1 + sum(len(v) for v in reps.values())
            known.append((c, k))
            out[c] = k
    return out


_script_cache = {}


def regex_script(c):
    if not _script_cache:
        for name in SCRIPTS:
            pat = regex.compile(r"\p{Script=%s}" % name)
            for part in chunks():
                for ch in pat.findall("".join(map(chr, part))):
                    _script_cache[ord(ch)] = name
    return _script_cache.get(c)


SCRIPTS = """Common Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati Oriya
Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic Cherokee Ogham Runic Khmer
Mongolian Hiragana Katakana Bopomofo Han Yi Inherited""".split()


def ranges(value_of):
    out, last = [], None
    for c in range(0x110000):
        v = value_of(c)
        if v != last:
            out.append((c, v))
            last = v
    return out


def emit(name, comment, rows):
    print("\n/* %s */" % comment)
    print("const mt__range mt__%s[] = {" % name)
    line = "   "
    for start, value in rows:
        item = " {0x%x,0x%x}," % (start, value)
        if len(line) + len(item) > 128:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\nconst size_t mt__%s_n = sizeof mt__%s / sizeof *mt__%s;" % (name, name, name))


def main():
    gc = {}
    for i, cat in enumerate(GC[1:], 1):
        for c in matching(r"\p{%s}" % cat):
            gc[c] = i
    young = opaque()
    sets = [
        ("space", matching(r"\s")),
        ("white", removed_by_split(P.WhitespaceSplit())),
        ("numeric", isolated(P.Digits(individual_digits=True))),
        ("punct", isolated(P.Punctuation(behavior="isolated"))),
        ("word", set(CPS) - not_word(P.Whitespace())),
        ("control", {c for c in vanishing(N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False))}),
        ("accent", vanishing(N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False))),
        ("mark", vanishing(N.StripAccents())),
        ("nfc_inert", inert([N.NFC()]) | young),
        ("inert", inert([N.NFC(), N.NFD(), N.NFKC(), N.NFKD()]) | young),
        ("opaque", young),
    ]
    for name, s in sets:
        print(name, len(s), file=sys.stderr)
    props = lambda c: gc.get(c, 0) | sum(1 << (5 + i) for i, (_, s) in enumerate(sets) if c in s)
    lower = {}
    low = N.Lowercase()
    for c in CPS:
        t = low.normalize_str(chr(c))
        if t != chr(c):
            lower[c] = t
    print("/* Written by tests/golden/tokenizer/make_unicode.py; see unicode.h for what the numbers mean. */")
    print('#include "tokenizer/unicode.h"\n\n/* clang-format off */')
    emit("props_ranges", "first code point, properties: up to the next row", ranges(props))
    scripts = script_classes()
    emit("script_ranges", "first code point, script: up to the next row; 0 joins any", ranges(lambda c: scripts.get(c, 0)))
    single = sorted((c, ord(t)) for c, t in lower.items() if len(t) == 1)
    runs = []
    for c, t in single:  # runs of equal distance and step 1 or 2
        if runs and t - c == runs[-1][3] and (c - runs[-1][1] == runs[-1][2] or (runs[-1][0] == runs[-1][1] and c - runs[-1][1] in (1, 2))):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, t - c])
    print("\n/* lower case: first, last, step, distance */\nconst mt__case_run mt__lower_runs[] = {")
    line = "   "
    for r in runs:
        item = " {0x%x,0x%x,%d,%d}," % tuple(r)
        if len(line) + len(item) > 128:
            print(line)
            line = "   "
        line += item
    print(line + "\n};\nconst size_t mt__lower_runs_n = sizeof mt__lower_runs / sizeof *mt__lower_runs;")
    print("longer lower cases:", {hex(c): t.encode() for c, t in lower.items() if len(t) != 1}, file=sys.stderr)


main()
