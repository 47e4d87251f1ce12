#!/usr/bin/env python3
"""Which files make which split, by the datasets library: writes splits.json beside this file.

    python tests/golden/hub/make_splits.py          # needs the PyPI package datasets

Each case is a repository's file names and, perhaps, its README; golden.splits asks ours for the same.
"""
import json
import os
import tempfile

import yaml
from datasets.data_files import DataFilesPatternsDict, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs

CASES = [
    ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"],
    ["data/train_sft-00000-of-00001-a1b2.parquet", "data/test_sft-00000-of-00001.parquet", "data/train_gen-00000-of-00001.parquet"],
    ["train.jsonl", "valid.jsonl", "test.jsonl"],
    ["train/a.parquet", "train/b.parquet", "dev/a.parquet", "testing/x.parquet"],
    ["my_train_file_1.csv", "my_train_file_2.csv", "my-eval.csv"],
    ["MetaMathQA-395K.json"],
    ["a.parquet", "b/c.parquet", "b/d/e.parquet"],
    ["training.json", "evaluation.json", "val0.json"],
    ["en/train.jsonl", "en/test.jsonl", "de/train.jsonl"],
    ["retrained.json", "contest.json", "latest.json"],
    ["train-v1.1.json", "dev-v1.1.json"],
    ["data/part1.train.json", "data/part2.train.json", "other/x.json"],
    ["sft/0000.parquet", "sft/0001.parquet"],
    ["train0001.json", "TRAIN.json", "devel.json"],
    ["01_train/x.json", "02_test/x.json"],
    (["main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet", "socratic/train-00000-of-00001.parquet"],
     "configs:\n- config_name: main\n  default: true\n  data_files:\n  - split: train\n    path: main/train-*\n  - split: test\n    path: main/test-*\n- config_name: socratic\n  data_files:\n  - split: train\n    path: socratic/train-*\n"),
    (["a/x.json", "a/b/y.json", "c.json"], "configs:\n- config_name: default\n  data_files: \"a/**/*.json\"\n"),
    (["a/x.json", "a/b/y.json", "c.json"], "configs:\n- config_name: default\n  data_files:\n  - \"a/*.json\"\n  - c.json\n"),
    (["x1.json", "x2.json", "x10.json"], "configs:\n- config_name: default\n  data_files:\n  - split: low\n    path: \"x?.json\"\n  - split: high\n    path: [\"x[1][0].json\"]\n"),
    (["en/train.json", "en/test.json", "de/train.json"], "configs:\n- config_name: en\n  data_dir: en\n- config_name: de\n  data_dir: de\n"),
]


def resolve(patterns, base):
    files = DataFilesPatternsDict.from_patterns(patterns).resolve(base)
    return {str(split): sorted(os.path.relpath(f, base) for f in found) for split, found in files.items()}


def splits_of(files, readme):
    with tempfile.TemporaryDirectory() as base:
        base = os.path.realpath(base)
        for name in files:
            os.makedirs(os.path.dirname(os.path.join(base, name)), exist_ok=True)
            open(os.path.join(base, name), "w").write("x")
        if not readme:
            return {"": resolve(get_data_patterns(base), base)}
        configs = yaml.safe_load(readme)["configs"]
        result = {}
        for name, config in MetadataConfigs({c["config_name"]: {k: v for k, v in c.items() if k != "config_name"} for c in configs}).items():
            root = os.path.join(base, config["data_dir"]) if "data_dir" in config else base
            if "data_files" in config:
                patterns = sanitize_patterns(config["data_files"])
            else:
                patterns = get_data_patterns(root)
            found = resolve(patterns, root)
            result[name] = {s: [os.path.relpath(os.path.join(root, f), base) for f in fs] for s, fs in found.items()}
        return result


rows = []
for case in CASES:
    files, readme = case if isinstance(case, tuple) else (case, None)
    rows.append({"files": files, "readme": f"---\n{readme}---\n" if readme else None, "splits": splits_of(files, readme)})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "splits.json"), "w") as out:
    out.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
