#!/usr/bin/env bash
# make test: the whole suite in the release build, then the same code under the sanitizers: address and undefined behaviour over
# everything, threads over what runs threads.  Random tests draw fewer cases there (MT_DRAWS), and every 19th fault is injected
# instead of each (MT_FAULT_STRIDE).  Cases that need what the machine lacks (a GPU, a pseudo-terminal) say so and are counted.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)

run() { # build directory, arguments for ctest
    local dir=$1 status=0
    shift
    ctest "$@" -j "$jobs" || status=$?
    scripts/skipped.sh "$dir/Testing/Temporary/LastTest.log"
    return $status
}

run "${BUILD:-build}" --test-dir "${BUILD:-build}" --output-on-failure

under() { # preset, arguments for ctest
    local preset=$1
    shift
    echo "-- under the sanitizers: $preset"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs" >/dev/null
    MT_DRAWS=${MT_DRAWS:-6} MT_FAULT_STRIDE=${MT_FAULT_STRIDE:-19} run "build-$preset" --preset "$preset" "$@"
}
under asan
under tsan -L threads
