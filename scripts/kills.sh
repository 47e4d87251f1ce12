#!/usr/bin/env bash
# Kill training runs and compare what they end with: N disturbances in all, shared by JOBS processes.  A quarter each: kills at file
# operations, kills at random moments, operations that fail, and all of it mixed with slow and full disks and signals that ask.
#
#     scripts/kills.sh N JOBS OUTDIR
#
# What OUTDIR has from earlier calls counts: only what is missing to N is made, in a new round, which draws other places and moments.
# OUTDIR/summary.txt counts all rounds: what was done and what became of it.  OUTDIR/kept has the directories of runs that ended with
# other bytes, and OUTDIR/round-ROUND-* the events and the output of each process.  The exit status is 1 if any run did.
# KILL_TEST and MT_PROGRAM name programs elsewhere.  MT_KILL_SECONDS=n stops each quarter of a round after n seconds; the next call
# continues.  MT_KILL_ROUND=n numbers the round (one more than the last), so that OUTDIRs of several machines, given numbers far apart, can be
# put together: copy their files into one, and N = 0 prints the sum.
set -euo pipefail
n=${1:?usage: scripts/kills.sh N JOBS OUTDIR} jobs=${2:?JOBS} out=${3:?OUTDIR}
test=${KILL_TEST:-$(dirname "$0")/../${BUILD:-build}/tests/cli_kill}
mkdir -p "$out/kept"
out=$(cd "$out" && pwd)

events() { find "$out" -maxdepth 1 -name 'round-*.events' -exec cat {} +; }
last=$(find "$out" -maxdepth 1 -name 'round-*.events' | sed 's/.*round-\([0-9]*\)-.*/\1/' | sort -n | tail -1)
round=${MT_KILL_ROUND:-$((${last:-0} + 1))}
made=$(events | awk -F '\t' '$2 != "ended equal" && $2 != "mismatch" && $2 != "time" { n++ } END { print n + 0 }')
missing=$((n - made))
if ls "$out/round-$round-"* >/dev/null 2>&1; then
    echo "error: $out has round $round already; without MT_KILL_ROUND the next free number is taken" >&2
    exit 2
fi

cores=$(nproc 2>/dev/null || echo 1)
start=$(date +%s)
workers=()
for share in $(seq 0 $((jobs - 1))); do # each on two cores: a run has threads, and they would crowd a large machine
    [ $missing -gt 0 ] || break
    pin=()
    if [ "$cores" -gt 2 ] && command -v taskset >/dev/null; then pin=(taskset -c "$((share % cores)),$(((share + 1) % cores))"); fi
    MT_KILLS=$(((missing + 3) / 4)) MT_KILL_SHARE=$share/$jobs MT_KILL_ROUND=$round MT_KILL_LOG=$out/round-$round-$share.events \
        MT_KILL_KEEP=$out/kept "${pin[@]}" "$test" >"$out/round-$round-$share.log" 2>&1 &
    workers+=($!)
done
failed=0
for share in "${!workers[@]}"; do
    status=0
    wait "${workers[$share]}" || status=$?
    [ $status -eq 0 ] && continue
    failed=1
    echo "worker $share ended with $status:"
    grep -E '^\[ +(ERROR|FAILED) +\]|: error:|mismatch|differ' "$out/round-$round-$share.log" || tail -n 20 "$out/round-$round-$share.log"
done >"$out/failures.txt"
[ ${#workers[@]} -eq 0 ] || printf 'round\ttime\t%d\n' $(($(date +%s) - start)) >>"$out/round-$round-0.events"

{
    events | awk -F '\t' -v n="$n" '
        $2 == "ended equal" { equal++; next }
        $2 == "mismatch" { wrong++; next }
        $2 == "time" { rounds++; wall += $3; next }
        { done++; what[$1 ": " $2]++
          if ($3 < 0) killed[$1 ": " $2]++
          else if ($3 == 0) unharmed[$1 ": " $2]++ }
        END {
            printf "%d disturbances asked for, %d made in %d rounds, %d s\n", n, done, rounds, wall
            printf "%d runs resumed and ended equal byte for byte, %d did not\n\n", equal, wrong
            printf "%-50s %8s %8s %9s %9s\n", "kind", "times", "killed", "stopped", "finished"
            for (k in what)
                printf "%-50s %8d %8d %9d %9d\n", k, what[k], killed[k], what[k] - killed[k] - unharmed[k], unharmed[k] | "sort"
        }'
    [ $failed -eq 0 ] || cat "$out/failures.txt"
} | tee "$out/summary.txt"
rmdir "$out/kept" 2>/dev/null || true
[ $failed -eq 0 ] && ! grep -q mismatch <(events)
