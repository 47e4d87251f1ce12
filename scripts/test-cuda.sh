#!/usr/bin/env bash
# make test-cuda: every op and the device itself on this machine's GPU.  Ends with a count of passed and failed.
#     scripts/test-cuda.sh [BUILD] [--sanitize]     --sanitize: a share of it under compute-sanitizer, slowly
set -uo pipefail
build=${1:-build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
broken=0

run() { # command...
    "$@" 2>&1 | tee -a "$log" | grep -vE '^\[ (RUN|      OK) ' || true
    local rc=${PIPESTATUS[0]}
    if [ "$rc" = 77 ]; then exit 1; fi # no GPU, or built without: the test said which
    if [ "$rc" -gt 1 ] && ! tail -3 "$log" | grep -q 'FAILED'; then broken=$((broken + 1)); fi # died
}

for test in "$build"/tests/*_cuda; do
    [ -x "$test" ] || { echo "no CUDA tests in $build: build first"; exit 1; }
    run "$test"
done
if [ "${2:-}" = --sanitize ]; then
    run compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/ops_ops_cuda" embed rmsnorm rope glu rows cross_entropy round_grad grad_norm adamw join_halves
    run compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/ops_ops_cuda" attention
    run compute-sanitizer --tool racecheck --error-exitcode 9 "$build/tests/ops_ops_cuda" rmsnorm attention cross_entropy grad_norm
fi
passed=$(grep -cE '^\[       OK ' "$log")
failed=$(grep -cE '^\[  FAILED  \] [^0-9]' "$log")
# cmocka names a failed test twice: when it fails and in its summary.
failed=$((failed / 2 + broken))
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
