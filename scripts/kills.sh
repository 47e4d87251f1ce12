#!/usr/bin/env bash
# Kill training runs and compare what they end with: N disturbances in all, shared by JOBS processes.  A quarter each: kills at file
# operations, kills at random moments, operations that fail, and all of it mixed with slow and full disks and signals that ask.
#
#     scripts/kills.sh N JOBS OUTDIR
#
# OUTDIR/summary.txt counts what was done and what became of it; OUTDIR/kept has the directories of runs that ended with other bytes, and
# OUTDIR/worker-*.log the output of each process.  The exit status is 1 if any run did.  KILL_TEST and MT_PROGRAM name programs elsewhere;
# MT_KILL_SECONDS=n stops each quarter after n seconds, and the summary says how many were made.
set -euo pipefail
n=${1:?usage: scripts/kills.sh N JOBS OUTDIR} jobs=${2:?JOBS} out=${3:?OUTDIR}
test=${KILL_TEST:-$(dirname "$0")/../${BUILD:-build}/tests/cli_kill}
mkdir -p "$out/kept"
out=$(cd "$out" && pwd)
rm -f "$out"/worker-*

cores=$(nproc 2>/dev/null || echo 1)
start=$(date +%s)
workers=()
for share in $(seq 0 $((jobs - 1))); do # each on two cores: a run has threads, and they would crowd a large machine
    pin=()
    if [ "$cores" -gt 2 ] && command -v taskset >/dev/null; then pin=(taskset -c "$((share % cores)),$(((share + 1) % cores))"); fi
    MT_KILLS=$(((n + 3) / 4)) MT_KILL_SHARE=$share/$jobs MT_KILL_LOG=$out/worker-$share.events MT_KILL_KEEP=$out/kept \
        "${pin[@]}" "$test" >"$out/worker-$share.log" 2>&1 &
    workers+=($!)
done
failed=0
for share in $(seq 0 $((jobs - 1))); do
    status=0
    wait "${workers[$share]}" || status=$?
    [ $status -eq 0 ] && continue
    failed=1
    echo "worker $share ended with $status:"
    grep -E '^\[ +(ERROR|FAILED) +\]|: error:|mismatch|differ' "$out/worker-$share.log" || tail -n 20 "$out/worker-$share.log"
done >"$out/failures.txt"
wall=$(($(date +%s) - start))

{
    cat "$out"/worker-*.events | awk -F '\t' -v n="$n" -v jobs="$jobs" -v wall="$wall" '
        $2 == "ended equal" { equal++; next }
        $2 == "mismatch" { wrong++; next }
        { done++; what[$1 ": " $2]++
          if ($3 < 0) killed[$1 ": " $2]++
          else if ($3 == 0) unharmed[$1 ": " $2]++ }
        END {
            printf "%d disturbances asked for, %d made by %d processes in %d s\n", n, done, jobs, wall
            printf "%d runs resumed and ended equal byte for byte, %d did not\n\n", equal, wrong
            printf "%-50s %8s %8s %9s %9s\n", "kind", "times", "killed", "stopped", "finished"
            for (k in what)
                printf "%-50s %8d %8d %9d %9d\n", k, what[k], killed[k], what[k] - killed[k] - unharmed[k], unharmed[k] | "sort"
        }'
    [ $failed -eq 0 ] || cat "$out/failures.txt"
} | tee "$out/summary.txt"
rmdir "$out/kept" 2>/dev/null || true
exit $failed
