#!/usr/bin/env bash
# experts_trace.sh - where the time of a step of a model with experts goes: one traced step, its compute stream added up by phase.
#   bench/experts_trace.sh [build/megatrain] [SHAPE]...      olmoe-1b-7b-0924 by default; a SHAPE with a slash is a model directory
# TOKENS: a step's (131072).  FLAGS: more for bench ("--device cuda --ram 115G"); a model larger than RAM needs --alias-layers.
# Products gather their rows while they load them, so gathering has no line.  Backward makes gate and up again, and the sort.
# Models with a shared expert or dense layers: "activation" has theirs, too.
set -euo pipefail
program=${1:-build/megatrain} tokens=${TOKENS:-131072}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- olmoe-1b-7b-0924

table() { # name of the model, then bench's JSON at stdin
    tr '{' '\n' | awk -v model="$1" '
        function field(name) { if (!match($0, "\"" name "\": [^,}]*")) return ""; return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) }
        function phase(name) {
            if (name ~ /^(router |route_|join_halves)/) return "router, route"
            if (name ~ /^expert_sort/) return "sort"
            if (name ~ /^experts /) return name
            if (name ~ /^activation_fwd/) return "activation"
            if (name ~ /^activation_bwd/) return "activation, backward"
            if (name ~ /^combine/) return "combine"
            if (name ~ /^shared /) return "shared expert"
            if (name ~ /^(attention_|qk_|latent|conv_|delta_|gate_|gated_|qkv |o |q |kv |cache_)/) return "mixer"
            if (name ~ /^(norm|rms)/) return "norms"
            if (name ~ /^(head |cross_entropy|embed|rows_|loss)/) return "embedding, head, loss"
            if (name ~ /^(round_grad|grad_norm|fill|adamw|add_|bound|update)/) return "gradients, updates"
            if (name ~ /^(idle|wait)/) return "idle, waiting"
            return "rest"
        }
        BEGIN {
            n = split("router, route|sort|experts gate+up fwd|activation|experts down fwd|combine|experts down dx|activation, backward|experts down dw|experts gate+up dw|experts gate+up dx|shared expert|mixer|norms|embedding, head, loss|gradients, updates|idle, waiting|rest", order, "|")
        }
        field("tokens_per_second") != "" { rate = field("tokens_per_second"); step = field("seconds_per_step"); predicted = field("predicted_seconds") }
        field("track") == "\"compute\"" {
            name = field("name"); gsub(/"/, "", name); p = phase(name)
            seconds[p] += field("seconds"); calls[p] += field("count"); flops[p] += field("flops"); all += field("seconds")
        }
        END {
            if (!all) { print "no trace of " model > "/dev/stderr"; exit 1 }
            printf "%s: %.0f tokens/s, %.3f s a step, %.3f predicted\n| phase | ms | share | calls | TFLOP/s |\n| --- | --- | --- | --- | --- |\n", model, rate, step, predicted
            for (i = 1; i <= n; i++) if ((p = order[i]) in seconds)
                printf "| %s | %.1f | %.1f%% | %d | %s |\n", p, 1e3 * seconds[p], 100 * seconds[p] / all, calls[p], p ~ /^experts/ && seconds[p] ? sprintf("%.4g", flops[p] / seconds[p] / 1e12) : ""
            printf "| all | %.1f | | | |\n", 1e3 * all
        }'
}

for shape in "$@"; do
    what=(--shape "$shape")
    case $shape in */*) what=(--model "$shape") ;; esac
    # shellcheck disable=SC2086 # several words
    "$program" bench "${what[@]}" --tokens-per-step "$tokens" --steps 2 --warmup 1 --table --json --quiet ${FLAGS:-} | table "$shape"
done
