#!/usr/bin/env bash
# After a build, on a machine with an NVIDIA driver and no toolkit: say what that means.
set -euo pipefail
build=$1
if grep -q '^MT_HAVE_CUDA:INTERNAL=1' "$build/CMakeCache.txt" 2>/dev/null; then
    exit 0
fi
if [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null; then
    cat <<'BOX'
+----------------------------------------------------------------------------+
|  built for CPU only                                                        |
|                                                                            |
|  This machine has an NVIDIA driver but no CUDA toolkit (nvcc was not       |
|  found).  To train on the GPU, install the toolkit, 12.4 or newer, with    |
|  cuBLAS and cuDNN 9 (Debian: nvidia-cuda-toolkit, or NVIDIA's packages     |
|  cuda-toolkit-13-0 and libcudnn9-dev-cuda-13), then run make again.        |
+----------------------------------------------------------------------------+
BOX
fi
