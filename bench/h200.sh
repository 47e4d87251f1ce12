#!/usr/bin/env bash
# h200.sh - every line of docs/notebook's table of training on an H200, again: about 25 minutes, of which 5 for the largest shapes.
#   bench/h200.sh [build/megatrain] [words]       only lines whose name has one of the words: bench/h200.sh build/megatrain 7b 14b
# RAM: host memory to plan with (115G).  OUT: where the full output goes, tables of where the time went included (h200.txt).
# Random weights and tokens, no files, except for the last lines (train against bench), which need 16 GB of disk for a while.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
program=${1:-build/megatrain} ram=${RAM:-115G} out=${OUT:-h200.txt}
[ $# -gt 0 ] && shift
words=("$@")
: > "$out"

wanted() {
    [ ${#words[@]} -eq 0 ] && return 0
    for word in "${words[@]}"; do case $1 in *"$word"*) return 0 ;; esac done
    return 1
}

line() { # name, then options of bench
    local name=$1 text
    shift
    wanted "$name" || return 0
    text=$("$program" bench --device cuda --ram "$ram" --table "$@" 2>&1)
    printf '== %s\n   megatrain bench --device cuda --ram %s --table %s\n%s\n\n' "$name" "$ram" "$*" "$text" >> "$out"
    printf '%s\n' "$text" | awk -v name="$name" '
        / tokens\/s$/ { rate = $(NF - 1); for (i = 2; i < NF; i++) if ($i == "s" && $(i + 1) == "a") seconds = $(i - 1) }
        / predicted / { for (i = 1; i < NF; i++) if ($i == "predicted") predicted = $(i + 1) }
        /^  [0-9.]+ TFLOP/ { flops = $1 }
        / sweeps? of micro-batches/ { place = $0; sub(/^ +/, "", place) }
        /^error/ { place = $0 }
        END { printf "| %s | %s | %s | %s | %s | %s |\n", name, rate, flops, seconds, predicted, place }'
}

each() { # name, then options: by home and by determinism
    local name=$1 home det
    shift
    for home in host auto; do for det in on off; do line "$name, home $home, deterministic $det" --home $home --deterministic $det "$@"; done; done
}

echo "| shape | tokens/s | TFLOP/s | s | predicted | placement |"
echo "| --- | --- | --- | --- | --- | --- |"
each 7b --shape qwen2.5-7b --tokens-per-step 131072 --steps 3 --warmup 1
each 3b --shape qwen2.5-3b --tokens-per-step 65536 --steps 5 --warmup 2
each 0.5b --shape qwen2.5-0.5b --tokens-per-step 65536 --steps 10 --warmup 3
line "7b, lengths lognormal:300, 30% trained" --shape qwen2.5-7b --home host --tokens-per-step 131072 --lengths lognormal:300 --trained 0.3 --steps 3 --warmup 1
line "0.5b, lengths lognormal:300, 30% trained" --shape qwen2.5-0.5b --tokens-per-step 65536 --lengths lognormal:300 --trained 0.3 --steps 30 --warmup 3
line "7b, 22 GB of the GPU, 32,768 tokens a step" --shape qwen2.5-7b --device-memory 22G --tokens-per-step 32768 --steps 3 --warmup 1
line "7b, 8,192 tokens a step" --shape qwen2.5-7b --home host --tokens-per-step 8192 --steps 5 --warmup 2
line "14b, 65,536 tokens a step" --shape qwen2.5-14b --tokens-per-step 65536 --steps 2 --warmup 1

for det in on off; do for seq in 16384 32768; do
    line "0.5b, sequence $seq, deterministic $det" --shape qwen2.5-0.5b --seq-len $seq --tokens-per-step 65536 --deterministic $det --steps 4 --warmup 1
done; done
line "gemma-2-2b, sequence 4,096" --shape gemma-2-2b --seq-len 4096 --tokens-per-step 65536 --steps 3 --warmup 1
line "llama-3.2-3b, sequence 8,192" --shape llama-3.2-3b --home host --seq-len 8192 --tokens-per-step 65536 --steps 2 --warmup 1
line "phi-3-mini-4k, sequence 2,048" --shape phi-3-mini-4k --seq-len 2048 --tokens-per-step 32768 --steps 3 --warmup 1

# The settings of bench/peaks.py that are none of these, with weights that are not zeros.
line "life of 0.5b, 8 GB of the GPU, no clipping" --shape qwen2.5-0.5b --home host --device-memory 8G --no-clip --tokens-per-step 32768 --steps 5 --warmup 2
line "life of 3b, no clipping" --shape qwen2.5-3b --home host --no-clip --tokens-per-step 65536 --steps 3 --warmup 1
line "life of 3b, 22 GB of the GPU, sequence 8,192" --shape qwen2.5-3b --home host --device-memory 22G --seq-len 8192 --tokens-per-step 32768 --steps 3 --warmup 1
line "life of 7b, 16,384 tokens a step" --shape qwen2.5-7b --tokens-per-step 16384 --steps 3 --warmup 1
line "life of 7b, 22 GB of the GPU, sequence 4,096, no clipping" --shape qwen2.5-7b --device-memory 22G --no-clip --seq-len 4096 --tokens-per-step 16384 --steps 3 --warmup 1
line "life of 14b, 8,192 tokens a step" --ram 88G --shape qwen2.5-14b --tokens-per-step 8192 --steps 3 --warmup 1

# Steps that take half a minute and more: the traced one is the timed one, and the one before it is short.
long=(--steps 0 --warmup 0)
for det in on off; do
    line "7b, sequence 32,768, deterministic $det" --shape qwen2.5-7b --home host --seq-len 32768 --tokens-per-step 65536 --deterministic $det --steps 2 --warmup 1
    line "7b, sequence 131,072, deterministic $det" --shape qwen2.5-7b --home auto --seq-len 131072 --tokens-per-step 131072 --deterministic $det "${long[@]}" --warmup-tokens 4096
done
for shape in qwen2.5-32b qwen2.5-72b mistral-large-2407; do
    line "$shape, ALIASED, 65,536 tokens a step" --shape $shape --alias-layers --home host --tokens-per-step 65536 "${long[@]}" --warmup-tokens 8192
done

if wanted "train qwen2.5-0.5b"; then bench/train_vs_bench.sh "$program" qwen2.5-0.5b cuda 64 2>&1 | tee -a "$out"; fi
