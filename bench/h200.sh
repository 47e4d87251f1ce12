#!/usr/bin/env bash
# h200.sh - every line of docs/notebook's tables of training on an H200, again.
#   bench/h200.sh [build/megatrain] [words]       only lines whose name has one of the words: bench/h200.sh build/megatrain 7b 14b
# Without words: the dense models, about 25 minutes, of which 5 for the largest shapes.  Only by their words:
#   experts     models with experts, 131,072 and 262,144 tokens a step
#   updates     models whose updates take longer than their compute, in pieces and without: "updates, 32b", "updates, 123b"
#   lanes       two lanes on one GPU, through peer copies and through host memory, against one lane
#   learn       20 steps of GPT-OSS-20B from random weights on the demo's data: losses
#   processes   two processes of MPI on one GPU, and two lanes, against one process: equal files
#   sanitizers  compute-sanitizer over the kernels of experts and over whole steps
# RAM: host memory to plan with (115G).  OUT: where the full output goes, tables of where the time went included (h200.txt).
# WORK: where files are written (a new directory, removed at the end): learn needs 45 GB, the lines "train" 16 GB.
# DEVICE: cuda; with cpu, learn and processes try their commands on small models.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
program=${1:-build/megatrain} ram=${RAM:-115G} out=${OUT:-h200.txt} device=${DEVICE:-cuda}
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] && shift
words=("$@")
: > "$out"

wanted() { # name: there are no words, or one is part of it
    [ ${#words[@]} -eq 0 ] && return 0
    for word in "${words[@]}"; do case $1 in *"$word"*) return 0 ;; esac done
    return 1
}

named() { # name: it begins with one of the words
    for word in ${words[@]+"${words[@]}"}; do case $1 in "$word"*) return 0 ;; esac done
    return 1
}

measure() { # names of the runs, separated by "|", then options of bench, with --and between the runs
    local names=$1 text
    shift
    text=$("$program" bench --device "$device" --ram "$ram" --table "$@" 2>&1)
    printf '== %s\n   megatrain bench --device %s --ram %s --table %s\n%s\n\n' "$names" "$device" "$ram" "$*" "$text" >> "$out"
    printf '%s\n' "$text" | awk -v names="$names" '
        function print_run() {
            printf "| %s | %s | %s | %s | %s | %s | %s |\n", name[++runs], rate, flops, seconds, predicted, waited, place
            rate = flops = seconds = predicted = waited = place = ""
        }
        BEGIN { n = split(names, name, "|") }
        / tokens\/s$/ { if (rate != "") print_run(); rate = $(NF - 1); for (i = 2; i < NF; i++) if ($i == "s" && $(i + 1) == "a") seconds = $(i - 1) }
        / predicted / { waited = $2; for (i = 1; i < NF; i++) if ($i == "predicted") predicted = $(i + 1) }
        /^  [0-9.]+ TFLOP/ { flops = $1 }
        / sweeps? of micro-batches/ { place = $0; sub(/^ +/, "", place) }
        /^error/ { place = $0 }
        END { print_run() }'
}

line() { if wanted "$1"; then measure "$@"; fi; }
line_if_named() { if named "$1"; then measure "$@"; fi; }

each() { # name, then options: by home and by determinism
    local name=$1 home det
    shift
    for home in host auto; do for det in on off; do line "$name, home $home, deterministic $det" --home $home --deterministic $det "$@"; done; done
}

echo "| shape | tokens/s | TFLOP/s | s | predicted | waited for updates | placement |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
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

if wanted "train qwen2.5-0.5b"; then bench/train_vs_bench.sh "$program" qwen2.5-0.5b "$device" 64 2>&1 | tee -a "$out"; fi

# -- only by their words -------------------------------------------------------------------------------------------------------------------

# Two whole steps, of which the second is timed: after a short one, kernels would be chosen in the timed one.
whole=(--steps 0 --warmup 0)

line_if_named "experts, olmoe-1b-7b, 131,072 tokens a step" --shape olmoe-1b-7b-0924 --tokens-per-step 131072 --steps 3 --warmup 1
for tokens in 131072 262144; do
    line_if_named "experts, qwen3-30b-a3b, ALIASED, $tokens tokens a step" --shape qwen3-30b-a3b --alias-layers --home host --tokens-per-step $tokens "${whole[@]}"
    line_if_named "experts, mixtral-8x7b, ALIASED, $tokens tokens a step" --shape mixtral-8x7b-v0.1 --alias-layers --home host --tokens-per-step $tokens "${whole[@]}"
done

pieces() { # name, then options: updates in pieces, then of whole units
    line_if_named "$1, pieces|$1, whole units" --home host "${@:2}" --and --whole-units
}
aliased=(--alias-layers --tokens-per-step 65536 "${whole[@]}")
for form in float32 8bit; do
    pieces "updates, 32b, $form moments" --shape qwen2.5-32b --adam-state $form "${aliased[@]}"
    pieces "updates, 72b, $form moments" --shape qwen2.5-72b --adam-state $form "${aliased[@]}"
    pieces "updates, 123b, $form moments" --shape mistral-large-2407 --adam-state $form "${aliased[@]}"
done
pieces "updates, olmoe-1b-7b, 131,072 tokens a step" --shape olmoe-1b-7b-0924 --tokens-per-step 131072 --steps 2 --warmup 1
pieces "updates, qwen3-30b-a3b, ALIASED, 131,072 tokens a step" --shape qwen3-30b-a3b --alias-layers --tokens-per-step 131072 "${whole[@]}"

# A model that keeps everything in half of the GPU's memory, which is what each of two lanes has; in turn, because a card's speed drifts.
for turn in 1 2 3; do
    lanes=(--shape qwen2.5-1.5b --tokens-per-step 32768 --shares 2 --steps 10 --warmup 2)
    line_if_named "lanes, one, $turn" "${lanes[@]}"
    line_if_named "lanes, two by peer copies, $turn" --devices 0,0 "${lanes[@]}"
    line_if_named "lanes, two through host memory, $turn" --devices 0,0 --peer 0 "${lanes[@]}"
done

demo_shape() { # directory, config.json: a model directory of this shape with the demo's tokenizer
    mkdir -p "$1"
    cp data/demo_model/tokenizer.json data/demo_model/tokenizer_config.json data/demo_model/generation_config.json "$1"
    echo "$2" > "$1/config.json"
}

demo_run() { # output directory, then the program and more options of train: from random weights on the demo's data
    local to=$1 more=()
    shift
    while [ "$1" != -- ]; do more+=("$1") && shift; done
    "${more[@]}" train --dataset-name demo --dataset-dir data --cache-dir "$work/cache" --from-scratch true --device "$device" --output-dir "$to" --overwrite true "${@:2}" >> "$out" 2>&1 && return
    grep '^error' "$out" | tail -n 1
    return 1
}

learn() {
    local width=2880 layers=24 experts=32 rows=128 flags=(--host-memory "$ram")
    if [ "$device" = cpu ]; then width=64 layers=2 experts=8 rows=2 flags=(); fi
    demo_shape "$work/gpt-oss" "{\"model_type\":\"gpt_oss\",\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":$width,\"intermediate_size\":$width,\"num_hidden_layers\":$layers,
        \"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,\"vocab_size\":201088,\"num_local_experts\":$experts,\"num_experts_per_tok\":4,\"sliding_window\":128,
        \"swiglu_limit\":7.0,\"attention_bias\":true,\"rms_norm_eps\":1e-5,\"rope_theta\":150000.0,\"max_position_embeddings\":131072,\"initializer_range\":0.02,
        \"tie_word_embeddings\":false,\"dtype\":\"bfloat16\"}"
    demo_run "$work/learned" "$program" -- --model-name "$work/gpt-oss" --set model.dtype=bfloat16 --adam-state 8bit --packing true --max-seq-len 1024 --batch-size $rows --num-steps 20 \
        --learning-rate 2e-4 --save-steps 0 --save-only-model true "${flags[@]}" || return 1
    awk '
        match($0, /"loss": [^,]*/) { loss = substr($0, RSTART + 8, RLENGTH - 8); printf "%s%s", n++ ? ", " : "learn, GPT-OSS-20B, 8-bit moments, losses of the steps: ", loss
            if (n == 1) first = loss }
        match($0, /"tokens_per_second": [^,}]*/) && n > 2 { sum += substr($0, RSTART + 21, RLENGTH - 21); k++ }
        END { printf "\nlearn: %.0f tokens/s, %s\n", k ? sum / k : 0, loss < first ? "the loss falls" : "THE LOSS DOES NOT FALL" }' "$work/learned/metrics.jsonl"
}

# All that must be equal: weights, state, losses and norms.  Settings name the directory and the devices, and checksums.json has theirs.
checksums() { (cd "$1" && find checkpoint-* final metrics.jsonl -type f ! -name settings.yaml ! -name checksums.json -exec sha256sum {} + | sort -k 2); }

processes() {
    local options=(--model-name data/demo_model --set model.dtype=bfloat16 --max-seq-len 64 --batch-size 64 --num-steps 20 --save-steps 10 --enable-timing false)
    local one=(--devices 0 --device-memory 40G) two=(--devices 0,0 --device-memory 40G) name a b # attention's workspace follows from the memory
    if [ "$device" = cpu ]; then one=() two=(--devices 0,0); fi
    command -v mpirun > /dev/null || { echo "processes: there is no mpirun"; return 1; }
    if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
    demo_run "$work/one" "$program" -- "${options[@]}" ${one[@]+"${one[@]}"} --bundles 2 || return 1
    demo_run "$work/two" mpirun --oversubscribe --bind-to none -n 2 "$program" -- "${options[@]}" ${one[@]+"${one[@]}"} --bundles 2 || return 1
    demo_run "$work/share" "$program" -- "${options[@]}" ${one[@]+"${one[@]}"} --shares 2 || return 1
    demo_run "$work/lanes" "$program" -- "${options[@]}" "${two[@]}" --shares 2 || return 1
    while IFS='|' read -r name a b; do
        diff <(checksums "$work/$a") <(checksums "$work/$b") >> "$out" && echo "processes, $name on one GPU: equal to one" ||
            echo "processes, $name on one GPU: DIFFERENT from one, see $out"
    done <<< $'two processes of MPI|one|two\ntwo lanes|share|lanes'
}

sanitizers() {
    local tests tool text rc=0
    tests=$(dirname "$program")/tests
    command -v compute-sanitizer > /dev/null || { echo "sanitizers: there is no compute-sanitizer"; return 1; }
    for tool in memcheck racecheck; do
        for test in ops_experts_cuda equiv_placement_cuda "ops_ops_cuda grouped_linear"; do
            # shellcheck disable=SC2086 # a program and its argument
            # One placement of each model; racecheck, which is slower, of those in smaller moments alone.
            text=$(MT_DRAWS=1 MT_ONLY=$([ "$test$tool" = equiv_placement_cudaracecheck ] && echo 'placements_of_smaller*' || echo '*') \
                timeout "${MT_TIMEOUT:-280}" compute-sanitizer --error-exitcode 9 --tool $tool $tests/$test 2>&1)
            rc=$?
            printf '== %s %s\n%s\n\n' "$tool" "$test" "$text" >> "$out"
            echo "sanitizers, $tool, $test: status $rc, $(grep -c '^\[       OK' <<< "$text") tests passed, $(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' <<< "$text" | tail -n 1)"
        done
    done
}

for name in learn processes sanitizers; do if named "$name"; then $name; fi; done
