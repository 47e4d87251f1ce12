"""Varied text for comparing tokenizers: many scripts, emoji, code, white space, control characters, broken-looking bits."""
import random

WORDS = """the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were when we there
can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time
could no make than first been its who now people my made over did down only way find use may water long little very after words called just where
most know running tokenizers internationalization antidisestablishmentarianism Don't I'll we've THEY'RE it's O'Neil rock'n'roll e.g. i.e. U.S.A.
HTTPServer camelCaseName snake_case_name SCREAMING_CASE kebab-case x86_64 UTF-8 3.14159 1,234,567 0xDEADBEEF 1e-10 2024-01-31 12:34:56 50% $19.99
naïve café résumé über Straße fiancée coöperate Zürich Ærøskøbing Łódź İstanbul ıslak ŞĞ ǅ ǆ ﬁ ﬂ ﬃ ſ K Å""".split()
SCRIPTS = {
    "han": "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从今天天气很好我们一起去公园散步吧",
    "jp": "これは日本語のテストです。カタカナとひらがなと漢字を混ぜて書きます。ｶﾀｶﾅ半角ー〜「」がぎぐげござじずぜぞぱぴぷぺぽ",
    "kr": "안녕하세요 세계 한국어 토크나이저 시험 문장입니다 가나다라마바사 아자차카타파하 각 한",
    "ar": "مرحبا بالعالم هذا نص عربي مع تشكيل مُحَمَّدٌ ٠١٢٣٤٥٦٧٨٩ ؟ ، فارسی گچپژ",
    "he": "שלום עולם זה טקסט בעברית עם ניקוד שָׁלוֹם",
    "hi": "नमस्ते दुनिया यह हिंदी पाठ है क्षत्रिय ज्ञान १२३४५ ॐ",
    "th": "สวัสดีชาวโลก นี่คือข้อความภาษาไทย ๑๒๓ กำนัน",
    "ru": "Привет мир это русский текст Ёлка щука объезд їжак ґанок",
    "gr": "Γειά σου Κόσμε ΟΔΥΣΣΕΥΣ άέήίόύώ ϊϋΐΰ ῥᾷ",
    "misc": "ქართული հայերեն አማርኛ ગુજરાતી தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල မြန်မာ ខ្មែរ ລາວ བོད་ ᠮᠣᠩᠭᠣᠯ ᏣᎳᎩ ꦗꦮ 𐍈𐌰 𝔘𝔫𝔦 𝟘𝟙𝟚 ㏒ ① Ⅷ ½ ² ³ ₂ ㎏ ㍿",
}
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇺🇸🇫🇷", "❤️", "☎️", "1️⃣", "🧑🏿‍🚀", "👩‍💻", "🫠", "🫨", "\u200d", "\ufe0f", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"]
SPACES = [" ", "  ", "   ", "    ", "        ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", " \n \n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u0085", "\u2028", "\v", "\f", "\u1680", "\u202f", "\ufeff"]
MARKS = ["e\u0301", "a\u0308\u0304", "o\u0323\u0302", "n\u0303", "\u0301", "\u0e31", "\u093f", "z\u0335\u0321\u0352\u0301", "\u20dd", "A\u030a", "\u1100\u1161\u11a8", "\u0344", "\u0958", "\u2126", "\uf900", "\U0001d15e"]
CONTROL = ["\x00", "\x01", "\x07", "\x08", "\x1b[0m", "\x7f", "\u0080", "\u009f", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000f0000", "\u00ad", "\u2060", "\u061c", "\u202e"]
CODE = ["def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] = b[i] * 2;\n}", "SELECT * FROM t WHERE a='b' AND c<>1;", "<div class=\"x\">&nbsp;</div>",
        "{\"key\": [1, 2.5, null, true], \"k2\": \"v\\n\"}", "$\\frac{a}{b} \\leq \\sum_{i=0}^{n} x_i$", "https://example.com/a?b=c&d=%20e#f", "a->b::c<d>&&e||!f", "#include <stdio.h>\n\nint main(void) { return 0; }\n",
        "x = [i for i in range(10) if i % 2 == 0]", "// comment\n/* block */", "\\n\\t\\u0041", "''' doc '''", "!!!???...", "---===***___", "((([[[{{{", "......", "//////", "\\\\\\", "'''", "'s't're've'm'll'd 'S'T'RE'VE'M'LL'D 'ſ"]
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<think>", "</think>",
           "<|im_st", "<0x41>", "<0xFF>", "▁", "▁▁", "Ġ", "##ing", "</w>", "<mask>", "[CLS]", "[SEP]", "[UNK]", "<|fim_prefix|>", "<tool_call>", "<unused99>", "<SPECIAL_20>", "<h1>", "<table>"]


def piece(r):
    k = r.random()
    if k < 0.35:
        return r.choice(WORDS)
    if k < 0.50:
        s = r.choice(list(SCRIPTS.values()))
        a = r.randrange(len(s))
        return s[a:a + r.randint(1, 14)]
    if k < 0.62:
        return r.choice(SPACES) * r.randint(1, 3)
    if k < 0.68:
        return r.choice(EMOJI)
    if k < 0.74:
        return r.choice(CODE)
    if k < 0.79:
        return r.choice(MARKS)
    if k < 0.83:
        return r.choice(CONTROL)
    if k < 0.88:
        return r.choice(SPECIAL)
    if k < 0.93:
        return "".join(r.choice("0123456789") for _ in range(r.randint(1, 9)))
    if k < 0.96:
        return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randint(1, 5)))
    while True:  # any code point at all
        c = r.choice([r.randrange(0x20, 0x3000), r.randrange(0x20, 0x10000), r.randrange(0x10000, 0x20000), r.randrange(0x110000)])
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def line(r):
    sep = r.choice(["", " ", " ", " "])
    return sep.join(piece(r) for _ in range(r.choice([0, 1, 2, 3, 5, 8, 13, 21])))


def lines(n, seed=1):
    r = random.Random(seed)
    return [line(r) for _ in range(n)]
