#!/usr/bin/env bash
# make soak: the long runs.  200 kills at file operations, 200 at random moments, 200 failing operations; many placements; the plan
# held to its word.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}

echo "kills: MT_KILLS=${MT_KILLS:-200}"
MT_KILLS=${MT_KILLS:-200} "$build/tests/cli_kill"

echo "placements: MT_DRAWS=${MT_DRAWS:-400}"
MT_DRAWS=${MT_DRAWS:-400} "$build/tests/equiv_placement"
MT_DRAWS=${MT_DRAWS:-400} "$build/tests/equiv_sequences"

echo "the plan: every shape, and runs in memory cgroups of the predicted size"
MT_THOROUGH=1 "$build/tests/unit_plan_search"
MT_THOROUGH=1 "$build/tests/cli_cgroup"
