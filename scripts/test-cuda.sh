#!/usr/bin/env bash
# make test-cuda: every op, the device itself, whole models and a short training run on this machine's GPU.  Ends with a count of passed and
# failed; a few minutes.
#     scripts/test-cuda.sh [BUILD] [--sanitize]     --sanitize: a share of the ops under compute-sanitizer too, slowly
# BUILD is any folder with megatrain and tests/*_cuda in it.  The numbers given to the ops are new each time; MT_SEED repeats a run's.
set -muo pipefail # m: what is started has a process group of its own, to end it by
build=${1:-build}
log=$(mktemp)
runs=$(mktemp -d)
broken=0
started=()
clean_up() {
    for pid in $(jobs -rp); do kill -- "-$pid"; done
    rm -rf "$log" "$runs"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
export MT_SEED=${MT_SEED:-$(date +%s)} MT_DRAWS=${MT_DRAWS:-8} MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-11}
echo "MT_SEED=$MT_SEED"

# Most of the time goes to the host: drawing numbers, the CPU's truth, cuDNN compiling.  So programs run beside each other; few, because some
# have a thread on every core.
at_once=$(($(nproc) / 4 > 2 ? $(nproc) / 4 : 2))
start() { # name, command...
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    {
        SECONDS=0
        timeout --foreground "${MT_TIMEOUT:-240}" "${@:2}" > "$runs/$1.out" 2>&1
        echo "$? $SECONDS" > "$runs/$1.ended"
    } &
    started+=("$1")
}

report() { # name: what a program that was started and has ended said, and how
    local rc seconds
    read -r rc seconds < "$runs/$1.ended"
    tee -a "$log" < "$runs/$1.out" | grep -vE '^\[( RUN |       OK |==========|  PASSED )'
    if [ "$rc" = 77 ]; then exit 1; fi # no GPU, or built without: the test said which
    if [ "$rc" -gt 1 ] && ! tail -3 "$runs/$1.out" | grep -q 'FAILED'; then # died
        broken=$((broken + 1))
        echo "ended with status $rc"
    fi
    echo "$seconds s: $1"
}

run() { # name, command...: alone
    wait
    start "$@"
    wait
    report "$1"
}

verdict() { # name, status: as cmocka prints it, so that the count below sees it
    if [ "$2" = 0 ]; then echo "[       OK ] $1" >> "$log"; else printf '[  FAILED  ] %s\n[  FAILED  ] %s\n' "$1" "$1" | tee -a "$log"; fi
}

# 200 steps of the demo, which is in fp32, here and on the CPU: losses a thousandth apart at most, on average over ten steps.
demo() { # device
    start "demo_$1" "$build/megatrain" train --config configs/demo.yaml --num-steps 200 --device "$1" --overwrite true --set "save.output_dir=$runs/$1" \
        --set logging.log_interval=1 --set eval.max_samples=8
}
losses() { sed -n 's/.*"loss": \([-+.0-9e]*\), "learning_rate".*/\1/p' "$runs/$1/metrics.jsonl"; }
demo_follows_the_cpu() {
    paste <(losses cpu) <(losses cuda) | awk '
        { cpu += $1; gpu += $2 }
        NR % 10 == 0 { off = gpu / cpu - 1; if (off < 0) off = -off; if (off > worst) worst = off; cpu = gpu = 0 }
        END { printf "200 steps of the demo: %.1e from the CPU at most\n", worst; exit !(NR == 200 && worst < 0.001) }' && return
    tail -n 2 "$runs"/demo_*.out
    return 1
}

[ -x "$build/tests/unit_device_cuda" ] || { echo "no CUDA tests in $build: build first"; exit 1; }
run unit_device_cuda "$build/tests/unit_device_cuda" # knows whether there is a GPU
started=()
mapfile -t tests < <(printf '%s\n' "$build"/tests/*_cuda | sort -r) # the longest happen to be the last by name: they go first
for test in "${tests[@]}"; do
    name=${test##*/}
    case $name in
    unit_device_cuda | equiv_faults_cuda | cli_full_gpu_cuda) ;; # look at free memory, so they run alone
    fake_cuda) ;;                                                # a folder
    ops_attention_cuda) for share in 1 2 3 4; do start "$name $share" "$test" "$share/4"; done ;;
    *) start "$name" "$test" ;;
    esac
done
beside=("${started[@]}")
demo cpu
demo cuda
wait
for name in "${beside[@]}"; do report "$name"; done
demo_follows_the_cpu
verdict "the demo follows the CPU" $?
run equiv_faults_cuda "$build/tests/equiv_faults_cuda"
run cli_full_gpu_cuda "$build/tests/cli_full_gpu_cuda"
if [ "${2:-}" = --sanitize ]; then
    check() { run "$1 $2 and others" compute-sanitizer --error-exitcode 9 --tool "$1" "$build/tests/ops_ops_cuda" "${@:2}"; }
    check memcheck embed norm qk_prepare activation rows normhead cross_entropy entropy_factor round_grad grad_norm adamw lion join_halves expand linear
    check memcheck attention cache_attention
    # Slower, so by cases: every kernel that has shared memory, at small shapes.
    check racecheck embed:2 embed:6 embed:7 embed:11 norm:2 norm:4 norm:6 norm:12 norm:17 normhead:2 normhead:3 activation:2 cross_entropy:2 cross_entropy:8 cross_entropy:21 cross_entropy:22 entropy_factor:2
    check racecheck qk_prepare:5 qk_prepare:8 qk_prepare:10 qk_prepare:13 qk_prepare:14 qk_prepare:19 qk_prepare:23 round_grad:1 grad_norm:3 adamw:1 adamw:2 adamw:5 adamw:6 adamw:8 adamw:9 lion:2 lion:6 lion:8 lion:9 linear:4 linear:7
    check racecheck attention:2 attention:5 attention:6 attention:9 attention:10 attention:18 attention:23 attention:24 attention:28 cache_attention:3
fi
passed=$(grep -cE '^\[       OK ' "$log")
failed=$(grep -cE '^\[  FAILED  \] [^0-9]' "$log")
# cmocka names a failed test twice: when it fails and in its summary.
failed=$((failed / 2 + broken))
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
