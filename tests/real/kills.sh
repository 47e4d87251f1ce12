#!/usr/bin/env bash
# Kill random ranks of a run at random moments, and resume it on another number of ranks each time.  Whenever the run reaches its
# end, its output directory must equal that of a run which nothing disturbed; then a new run starts.
#   tests/real/kills.sh [build/megatrain [kills [seed]]]
# Needs mpirun.  200 kills take about 20 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build/megatrain}")
kills=${2:-200}
seed=${3:-$$}
RANDOM=$seed

skip() { echo "skipped: $1"; exit 0; }
command -v mpirun >/dev/null || skip "there is no mpirun"
ldd "$program" | grep libmpi >/dev/null || skip "built without MPI"

dir=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill -9 "$job" 2>/dev/null || true; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader,tcp
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_odls_base_sigkill_timeout=0 OPENBLAS_NUM_THREADS=1

# A small model, so that a run is a matter of seconds, with many checkpoints on its way.
mkdir "$dir/model" "$dir/whole" "$dir/killed"
cat >"$dir/model/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 61,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "eos_token_id": 2}
JSON
awk 'BEGIN {
    printf "{\"input_ids\": ["
    for (r = 0; r < 40; r++) {
        printf "%s[%d", r ? ", " : "", x = 3 + r
        for (k = r % 12; k < 16; k++) printf ", %d", x = (x * 5 + 7) % 61
        printf "]"
    }
    print "]}"
}' >"$dir/rows.json"
words=(train --model-name ../model --dataset-path ../rows.json --from-scratch --device cpu --batch-size 8 --num-steps 160
    --save-steps 20 --bundles 4 --set eval.val_size=0.1 --enable-timing false --cache-dir ../cache --output-dir out --resume)

start() { # directory, ranks
    cd "$dir/$1"
    mpirun --oversubscribe --bind-to none -n "$2" "$program" "${words[@]}" >log 2>&1 &
    job=$!
    cd - >/dev/null
}

fail() { echo "FAILED (kill $killed, seed $seed): $1"; tail -n 20 "$dir/killed/log"; exit 1; }

# The processes of the ranks, once all of them are there; fewer if the job ends first.
rank_pids() {
    pids=()
    for _ in $(seq 1 400); do
        mapfile -t pids < <(pgrep -P "$job" || true)
        [ "${#pids[@]}" -lt "$1" ] && kill -0 "$job" 2>/dev/null || return 0
        sleep 0.01
    done
}

# By its command line: a zombie has none, and another process may have got the number of one that is gone.
alive() { grep -aqs -- "$program" "/proc/$1/cmdline"; }
any_alive() {
    for pid in "${pids[@]}"; do ! alive "$pid" || return 0; done
    return 1
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# Files that show when and where things happened differ from run to run.
compare() { diff -r -x .lock -x .files -x log.txt -x plan.json -x report.html "$dir/whole/out" "$dir/killed/out" || fail "the files differ"; }

from=$(milliseconds)
start whole 2
wait "$job" || { cat "$dir/whole/log"; exit 1; }
length=$(($(milliseconds) - from))
echo "an undisturbed run on 2 ranks takes $length ms; killing $kills ranks, load $(cut -d ' ' -f 1 /proc/loadavg)"

killed=0 ended=0 writing=0 hung=0 before=1
declare -A of_rank=()
while [ "$killed" -lt "$kills" ]; do
    n=$((1 + RANDOM % 3)) # another number than before
    [ "$n" -lt "$before" ] || n=$((n + 1))
    before=$n
    start killed "$n"
    rank_pids "$n"
    sleep "$(awk -v r="$RANDOM" -v ms="$length" 'BEGIN { printf "%.3f", r / 32768 * ms / 1000 }')"
    victim=$((RANDOM % n))
    [ "${#pids[@]}" -ne "$n" ] || kill -9 "${pids[$victim]}" 2>/dev/null || true
    status=0 by_hand=
    if ! timeout 30 tail --pid="$job" -f /dev/null; then # Open MPI 4.1 may not return if a rank dies while it connects
        ! any_alive || fail "ranks still run half a minute after rank $victim of $n was killed"
        hung=$((hung + 1)) by_hand=1
        kill -9 "$job"
    fi
    wait "$job" 2>/dev/null || status=$?
    job=
    for _ in $(seq 1 100); do any_alive && sleep 0.1 || break; done # one that syncs a file when it is killed ends with that
    if any_alive; then
        for pid in "${pids[@]}"; do grep -s "^State" "/proc/$pid/status" || true; done
        fail "a rank outlived the job by ten seconds"
    fi
    if [ "$status" -ne 0 ]; then
        [ -n "$by_hand" ] || grep -aq "exited on signal 9" "$dir/killed/log" || fail "the job ended with status $status, not by the kill"
        killed=$((killed + 1))
        of_rank[$victim]=$((${of_rank[$victim]:-0} + 1))
        if compgen -G "$dir/killed/out/*.tmp" >/dev/null; then writing=$((writing + 1)); fi # half a checkpoint is left
        [ $((killed % 20)) -ne 0 ] || echo "$killed kills, $ended runs reached their end with equal files"
        continue
    fi
    compare
    ended=$((ended + 1))
    rm -rf "$dir/killed"
    mkdir "$dir/killed"
done
start killed "$((1 + RANDOM % 4))"
wait "$job" || fail "the last run"
job=
compare
echo "$killed kills (ranks 0 to 3: ${of_rank[0]:-0} ${of_rank[1]:-0} ${of_rank[2]:-0} ${of_rank[3]:-0}), $writing of them while a" \
    "checkpoint or the model was being written; $((ended + 1)) runs reached their end, all with equal files;" \
    "mpirun hung after $hung of the kills"
