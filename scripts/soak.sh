#!/usr/bin/env bash
# make soak: the long runs.  10,000 kills (at file operations, at random moments, failing operations, and all of it mixed with slow and
# full disks); every directory that a power failure may leave; every kind of file at every path; many placements; the plan held to its
# word; files eight times as large in the table of what reading costs, and 5,000 made inputs for each fuzz target that makes them.
# All parts run even if one fails; the last lines name those that did.  MT_KILLS, MT_STATES, MT_DRAWS and MT_GENERATED make it shorter.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
failed=()

part() { # name, command
    local name=$1 start=$SECONDS
    shift
    echo "-- $name"
    if "$@"; then
        echo "-- $name: passed in $((SECONDS - start)) s"
    else
        echo "-- $name: FAILED after $((SECONDS - start)) s"
        failed+=("$name")
    fi
}

made_inputs() { # of every fuzz target that makes them; the others replay their corpus
    local replay name status=0
    for replay in "$build"/tests/fuzz/fuzz_*_replay; do
        name=$(basename "$replay" _replay)
        MT_GENERATED=${MT_GENERATED:-5000} "$replay" "tests/fuzz/corpus/${name#fuzz_}" || status=1
    done
    return $status
}

part "kills" scripts/kills.sh $((4 * ${MT_KILLS:-2500})) "$jobs" "$build/kills"
part "power failures" env MT_STATES="${MT_STATES:-0}" MT_STATE_JOBS="$jobs" "$build/tests/cli_power_loss"
part "file kinds" env MT_KINDS=all "$build/tests/cli_file_kinds"
part "placements" env MT_DRAWS="${MT_DRAWS:-400}" "$build/tests/equiv_placement"
part "sequences" env MT_DRAWS="${MT_DRAWS:-400}" "$build/tests/equiv_sequences"
part "plans of every shape" env MT_THOROUGH=1 "$build/tests/unit_plan_search"
part "memory cgroups of the predicted size" env MT_THOROUGH=1 "$build/tests/cli_cgroup"
if [ -x "$build/tests/cost_readers" ]; then # needs a compiler that can count
    part "what reading costs" env MT_THOROUGH=1 MT_SHOW=1 "$build/tests/cost_readers"
    part "what planning costs" env MT_THOROUGH=1 MT_SHOW=1 "$build/tests/cost_plan"
fi
part "made inputs" made_inputs

[ ${#failed[@]} -eq 0 ] || {
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
}
echo "all parts passed in $SECONDS s"
