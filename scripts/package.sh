#!/usr/bin/env bash
# make package: a relocatable tarball.  The program sits in bin/, the libraries a bare server lacks beside it in lib/, found through
# $ORIGIN; with CUDA only the driver is needed.  What every Linux has (libc and its kin) stays the system's.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)
cmake --preset package >/dev/null
cmake --build --preset package -j "$jobs"
version=$(build-package/megatrain --version | cut -d' ' -f2)
name=megatrain-$version-linux-$(uname -m)
out=dist/$name
rm -rf "$out"
cmake --install build-package --component Unspecified --prefix "$out" >/dev/null # all but the library for C programs
mkdir -p "$out/lib"
system='linux-vdso|ld-linux|libc\.so|libm\.so|libpthread\.so|libdl\.so|librt\.so|libcuda\.so'
ldd "$out/bin/megatrain" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | grep -Ev "$system" | while read -r soname path; do
    cp -L "$path" "$out/lib/$soname"
done
tar -C dist -czf "dist/$name.tar.gz" "$name"
rm -rf "$out"
echo "dist/$name.tar.gz: $(du -h "dist/$name.tar.gz" | cut -f1)"
