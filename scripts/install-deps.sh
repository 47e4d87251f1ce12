#!/usr/bin/env bash
# Install what the build needs and this machine lacks, from the distribution.  Quiet when nothing is missing.
# apt as root, or with sudo; elsewhere the list is printed.
set -euo pipefail

packages=(
    build-essential cmake ninja-build pkg-config
    libyaml-dev libonig-dev libutf8proc-dev
    libopenblas-dev libcurl4-openssl-dev
    zlib1g-dev libzstd-dev libsnappy-dev liblz4-dev libbrotli-dev
    libcmocka-dev
)
# For several machines; the build does without.
wanted=(libopenmpi-dev openmpi-bin)

if ! command -v dpkg-query >/dev/null; then
    # Not Debian or Ubuntu: trust what CMake finds, and say what it will look for.
    if ! command -v cmake >/dev/null || ! pkg-config --exists yaml-0.1 oniguruma libutf8proc openblas libcurl 2>/dev/null; then
        echo "megatrain needs these (Debian's names); install your distribution's equivalents and run make again:" >&2
        printf '  %s\n' "${packages[@]}" >&2
        exit 1
    fi
    exit 0
fi

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }
missing=() missing_wanted=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
# Another MPI will do, too.
command -v mpicc >/dev/null || for p in "${wanted[@]}"; do installed "$p" || missing_wanted+=("$p"); done
[ ${#missing[@]} -eq 0 ] && [ ${#missing_wanted[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        [ ${#missing[@]} -eq 0 ] && exit 0
        echo "these packages are missing; ask an administrator to run:" >&2
        echo "  apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
install() {
    local get=("${as_root[@]}" apt-get install -y -q --no-install-recommends "$@")
    echo "installing: $*"
    "${get[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q >/dev/null && "${get[@]}" >/dev/null; }
}
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
[ ${#missing_wanted[@]} -eq 0 ] || install "${missing_wanted[@]}" 2>/dev/null || echo "no MPI could be installed: built for one machine"
