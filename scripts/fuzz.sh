#!/usr/bin/env bash
# make fuzz MINUTES=n: every fuzz target, n minutes in all, with libFuzzer (clang) under the address and undefined-behavior
# sanitizers.  A scheduled job can call it: the exit status is 1 if anything was found, and each find is left in FOUND.
#
#     scripts/fuzz.sh MINUTES [TARGET ...]        TARGET: jinja, parquet, ... (all of them)
#     scripts/fuzz.sh sum [LOG ...]               CPU time, inputs and finds of all runs in FUZZ_LOG, or in these logs together
#
# JOBS targets run at a time.  FUZZ_CORPUS (build-fuzz/corpus) keeps what was learned, a folder a target, minimised after each run; it
# starts from tests/fuzz/corpus.  Each run of a target appends a line to FUZZ_LOG (build-fuzz/log.tsv).  FUZZERS names a folder of
# fuzzers that were built elsewhere.  An input is a find if it crashes, leaks, breaks a promise, takes 60 s of CPU time or more memory
# than a page or buffer may unpack to (1 GiB).  libFuzzer's own limit counts seconds on the wall: it only ends what never returns.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?usage: scripts/fuzz.sh MINUTES [TARGET ...], or scripts/fuzz.sh sum [LOG ...]}
shift
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
build=build-fuzz
corpus=${FUZZ_CORPUS:-$build/corpus}
found=${FOUND:-$build/found}
journal=${FUZZ_LOG:-$build/log.tsv}
fuzzers=${FUZZERS:-$build/tests/fuzz}

# A line of the log: date, target, seconds of CPU time, inputs, edges reached, edges, files kept, finds.
sum() { # logs
    cat "$@" | awk -F '\t' '
        { seconds[$2] += $3; inputs[$2] += $4; finds[$2] += $8; n++
          if ($5 + 0 >= edges[$2] + 0) { edges[$2] = $5; of[$2] = $6; kept[$2] = $7 }
          all_seconds += $3; all_inputs += $4; all_finds += $8 }
        END {
            for (t in inputs)
                printf "%-16s %11d inputs  %6d of %d edges  %5d files kept  %7.0f s of CPU time  %d finds\n", t, inputs[t], edges[t], of[t],
                    kept[t], seconds[t], finds[t] | "sort"
            close("sort")
            printf "%d inputs in %.2f hours of CPU time, %d finds, %d runs of a target\n", all_inputs, all_seconds / 3600, all_finds, n
        }'
}
if [ "$minutes" = sum ]; then
    [ $# -gt 0 ] || set -- "$journal"
    sum "$@"
    exit
fi

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls -d tests/fuzz/corpus/*/ | sed 's|/$||; s|.*/||')
if [ -z "${FUZZERS:-}" ]; then
    [ -f $build/build.ninja ] || CC=${CC:-clang} cmake -B $build -G Ninja -DMT_FUZZERS=ON -DMT_CUDA=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
    cmake --build $build -j "$jobs" --target "${targets[@]/#/fuzz_}" >/dev/null
fi
# Every target runs once, or, where that would leave jobs idle at the end, several times for a shorter time each.
[ "$jobs" -lt ${#targets[@]} ] || jobs=${#targets[@]}
rounds=1
[ $((${#targets[@]} % jobs)) -eq 0 ] || rounds=$(((4 * jobs + ${#targets[@]} - 1) / ${#targets[@]}))
seconds=$((minutes * 60 / ((${#targets[@]} * rounds + jobs - 1) / jobs)))
[ $seconds -gt 0 ] || seconds=1
mkdir -p "$found" "$corpus" "$(dirname "$journal")"

# The last "cov:" of a log, and of how many counters; runs are libFuzzer's too, CPU time is bash's.
note() { # target, log, corpus folder, file with seconds of CPU time, finds
    local total cov runs
    total=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) inline.*/\1/p' "$2" | head -1)
    cov=$(grep -o 'cov: [0-9]*' "$2" | tail -1 | cut -d' ' -f2)
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$2" | tail -1)
    printf '%s\t%s\t%.1f\t%d\t%d\t%d\t%d\t%d\n' "$(date -u +%F)" "$1" "$(awk 'END { print $1 + $2 }' "$4")" "${runs:-0}" "${cov:-0}" \
        "${total:-0}" "$(ls "$3" | wc -l)" "$5" | tee -a "$journal" | sum
}

finds=$(mktemp) # names of targets with a find: bash forgets the status of jobs that ended long ago
trap 'rm -f "$finds"' EXIT
fuzz() { # target
    local name=$1 mine=$corpus/$1 log=$(dirname "$journal")/fuzz_$1.log status=0 dict=()
    mkdir -p "$mine"
    if [ -f "tests/fuzz/$name.dict" ]; then dict=("-dict=tests/fuzz/$name.dict"); fi
    { time "$fuzzers/fuzz_$name" "$mine" "tests/fuzz/corpus/$name" "${dict[@]}" -max_total_time=$seconds -timeout=1200 -rss_limit_mb=3000 \
        -malloc_limit_mb=1100 -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/$name-" >"$log" 2>&1; } 2>"$log.time" || status=1
    if [ $status -ne 0 ]; then
        echo "$name: a find, in $found; the end of $log:"
        tail -n 30 "$log"
    fi
    rm -rf "$mine.less" && mkdir -p "$mine.less"
    "$fuzzers/fuzz_$name" -merge=1 -rss_limit_mb=3000 "$mine.less" "$mine" "tests/fuzz/corpus/$name" >/dev/null 2>&1 || true
    if [ -n "$(ls "$mine.less")" ]; then rm -rf "$mine" && mv "$mine.less" "$mine"; else rmdir "$mine.less"; fi
    note "$name" "$log" "$mine" "$log.time" $status | head -1
    [ $status -eq 0 ] || echo "$name" >> "$finds"
}

declare -A latest
TIMEFORMAT='%U %S'
for round in $(seq $rounds); do
    for name in "${targets[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ] || { [ $round -gt 1 ] && kill -0 "${latest[$name]}" 2>/dev/null; }; do sleep 0.5; done
        fuzz "$name" &
        latest[$name]=$!
    done
done
wait
[ ! -s "$finds" ]
