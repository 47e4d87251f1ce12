#!/usr/bin/env bash
# The readers on a big-endian machine (s390x): builds their unit tests and the replay of the fuzz corpora with Debian's cross compiler and
# runs them under qemu.  The libraries of that machine are downloaded into build-s390x, not installed.  On Debian or Ubuntu:
#
#     apt-get install qemu-user gcc-s390x-linux-gnu libc6-dev-s390x-cross
#     scripts/big-endian.sh
#
# The exit status is 1 if anything fails but the cases of `known`, which read numbers of tensors (docs/limits.md).
set -euo pipefail
cd "$(dirname "$0")/.."
machine=s390x
build=build-$machine root=$PWD/build-$machine/root jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
libraries=(libjansson-dev libyaml-dev libonig-dev libutf8proc-dev zlib1g-dev libzstd-dev liblz4-dev libbrotli-dev libcurl4-openssl-dev
    libopenblas-pthread-dev libsnappy-dev libcmocka-dev libc6 libgcc-s1)
tests=(base value yaml records safetensors safetensors_write gguf columnar pickle tokenizer store split)
readers=(json csv parquet arrow safetensors pickle gguf tokenizer_json tokenizer_model config)

fetch() { # libraries of that machine into $root
    local apt=$PWD/$build/apt
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$root"
    : >"$apt/status"
    cat >"$apt/apt.conf" <<END
Dir::State "$apt/state"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
APT::Architecture "$machine"; APT::Architectures { "$machine"; };
END
    APT_CONFIG=$apt/apt.conf apt-get -qq update || true # other sources may not know the machine
    APT_CONFIG=$apt/apt.conf apt-get -qq install -y --download-only --no-install-recommends "${libraries[@]}"
    for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$root"; done
}

configure() {
    local lib=$root/usr/lib/$machine-linux-gnu
    cat >"$build/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $machine)
set(CMAKE_C_COMPILER $machine-linux-gnu-gcc)
set(CMAKE_SYSROOT $root)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_C_FLAGS_INIT "-fexcess-precision=fast -B$lib") # else float is computed as double, which the build refuses
set(CMAKE_EXE_LINKER_FLAGS_INIT "-L$lib/openblas-pthread -Wl,-rpath-link,$lib:$root/lib/$machine-linux-gnu:$lib/openblas-pthread")
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-$machine;-L;$root")
set(ENV{PKG_CONFIG_LIBDIR} $lib/pkgconfig:$lib/openblas-pthread/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} $root)
END
    cmake -B "$build" -G Ninja -DMT_ANY_ORDER=ON -DMT_CUDA=OFF -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/$build/toolchain.cmake" >/dev/null
}

known=" values_lie_where_the_entries_say every_allocation_and_file_call_may_fail "
unexpected=0

run() { # program, arguments: what it ended with, and the cases that failed
    local program=$1 status=0 log=$build/last.log failed=() case
    shift
    qemu-"$machine" -L "$root" -E LD_LIBRARY_PATH="/usr/lib/$machine-linux-gnu/openblas-pthread" -E OPENBLAS_NUM_THREADS=1 \
        "$build/tests/$program" "$@" >"$log" 2>&1 || status=$?
    echo "$(basename "$program"): status $status, $(grep 'inputs replayed' "$log" || echo "$(grep -c ' OK \]' "$log" || true) cases passed")"
    mapfile -t failed < <(sed -n 's/^\[  FAILED  \] \([a-z_0-9]*\)$/\1/p' "$log" | sort -u)
    if [ $status -ne 0 ] && [ ${#failed[@]} -eq 0 ]; then tail -n 5 "$log" && unexpected=1; fi
    for case in "${failed[@]}"; do
        if [[ $known == *" $case "* ]]; then
            echo "    failed, as known: $case"
        else
            echo "    failed: $case"
            unexpected=1
        fi
    done
}

[ -d "$root/usr/lib/$machine-linux-gnu" ] || fetch
[ -f "$build/build.ninja" ] || configure
cmake --build "$build" -j "$jobs" --target "${tests[@]/#/unit_}" $(printf 'fuzz_%s_replay ' "${readers[@]}") >"$build/build.log"
for name in "${tests[@]}"; do run "unit_$name"; done
for name in "${readers[@]}"; do MT_GENERATED=30 run "fuzz/fuzz_${name}_replay" "tests/fuzz/corpus/$name"; done
exit $unexpected
