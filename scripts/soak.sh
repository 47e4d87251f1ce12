#!/usr/bin/env bash
# make soak: the long runs.  10,000 kills (at file operations, at random moments, failing operations, and all of it mixed with slow and
# full disks); every directory that a power failure may leave; many placements; the plan held to its word; files eight times as large in
# the table of what reading costs, and 5,000 made inputs for each fuzz target that makes them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}

jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
echo "kills: MT_KILLS=${MT_KILLS:-2500} of each of four kinds, shared by $jobs processes"
kills=()
for share in $(seq 0 $((jobs - 1))); do
    MT_KILLS=${MT_KILLS:-2500} MT_KILL_SHARE=$share/$jobs "$build/tests/cli_kill" &
    kills+=($!)
done
for pid in "${kills[@]}"; do wait "$pid"; done

echo "power failures: every state that differs"
MT_STATES=${MT_STATES:-0} "$build/tests/cli_power_loss"

echo "file kinds: every path, every kind"
MT_KINDS=all "$build/tests/cli_file_kinds"

echo "placements: MT_DRAWS=${MT_DRAWS:-400}"
MT_DRAWS=${MT_DRAWS:-400} "$build/tests/equiv_placement"
MT_DRAWS=${MT_DRAWS:-400} "$build/tests/equiv_sequences"

echo "the plan: every shape, and runs in memory cgroups of the predicted size"
MT_THOROUGH=1 "$build/tests/unit_plan_search"
MT_THOROUGH=1 "$build/tests/cli_cgroup"

echo "what reading costs"
if [ -x "$build/tests/cost_readers" ]; then MT_THOROUGH=1 MT_SHOW=1 "$build/tests/cost_readers"; fi

echo "made inputs: MT_GENERATED=${MT_GENERATED:-5000}"
for replay in "$build"/tests/fuzz/fuzz_*_replay; do
    name=$(basename "$replay" _replay)
    MT_GENERATED=${MT_GENERATED:-5000} "$replay" "tests/fuzz/corpus/${name#fuzz_}"
done
