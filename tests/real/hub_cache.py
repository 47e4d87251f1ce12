#!/usr/bin/env python3
"""Do huggingface_hub and megatrain read each other's caches?

    tests/real/hub_cache.py BUILD_DIR [--write]

Needs the PyPI packages huggingface_hub and datasets.  Both download acme/tiny from the tests' own hub on loopback; the two caches must look the
same (blobs, relative links, refs), and each program must find what the other has downloaded, without a network.  Arrow files that the datasets library has
prepared are read, too.  --write makes tests/golden/hub/layout.txt anew from huggingface_hub's cache.
"""
import json
import os
import subprocess
import sys
import tempfile

build, write = sys.argv[1], "--write" in sys.argv
here = os.path.dirname(os.path.abspath(__file__))
golden = os.path.join(here, "..", "golden", "hub", "layout.txt")
server = subprocess.Popen([os.path.join(build, "tests", "hub_serve")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
endpoint = server.stdout.readline().strip()
for name in [n for n in os.environ if n.startswith("HF_") or n.lower().endswith("_proxy")]:
    del os.environ[name]
os.environ.update(HF_ENDPOINT=endpoint, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1")

import huggingface_hub  # noqa: E402  (reads the environment)

NEEDED = ["config.json", "model*.safetensors*", "tokenizer.json", "merges.txt"]
FOLDER = "models--acme--tiny"


def megatrain(home, *args, offline=False):
    env = dict(os.environ, HF_HOME=home, **({"HF_HUB_OFFLINE": "1"} if offline else {}))
    done = subprocess.run([os.path.join(build, "megatrain"), *args], env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"megatrain {' '.join(args)}: {done.stderr}")
    return done.stdout.strip()


def prepare_arrow(home):
    """What load_dataset("meta-math/MetaMathQA") leaves in its cache, made from a file of our own."""
    from datasets.data_files import DataFilesDict, DataFilesList
    from datasets.load import configure_builder_class
    from datasets.packaged_modules.json.json import Json, JsonConfig

    rows = os.path.join(home, "rows.jsonl")
    with open(rows, "w") as out:
        out.writelines(json.dumps({"query": f"what is {i}", "response": str(i)}) + "\n" for i in range(100))
    config = JsonConfig(name="default", data_files=DataFilesDict({"train": DataFilesList([rows], [("x",)])}))
    made = configure_builder_class(Json, builder_configs=[config], default_config_name="default", dataset_name="MetaMathQA")
    builder = made(cache_dir=os.path.join(home, "datasets"), hash="0" * 40, dataset_name="MetaMathQA")
    builder.repo_id = "meta-math/MetaMathQA"  # given to the constructor it would want the files on the hub
    builder._cache_dir = builder._output_dir = builder._build_cache_dir()
    builder.download_and_prepare()
    return os.path.join(builder.cache_dir, "meta_math_qa-train.arrow")


def listing(home):
    """Paths below the repository's folder, links as they are written, sizes of files; trees/ is a note huggingface_hub leaves for itself."""
    lines, root = [], os.path.join(home, "hub")
    for at, _, files in sorted(os.walk(os.path.join(root, FOLDER))):
        for name in sorted(files):
            path = os.path.join(at, name)
            shown = os.path.relpath(path, root)
            if shown.startswith(FOLDER + "/trees/"):
                continue
            lines.append(f"{shown} -> {os.readlink(path)}" if os.path.islink(path) else f"{shown} {os.path.getsize(path)}")
    return "".join(line + "\n" for line in lines)


with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as ours:
    cache = lambda home: os.path.join(home, "hub")
    their_dir = huggingface_hub.snapshot_download(
        "acme/tiny", cache_dir=cache(theirs), allow_patterns=NEEDED, ignore_patterns=["*/*"]
    )
    our_dir = megatrain(ours, "get", "acme/tiny")
    if write:
        open(golden, "w").write(listing(theirs))
    assert listing(theirs) == open(golden).read(), "huggingface_hub's cache is not the golden:\n" + listing(theirs)
    assert listing(ours) == open(golden).read(), "our cache is not the golden:\n" + listing(ours)
    print("both caches look the same:", len(listing(ours).splitlines()), "entries")

    found = huggingface_hub.snapshot_download("acme/tiny", cache_dir=cache(ours), local_files_only=True)
    assert os.path.realpath(found) == os.path.realpath(our_dir), (found, our_dir)
    for name in os.listdir(our_dir):
        path = huggingface_hub.hf_hub_download("acme/tiny", name, cache_dir=cache(ours), local_files_only=True)
        assert open(path, "rb").read() == open(os.path.join(their_dir, name), "rb").read(), name
    scan = huggingface_hub.scan_cache_dir(cache(ours))
    assert not scan.warnings and len(scan.repos) == 1, scan
    print("huggingface_hub", huggingface_hub.__version__, "reads ours:", len(os.listdir(our_dir)), "files, no warnings in its scan")

    # What we fetched, it does not fetch again.
    again = huggingface_hub.snapshot_download("acme/tiny", cache_dir=cache(ours), allow_patterns=NEEDED, ignore_patterns=["*/*"])
    assert os.path.realpath(again) == os.path.realpath(our_dir)

    server.stdin.close()
    server.wait()
    assert megatrain(theirs, "get", "acme/tiny", offline=True) == their_dir
    assert megatrain(theirs, "get", "acme/tiny", "--revision", os.path.basename(their_dir), offline=True) == their_dir
    print("megatrain reads huggingface_hub's, offline")

    arrow = prepare_arrow(ours)
    assert megatrain(ours, "get", "meta-math/MetaMathQA", "--dataset", offline=True) == arrow
    demo = os.path.join(here, "..", "..", "data")
    shown = megatrain(ours, "data", "--model-name", demo + "/demo_model", "--dataset-name", "metamath", "--dataset-dir", demo,
                      "--max-seq-len", "64", "--set", f"dataset.cache_dir={ours}/tokens", offline=True)  # fmt: skip
    assert "100 records, 100 samples" in shown, shown
    print("megatrain reads the datasets library's Arrow files")
