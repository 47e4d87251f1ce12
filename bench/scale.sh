#!/usr/bin/env bash
# scale.sh - one model on 1, 2, 4 ... GPUs of this machine: tokens/s, and whether the losses are equal to the last bit.
#   bench/scale.sh MODEL_DIR [build/megatrain]
# GPUS: how many at most (all that nvidia-smi lists).  BATCH: samples a step (512).  LENGTH: tokens of a sample (1024).  STEPS: of each run (12).
# FLAGS: more for train; with "--device cpu" and GPUS=2 it runs on the CPU.  OUT: a folder with 14 bytes a parameter free, for the finished models (a temporary one).
set -euo pipefail
model=${1:?usage: bench/scale.sh MODEL_DIR [build/megatrain]} program=${2:-build/megatrain}
gpus=${GPUS:-$(nvidia-smi -L | wc -l)} batch=${BATCH:-512} length=${LENGTH:-1024} steps=${STEPS:-12}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"

counts=() n=1
while [ "$n" -lt "$gpus" ]; do counts+=("$n") n=$((n * 2)); done
counts+=("$gpus")

run() { # GPUs
    local devices=""
    [ "$1" -gt 1 ] && devices="--devices $(seq -s, 0 $(($1 - 1)))"
    # shellcheck disable=SC2086 # several words
    "$program" train --model-name "$model" --dataset-path "$out/data.jsonl" $devices --shares "$gpus" --batch-size "$batch" --max-seq-len "$length" --packing \
        --num-steps "$steps" --log-interval 1 --save-steps 0 --save-only-model --output-dir "$out/$1" --overwrite --quiet ${FLAGS:-} > "$out/$1.txt" 2>&1
}

# Plain text of pseudo-random words: enough for every step.
awk -v n=$((batch * steps * length / 8)) 'BEGIN { srand(1); for (i = 0; i < n; i++) { s = ""; for (k = 0; k < 16; k++) s = s " " int(rand() * 100000); print "{\"text\": \"" s "\"}" } }' > "$out/data.jsonl"

losses() { grep -o '"loss": [^,}]*' "$out/$1/metrics.jsonl"; }
echo "| GPUs | tokens/s | times | bits |"
echo "| --- | --- | --- | --- |"
for n in "${counts[@]}"; do
    run "$n" || { echo "| $n | $(grep -m1 '^error' "$out/$n.txt") | | |"; continue; }
    # The last third of the steps: the first ones make what is made once.
    rate=$(grep -o '"tokens_per_second": [0-9.]*' "$out/$n/metrics.jsonl" | awk -v skip=$((steps * 2 / 3)) 'NR > skip { s += $2; k++ } END { printf "%.0f", k ? s / k : 0 }')
    [ "$n" = 1 ] && first=$rate
    same=$([ "$(losses "$n")" = "$(losses "${counts[0]}")" ] && echo equal || echo DIFFERENT)
    awk -v n="$n" -v r="$rate" -v f="${first:-0}" -v s="$same" 'BEGIN { printf "| %d | %d | %.2f | %s |\n", n, r, f ? r / f : 0, s }'
done
