#!/usr/bin/env bash
# Three machines on this one: network namespaces with their own host names, links shaped to 1 Gbit/s.  A run over them ends with the
# bytes of a run on one, takes as long as predicted within 20%, and names the right rank when a link is cut.
#   tests/real/machines.sh [build/megatrain]
# Needs root, iproute2, util-linux and mpirun.  On a machine that is busy with other things the times are not those predicted; with
# chrt -f 1 in front they are close.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build/megatrain}")

skip() { echo "skipped: $1"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "not root"
for tool in ip tc unshare mpirun; do command -v "$tool" >/dev/null || skip "there is no $tool"; done
ldd "$program" | grep libmpi >/dev/null || skip "built without MPI"
ip netns add mt-try 2>/dev/null && ip netns del mt-try || skip "network namespaces are not allowed here"

dir=$(mktemp -d)
hosts=10.77.0.1,10.77.0.2,10.77.0.3
cleanup() {
    for i in 1 2 3; do
        for pid in $(ip netns pids "mt$i" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
        ip netns del "mt$i" 2>/dev/null || true
    done
    ip link del mt-bridge 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

ip link add mt-bridge type bridge
ip link set mt-bridge up
for i in 1 2 3; do
    ip netns add "mt$i"
    ip link add "mt-out$i" type veth peer name eth0 netns "mt$i"
    ip link set "mt-out$i" master mt-bridge up
    ip -n "mt$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "mt$i" link set lo up
    ip -n "mt$i" link set eth0 up
    for where in "dev mt-out$i" "-n mt$i dev eth0"; do # both ways
        case $where in
        -n*) tc -n "mt$i" qdisc add dev eth0 root tbf rate 1gbit burst 128kb latency 50ms ;;
        *) tc qdisc add dev "mt-out$i" root tbf rate 1gbit burst 128kb latency 50ms ;;
        esac
    done
done

# What mpirun takes for ssh: the last number of the address is the machine.
cat >"$dir/agent" <<'END'
#!/bin/sh
i=${1##*.}; shift
exec ip netns exec "mt$i" unshare --uts sh -c "hostname node$i; exec sh -c \"\$0\"" "$*"
END
chmod +x "$dir/agent"

# 79 M parameters, few tokens: the network is most of a step.
mkdir "$dir/model"
cat >"$dir/model/config.json" <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
 "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 2048,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "eos_token_id": 2}
END
{
    printf '{"input_ids": ['
    for r in $(seq 1 48); do
        [ "$r" -eq 1 ] || printf ', '
        printf '[%s]' "$(seq -s, $((r * 7)) $((r * 7 + 3)))"
    done
    printf ']}\n'
} >"$dir/rows.json"
words=(train --model-name "$dir/model" --dataset-path "$dir/rows.json" --from-scratch --device cpu --batch-size 3 --bundles 3)

export XDG_CACHE_HOME="$dir/cache" # rates are measured here and now
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OPENBLAS_NUM_THREADS=1
ranks() { # arguments of train
    ip netns exec mt1 unshare --uts sh -c 'hostname node1; exec "$0" "$@"' mpirun -n 3 --host "$hosts" --map-by ppr:1:node --bind-to none \
        --mca plm_rsh_agent "$dir/agent" --mca orte_keep_fqdn_hostnames 1 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "$program" "${words[@]}" "$@"
}

echo "-- one machine, then three"
mkdir "$dir/one" "$dir/three"
(cd "$dir/one" && "$program" "${words[@]}" --num-steps 8 --output-dir out >log 2>&1) || { cat "$dir/one/log"; exit 1; }
(cd "$dir/three" && ranks --num-steps 8 --output-dir out >log 2>&1) || { cat "$dir/three/log"; exit 1; }
grep -a "machines " "$dir/three/log" | head -n 1
diff -r "$dir/one/out/final" "$dir/three/out/final"
diff -r -x state.json -x checksums.json "$dir/one/out/checkpoint-8" "$dir/three/out/checkpoint-8" # they know the metrics' length
echo "equal bytes"

predicted=$(sed -n 's/.*"predicted_seconds": \([0-9.e+-]*\).*/\1/p' "$dir/three/out/plan.json")
measured=$(sed -n 's/.*"step_seconds": *\([0-9.e+-]*\).*/\1/p' "$dir/three/out/metrics.jsonl" | sort -g | sed -n 4p)
echo "a step: $predicted s predicted, $measured s measured (the median)"
awk -v p="$predicted" -v m="$measured" 'BEGIN { exit !(m < 1.2 * p && m > p / 1.2) }' || { echo "FAILED: not within 20%"; failed=1; }

echo "-- a link is cut"
(cd "$dir/three" && ranks --num-steps 100000 --comm-timeout 5 --output-dir cut >cut.log 2>&1) &
job=$!
for _ in $(seq 1 200); do [ -s "$dir/three/cut/metrics.jsonl" ] && break; sleep 0.2; done
ip link set mt-out3 down
start=$(date +%s)
for _ in $(seq 1 300); do grep -aq "error:" "$dir/three/cut.log" && break; sleep 0.1; done
echo "said so after $(($(date +%s) - start)) s:"
grep -a "error:" "$dir/three/cut.log"
status=0
wait "$job" || status=$? # mpirun also waits until it misses its daemon there
echo "the job ended after $(($(date +%s) - start)) s with status $status"
grep -aq "rank 2 (node3).*, which is silent" "$dir/three/cut.log" || { echo "FAILED: another rank was named"; failed=1; }
exit "${failed:-0}"
