#!/usr/bin/env bash
# train_vs_bench.sh - what a run pays beyond its steps: `megatrain train` on chat data from files (lengths that vary, about 30% of the tokens
# trained, clipping, metrics every step, one checkpoint among the 20 steps that count) against `megatrain bench` on random tokens of the
# same number, lengths and share.
#   bench/train_vs_bench.sh [build/megatrain] [qwen2.5-0.5b|qwen2.5-1.5b|qwen2.5-3b|tiny] [cuda|cpu] [rows of 1024 a step]
# WORK: where everything is written (a new directory, removed at the end).  MODEL: a model directory to train instead of one made here.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build/megatrain}") shape=${2:-qwen2.5-0.5b} device=${3:-cuda} rows=${4:-64}
seq=1024 steps=26 first=6 last=25 save=13 # steps 6 to 25 count; the checkpoint of step 13 is written under those after it

qwen() { # D F L H K V
    echo "{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":$1,\"intermediate_size\":$2,\"num_hidden_layers\":$3," \
        "\"num_attention_heads\":$4,\"num_key_value_heads\":$5,\"vocab_size\":$6,\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0," \
        "\"max_position_embeddings\":32768,\"initializer_range\":0.02,\"dtype\":\"bfloat16\"}"
}
case $shape in
qwen2.5-0.5b) config=$(qwen 896 4864 24 14 2 151936) ;;
qwen2.5-1.5b) config=$(qwen 1536 8960 28 12 2 151936) ;;
qwen2.5-3b) config=$(qwen 2048 11008 36 16 2 151936) ;;
tiny) config=$(qwen 128 384 4 4 2 4096) seq=128 ;;
*) echo "no shape $shape here: qwen2.5-0.5b, 1.5b, 3b or tiny" >&2 && exit 2 ;;
esac

work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work/data" "$work/shape"

# Conversations of digits, each of them a token of the demo's tokenizer: log-normal lengths of mean 300 (for rows of 1024), 30% of it the answer.
awk -v tokens=$((rows * seq * (steps + 2))) -v seq=$seq 'BEGIN {
    srand(1); mean = 300 * seq / 1024
    printf "["
    for (total = 0; total < tokens; total += n) {
        n = int(exp(log(mean) - 0.32 + 0.8 * sqrt(-2 * log(1 - rand())) * cos(6.2831853 * rand())))
        if (n < 24) n = 24
        if (n > seq - 24) n = seq - 24
        answer = int(0.3 * n)
        printf "%s{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\",\"content\":\"%s\"}]}", total ? "," : "", digits(n - answer - 12), digits(answer)
    }
    print "]"
}
function digits(k,   s) { s = ""; for (; k > 0; k -= 9) s = s substr(1000000000 + int(rand() * 999999999), 2, k < 9 ? k : 9); return s }' > "$work/data/chat.json"
echo '{"chat":{"file_name":"chat.json","formatting":"sharegpt","columns":{"messages":"messages"},"tags":{"role_tag":"role","content_tag":"content","user_tag":"user","assistant_tag":"assistant"}}}' \
    > "$work/data/dataset_info.json"

run() { # model, output, steps, the step that saves, more options
    "$program" train --device "$device" --model-name "$1" --dataset-name chat --dataset-dir "$work/data" --cache-dir "$work/cache" --max-seq-len $seq --packing true \
        --batch-size "$rows" --learning-rate 1e-5 --max-grad-norm 1.0 --output-dir "$2" --num-steps "$3" --save-steps "$4" --log-interval 1 --overwrite true "${@:5}"
}

# Random weights in files: a run of one step from nothing leaves them.
model=${MODEL:-$work/first/final}
if [ ! -e "$model/config.json" ]; then
    cp data/demo_model/tokenizer.json data/demo_model/tokenizer_config.json data/demo_model/generation_config.json "$work/shape"
    echo "$config" > "$work/shape/config.json"
    run "$work/shape" "$work/first" 1 0 --from-scratch true --save-only-model true > "$work/first.log" 2>&1 || { tail -n 5 "$work/first.log" && exit 1; }
    rm -rf "$work"/first/checkpoint-*
fi
run "$model" "$work/run" $steps $save > "$work/run.log" 2>&1 || { tail -n 5 "$work/run.log" && exit 1; }
grep -E "saved|predicted" "$work/run.log" | head -n 3

# One line of metrics a step; the tokens of a step are the difference of two sums.
field() { sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
grep '"step_seconds"' "$work/run/metrics.jsonl" > "$work/steps"
paste <(field step < "$work/steps") <(field step_seconds < "$work/steps") <(field num_input_tokens_seen < "$work/steps") <(field num_trained_tokens_seen < "$work/steps") \
    <(field wait_data_seconds < "$work/steps") <(field wait_save_seconds < "$work/steps") <(field wait_update_seconds < "$work/steps") |
    awk -v first=$first -v last=$last '{ if ($1 >= first && $1 <= last) print $1, $2, $3 - seen, $4 - trained, $5, $6, $7; seen = $3; trained = $4 }' > "$work/table"

tokens=$(awk '{ n += $3 } END { printf "%.0f", n / NR }' "$work/table")
trained=$(awk '{ n += $3; t += $4 } END { printf "%.3f", t / n }' "$work/table")
"$program" bench --device "$device" --model "$model" --seq-len $seq --tokens-per-step "$tokens" --lengths lognormal:$((300 * seq / 1024)) --trained "$trained" --steps 20 --warmup 5 --json \
    > "$work/bench.json"
cp "$work/table" "$work/bench.json" "${KEEP:-$work}/" 2> /dev/null || true

sort -k2 -g "$work/table" | awk -v shape="$shape" -v bench="$(field median_seconds < "$work/bench.json")" -v bench_slowest="$(field slowest_seconds < "$work/bench.json")" \
    -v tokens="$tokens" -v trained="$trained" -v save=$save '
    { s[NR] = $2; n[NR] = $3; at[NR] = $1; all += $2; seen += $3; data += $5; wait_save += $6; update += $7; if ($6 < 0.001) { calm += $2; calm_seen += $3 } }
    END {
        median = (s[int((NR + 1) / 2)] + s[int(NR / 2) + 1]) / 2
        printf "%s, %d tokens a step (%.0f%% trained), steps %d\n", shape, tokens, 100 * trained, NR
        printf "  bench           %8.0f tokens/s   median %.4f s, slowest %.4f s\n", tokens / bench, bench, bench_slowest
        printf "  train, median   %8.0f tokens/s   %.4f s, %.1f%% of bench\n", tokens / median, median, 100 * bench / median
        printf "  train, slowest  %8.0f tokens/s   %.4f s (step %d; the checkpoint is of step %d), %.1f%%\n", n[NR] / s[NR], s[NR], at[NR], save, 100 * bench / s[NR] * n[NR] / tokens
        printf "  train, all      %8.0f tokens/s   %.1f%% of bench; without steps that waited for the checkpoint %.0f, %.1f%%\n", seen / all, 100 * bench / tokens * seen / all,
            calm_seen / calm, 100 * bench / tokens * calm_seen / calm
        printf "  waits of a step: data %.4f s, checkpoint %.4f s, update %.4f s\n", data / NR, wait_save / NR, update / NR
    }'
