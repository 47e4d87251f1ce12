#!/usr/bin/env bash
# make test: the whole suite in the release build, then the same code under the sanitizers: address and undefined behavior over
# everything, threads over what runs threads.  What the release build has drawn at length is drawn less often there: fewer random cases
# (MT_DRAWS), kills (MT_KILLS) and power failures (MT_STATES), and every 19th fault instead of each (MT_FAULT_STRIDE).  Under
# ThreadSanitizer it is every 61st: threads meet in few places after a fault, and each costs five times as much there.  Cases that
# need what the machine lacks (a GPU, a pseudo-terminal) say so and are counted.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)
at_once=$((jobs + 1)) # many tests wait for threads that sleep and programs that start

run() { # build directory, arguments for ctest
    local dir=$1 status=0
    shift
    ctest "$@" -j "$at_once" || status=$?
    scripts/skipped.sh "$dir/Testing/Temporary/LastTest.log"
    return $status
}

run "${BUILD:-build}" --test-dir "${BUILD:-build}" --output-on-failure

under() { # preset, what to build, arguments for ctest
    local preset=$1 target=$2
    shift 2
    echo "-- under the sanitizers: $preset"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs" --target "$target" >/dev/null
    MT_DRAWS=${MT_DRAWS:-6} MT_KILLS=${MT_KILLS:-6} MT_STATES=${MT_STATES:-8} MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-19} \
        run "build-$preset" --preset "$preset" "$@"
}
under asan all
MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-61} under tsan threads -L threads
