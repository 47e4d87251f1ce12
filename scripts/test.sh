#!/usr/bin/env bash
# make test: the whole suite in the release build, then the same code under the sanitizers: address and undefined behavior over
# everything, threads over what runs threads.  What the release build has drawn at length is drawn less often there: fewer random cases
# and rows of tables (MT_DRAWS), kills (MT_KILLS) and power failures (MT_STATES), and every 19th fault instead of each (MT_FAULT_STRIDE).  Under
# ThreadSanitizer it is every 61st: threads meet in few places after a fault, and each costs five times as much there.  Cases that
# need what the machine lacks (a GPU, a pseudo-terminal) say so and are counted.
#
# All three stages run, whatever one of them finds; the end sums them up, and the status is 1 if any of them failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=${BUILD:-build}
jobs=$(nproc 2>/dev/null || echo 2)
at_once=$((jobs + 1)) # many tests wait for threads that sleep and programs that start
log=$(mktemp)
summary=()
status=0
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

minutes() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

end_stage() { # name, verdict, seconds
    summary+=("$(printf '   %-8s %-12s %s' "$1" "$(minutes "$3")" "$2")")
    [ "$2" = passed ] || status=1
}

quietly() { # a command whose output is shown if it fails
    "$@" > "$log" 2>&1 && return
    grep -A 20 -m 3 -iE 'FAILED|error' "$log" || tail -n 40 "$log"
    return 1
}

compile() { # preset, build directory, what to build
    [ "$2" = "$build" ] || quietly cmake --preset "$1" || return
    set -- cmake --build "$2" -j "$jobs" --target "$3"
    if [ -t 1 ]; then "$@"; else quietly "$@"; fi # on a terminal ninja needs one line
}

stage() { # name, build directory, what to build, arguments for ctest
    local name=$1 dir=$2 target=$3 began=$SECONDS verdict=passed
    shift 3
    echo "-- $name: building"
    if ! compile "$name" "$dir" "$target"; then
        end_stage "$name" "FAILED: it does not build" $((SECONDS - began))
        return
    fi
    echo "-- $name: testing"
    if ! ctest --test-dir "$dir" --output-on-failure -j "$at_once" "$@" | tee "$log"; then
        verdict="FAILED: $(sed -n '/(Skipped)$/d; s/^\t *[0-9]* - \([^ ]*\) (.*/\1/p' "$log" | paste -sd ' ')"
    fi
    [ ! -f "$dir/Testing/Temporary/LastTest.log" ] || scripts/skipped.sh "$dir/Testing/Temporary/LastTest.log"
    end_stage "$name" "$verdict" $((SECONDS - began))
}

echo "make test builds three times (release, AddressSanitizer, ThreadSanitizer) and tests each build: about half an hour on two idle cores."
echo "The short form, which needs a few minutes of that: cmake --build $build && ctest --test-dir $build -j $at_once"
stage release "$build" all
export MT_DRAWS=${MT_DRAWS:-6} MT_KILLS=${MT_KILLS:-6} MT_STATES=${MT_STATES:-8}
MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-19} stage asan build-asan all
MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-61} stage tsan build-tsan threads -L threads

echo
echo "-- make test, $(minutes $SECONDS):"
printf '%s\n' "${summary[@]}"
exit $status
