#!/usr/bin/env bash
# make analyze: GCC's analyzer and clang-tidy's bugprone and cert checks over the C sources.  Ends with 1 if either reports anything.
# FILES="a.c b.c" looks at these alone.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
jobs=$(nproc 2>/dev/null || echo 2)
files=${FILES:-$(git ls-files 'src/*.c')}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# What is off, and why:
#   malloc-leak, fd-leak and null checks follow out-parameters poorly: an object that a function hands out through *out on success
#   counts as lost (`goto fail` and `close` of half-built objects are everywhere here).  AddressSanitizer and the fault tests cover it.
gcc_off="-Wno-analyzer-malloc-leak -Wno-analyzer-file-leak -Wno-analyzer-null-dereference -Wno-analyzer-possible-null-dereference
  -Wno-analyzer-null-argument -Wno-analyzer-possible-null-argument -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-deref-before-check"
#   easily-swappable-parameters, narrowing-conversions, implicit-widening: style, and hundreds of sizes from files are checked by hand.
#   reserved-identifier (mt__ is the internal prefix), macro-parentheses (tables), assignment-in-if-condition, branch-clone, err33-c
#   (printf to a terminal), err34-c (numbers of our own files, checked after), msc30/50 (rand is not used for secrets), dcl37/51 as reserved.
#   sizeof-expression: arrays of pointers grow by sizeof *items.  suspicious-string-compare: `strcmp(a, b) ||` reads as "differs" here.
#   not-null-terminated-result: slices carry their length.  misplaced-widening-cast: products of counts of units, at most thousands.
#   integer-division: whole steps are meant.
#   suspicious-include: the lanes of AVX files are shared that way on purpose.
tidy_checks="-*,bugprone-*,cert-*,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,\
-bugprone-reserved-identifier,-bugprone-macro-parentheses,-bugprone-assignment-in-if-condition,-bugprone-branch-clone,-cert-err33-c,\
-cert-err34-c,-cert-dcl37-c,-cert-dcl51-cpp,-cert-msc30-c,-cert-msc50-cpp,-bugprone-suspicious-include,-bugprone-signed-char-misuse,-cert-str34-c,-bugprone-sizeof-expression,-bugprone-suspicious-string-compare,\
-bugprone-not-null-terminated-result,-bugprone-misplaced-widening-cast,-bugprone-integer-division"

echo "-- gcc -fanalyzer"
printf '%s\n' $files | xargs -P "$jobs" -I{} gcc -std=c17 -O1 -D_GNU_SOURCE -DNDEBUG -DMT_VERSION='"x"' -Isrc -fanalyzer $gcc_off \
    -fdiagnostics-plain-output -c {} -o /dev/null 2>&1 | grep -E 'warning: .*\[(CWE|-Wanalyzer)' | sort -u | tee "$log"
found=$(wc -l < "$log")

if command -v clang-tidy > /dev/null; then
    echo "-- clang-tidy: bugprone, cert"
    printf '%s\n' $files | xargs -P "$jobs" -n 8 clang-tidy -quiet -p "$build" --checks="$tidy_checks" 2> /dev/null \
        | grep -E '(warning|error): .*\[(bugprone|cert)' | sort -u | tee "$log"
    found=$((found + $(wc -l < "$log")))
else
    echo "clang-tidy is not installed: skipped"
fi
echo "$found reports"
[ "$found" -eq 0 ]
