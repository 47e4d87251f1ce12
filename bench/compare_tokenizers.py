"""Single-thread encode throughput against the Rust package `tokenizers`, same text, same run, by CPU time.

    cmake --build build --target bench_tokenizer
    python bench/compare_tokenizers.py [--mb 50] [--build build] DIR_WITH_TOKENIZERS

The text is made from what the machine has: Python sources (code and English), the translations in /usr/share/locale
(some eighty languages), and random lines of many scripts; documents of about 4 kB.  Beside the tokenizers found in
the directory, a Unigram, a WordPiece and a WordLevel tokenizer are trained on a part of it."""
import argparse
import glob
import gettext
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "golden", "tokenizer"))
import texts
from tokenizers import Tokenizer, models as M, normalizers as N, pre_tokenizers as P, trainers


def pieces_of_code():
    files = sorted(glob.glob(sysconfig.get_paths()["purelib"] + "/**/*.py", recursive=True))
    random.Random(1).shuffle(files)
    for f in files:
        s = open(f, encoding="utf-8", errors="ignore").read().replace("\0", "")
        for i in range(0, len(s), 4000):
            yield s[i:i + 4000]


def pieces_of_translations():
    files = sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"))
    random.Random(2).shuffle(files)
    for f in files:
        try:
            t = gettext.GNUTranslations(open(f, "rb"))
        except Exception:
            continue
        s = "\n".join(v for v in t._catalog.values() if v).replace("\0", "")
        for i in range(0, len(s), 3000):
            yield s[i:i + 3000]


def pieces_of_mix():
    seed = 0
    while True:
        seed += 1
        yield "\n".join(texts.lines(40, seed)).replace("\0", "")


def documents(n_bytes):
    sources = [(0.5, pieces_of_code()), (0.4, pieces_of_translations()), (0.1, pieces_of_mix())]
    docs, total, r = [], 0, random.Random(3)
    while total < n_bytes:
        s = next(r.choices([s for _, s in sources], [w for w, _ in sources])[0])
        docs.append(s)
        total += len(s.encode()) + 1
    return docs


def trained(docs, folder):
    some = docs[::40]
    out = {}
    for name, model, trainer, pre, norm in [
        ("unigram", M.Unigram(), trainers.UnigramTrainer(vocab_size=16000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False), P.Metaspace(), N.NFKC()),
        ("wordpiece", M.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=16000, special_tokens=["[UNK]"], show_progress=False), P.BertPreTokenizer(), N.BertNormalizer()),
        ("wordlevel", M.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=30000, special_tokens=["[UNK]"], show_progress=False), P.Whitespace(), None),
    ]:
        tok = Tokenizer(model)
        tok.pre_tokenizer = pre
        if norm:
            tok.normalizer = norm
        tok.train_from_iterator(some, trainer)
        out[name] = os.path.join(folder, name + ".json")
        tok.save(out[name])
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--mb", type=float, default=50)
    p.add_argument("--build", default="build")
    p.add_argument("--no-trained", action="store_true")
    p.add_argument("folder")
    args = p.parse_args()
    work = tempfile.mkdtemp()
    docs = documents(args.mb * 1e6)
    path = os.path.join(work, "texts")
    with open(path, "wb") as f:
        f.write("\0".join(docs).encode())
    n_bytes = os.path.getsize(path)
    exe = os.path.join(HERE, "..", args.build, "bench", "bench_tokenizer")
    todo = {os.path.basename(os.path.dirname(f)): f for f in sorted(glob.glob(os.path.join(args.folder, "*", "tokenizer.json")))}
    if not args.no_trained:
        todo.update(trained(docs, work))
    print("%.1f MB, %d documents" % (n_bytes / 1e6, len(docs)))
    print("| tokenizer | ours MB/s | tokenizers MB/s | ratio |\n| --- | --- | --- | --- |")
    for name, file in todo.items():
        ours = json.loads(subprocess.check_output([exe, file, path]))
        ref = Tokenizer.from_file(file)
        t, n_ids = 0, 0
        for i in range(0, len(docs), 500):
            start = time.process_time()
            encoded = ref.encode_batch_fast(docs[i:i + 500])
            t += time.process_time() - start
            n_ids += sum(len(e.ids) for e in encoded)
        note = "" if n_ids == ours["ids"] else "  (%d ids, the reference %d)" % (ours["ids"], n_ids)
        print("| %s | %.1f | %.1f | %.1f |%s" % (name, ours["mb_per_s"], n_bytes / 1e6 / t, ours["mb_per_s"] / (n_bytes / 1e6 / t), note), flush=True)


if __name__ == "__main__":
    main()
