#!/usr/bin/env bash
# make demo: ask a model with random weights, train it, ask again.  Everything goes through the program as anybody would use it.
#   scripts/demo.sh [build/megatrain]
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/megatrain}
run=runs/demo/final

ask() { # model directory, then options: the held-out requests, answered by the likeliest tokens and compared
    "$program" generate "$@" --chat --prompts data/demo_test.json --check --max-new-tokens 48 --dtype float32 --quiet
}

echo "== Before: random weights, 704 requests that are not in the training data"
ask data/demo_model --from-scratch | tail -n 1

echo
echo "== Training: about two minutes on two idle cores, longer on busy ones"
"$program" train --config configs/demo.yaml --overwrite true

echo
echo "== After: the same requests"
ask "$run"

cat <<END

The model is in $run; ask it something yourself:
  $program generate $run --chat \\
      --prompt "Write 27 March 2031 as an ISO date."
END
