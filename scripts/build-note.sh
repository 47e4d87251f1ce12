#!/usr/bin/env bash
# After a build for the CPU, on a machine with an NVIDIA driver: say why, and what to install.
set -euo pipefail
build=$1
cached() { grep -q "^$1" "$build/CMakeCache.txt" 2>/dev/null; }
if cached 'MT_HAVE_CUDA:INTERNAL=1' || cached 'MT_CUDA:STRING=OFF'; then
    exit 0
fi
if [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi >/dev/null; then
    exit 0
fi
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || true)
version=$([ -z "$nvcc" ] || "$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' || true)
if [ -z "$nvcc" ]; then
    why="no CUDA toolkit was found (no nvcc)"
elif [ -z "$version" ]; then
    why="$nvcc does not work here"
elif printf '12.4\n%s\n' "$version" | sort -VC; then
    why="the CUDA toolkit $version has no cuBLAS, or does not work here"
else
    why="the CUDA toolkit $version is older than 12.4"
fi
cat <<BOX
+------------------------------------------------------------------------------
|  built for CPU only: $why
|
|  To train on this machine's GPU, install the CUDA toolkit, 12.4 or newer, and
|  run make again.  NVIDIA's packages cuda-toolkit-13-0 and
|  libcudnn9-dev-cuda-13 work; so does nvidia-cuda-toolkit of Debian 13, but not
|  of Debian 12, Ubuntu 22.04 or 24.04 (docs/install.md).
+------------------------------------------------------------------------------
BOX
