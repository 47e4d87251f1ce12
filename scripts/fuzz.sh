#!/usr/bin/env bash
# make fuzz MINUTES=n: every fuzz target in turn, n minutes in all, with libFuzzer (clang) under the address and undefined-behaviour
# sanitizers.  A scheduled job can call it: the exit status is 1 if anything was found, and each find is left in FOUND.
#
#     scripts/fuzz.sh MINUTES [TARGET ...]        TARGET: jinja, parquet, ... (all of them)
#
# FUZZ_CORPUS (build-fuzz/corpus) keeps what was learned, a folder a target, minimised after each run; it starts from tests/fuzz/corpus.
# An input is a find if it crashes, leaks, breaks a promise, takes 60 s of CPU time or more memory than a page or
# buffer may unpack to (1 GiB).
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?usage: scripts/fuzz.sh MINUTES [TARGET ...]}
shift
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
build=build-fuzz
corpus=${FUZZ_CORPUS:-$build/corpus}
found=${FOUND:-$build/found}

[ -f $build/build.ninja ] || CC=${CC:-clang} cmake -B $build -G Ninja -DMT_FUZZERS=ON -DMT_CUDA=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')
cmake --build $build -j "$jobs" --target "${targets[@]/#/fuzz_}" >/dev/null
seconds=$((minutes * 60 / ${#targets[@]}))
[ $seconds -gt 0 ] || seconds=1
mkdir -p "$found"

# The last "cov:" of a log, and of how many counters; runs are libFuzzer's too, CPU time is bash's.
summary() { # target, log, corpus folder, file with seconds of CPU time
    local total cov runs
    total=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) inline.*/\1/p' "$2" | head -1)
    cov=$(grep -o 'cov: [0-9]*' "$2" | tail -1 | cut -d' ' -f2)
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$2" | tail -1)
    printf '%-16s %10s inputs  %6s of %s edges  %5s files kept  %5.0f s of CPU time\n' "$1" "${runs:-?}" "${cov:-?}" "${total:-?}" "$(ls "$3" | wc -l)" \
        "$(awk 'END { print $1 + $2 }' "$4")"
}

failed=0
TIMEFORMAT='%U %S'
for name in "${targets[@]}"; do
    mine=$corpus/$name log=$build/fuzz_$name.log
    mkdir -p "$mine"
    dict=()
    [ -f "tests/fuzz/$name.dict" ] && dict=("-dict=tests/fuzz/$name.dict")
    status=0
    { time "$build/tests/fuzz/fuzz_$name" "$mine" "tests/fuzz/corpus/$name" "${dict[@]}" -max_total_time=$seconds -timeout=120 -rss_limit_mb=3000 \
        -malloc_limit_mb=1100 -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/$name-" >"$log" 2>&1; } 2>"$log.time" || status=$?
    if [ $status -ne 0 ]; then
        failed=1
        echo "$name: a find, in $found; the end of $log:"
        tail -n 30 "$log"
    fi
    mkdir -p "$mine.less"
    "$build/tests/fuzz/fuzz_$name" -merge=1 -rss_limit_mb=3000 "$mine.less" "$mine" "tests/fuzz/corpus/$name" >/dev/null 2>&1 || true
    if [ -n "$(ls "$mine.less")" ]; then rm -rf "$mine" && mv "$mine.less" "$mine"; else rmdir "$mine.less"; fi
    summary "$name" "$log" "$mine" "$log.time"
done
exit $failed
