#!/usr/bin/env bash
# What a run of ctest left out, counted by reason: scripts/skipped.sh build/Testing/Temporary/LastTest.log
set -euo pipefail
n=$(grep -c '^skipped: ' "$1" || true)
if [ "$n" -eq 0 ]; then
    echo "no case was skipped"
    exit
fi
echo "$n cases were skipped because something is missing:"
grep '^skipped: ' "$1" | sed 's/^skipped: //' | sort | uniq -c | sort -rn
