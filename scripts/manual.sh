#!/usr/bin/env bash
# The manual page, made of what the program says of itself: scripts/manual.sh build/megatrain > build/megatrain.1
set -euo pipefail
program=$1

quote() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"; } # text as roff takes it
commands() { "$program" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'; }

cat <<END
.\\" Made by scripts/manual.sh: change what --help says, then make it anew.
.TH MEGATRAIN 1 "" "$("$program" --version)" "User Commands"
.SH NAME
megatrain \\- train and fine\\-tune Hugging Face decoder models at full precision on one GPU
.SH SYNOPSIS
.B megatrain
.I COMMAND
[options]
.SH DESCRIPTION
megatrain trains all parameters of a decoder model with fp32 master weights, keeping weights, gradients and Adam state in host memory
and streaming layers through one GPU (or computing on the CPU).
.SH COMMANDS
END
for command in $(commands); do
    printf '.SS %s\n.nf\n' "$command"
    "$program" "$command" --help | quote
    printf '.fi\n'
done
cat <<'END'
.SH FILES
.TP
runs/NAME/
what a run leaves: config.yaml, plan.json, metrics.jsonl, log.txt, report.html, checkpoint\-N/, final/
.SH EXIT STATUS
0: done.  1: failed.  2: misused; the message says what to do.
END
