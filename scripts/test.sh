#!/usr/bin/env bash
# make test: the whole suite in the release build, then a quick share of it under the sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)

ctest --preset release -j "$jobs"

# Address + undefined over the unit, ops and cli tests; threads over what runs threads.
share() { # preset, label expression
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1" -j "$jobs" >/dev/null
    ctest --preset "$1" -j "$jobs" -L "$2"
}
share asan 'unit|ops'
share tsan 'threads'
