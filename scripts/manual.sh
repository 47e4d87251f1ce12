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
    "$program" "$command" --help-all | quote
    printf '.fi\n'
done
cat <<'END'
.SH FILES
.TP
runs/NAME/
what a run leaves: config.yaml, plan.json, metrics.jsonl, log.txt, report.html, checkpoint\-N/, final/
.TP
~/.cache/megatrain/
tokenized data and what was measured of this machine; where the home directory cannot be written, cache/ in the output directory
.SH ENVIRONMENT
.TP
HF_HOME, HF_HUB_CACHE, HF_DATASETS_CACHE
where downloaded models and datasets are, as for other Hugging Face tools
.TP
HF_TOKEN, HF_TOKEN_PATH
who you are, for private and gated models
.TP
HF_ENDPOINT
a mirror of the hub
.TP
HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE, HF_DATASETS_OFFLINE
1: no network
.TP
XDG_CACHE_HOME
instead of ~/.cache
.TP
https_proxy, SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE
the way to the hub, and whom to trust on it
.TP
CUDA_VISIBLE_DEVICES
the GPUs that are seen
.TP
NO_COLOR, COLUMNS
no color; the width where there is no terminal
.TP
OPENBLAS_CORETYPE
the kernels of products on the CPU; chosen by the processor unless set
.TP
MT_PIN
0: threads of the update on the host are not bound to cores
.SH EXAMPLES
.TP
megatrain plan qwen2.5\-7b \-\-gpu rtx4090 \-\-ram 128G
whether a model fits a machine that is not here, and how fast it would be
.TP
megatrain data my.yaml \-\-show 3
what a run would be trained on
.TP
megatrain train my.yaml \-\-dry\-run
settings, plan, first sample, one step and one checkpoint, before the run
.TP
megatrain train my.yaml \-\-learning\-rate 2e\-5
a run; a flag overrides the file
.TP
megatrain train my.yaml \-\-resume
the same run from its newest checkpoint
.TP
megatrain generate runs/my/final \-\-chat \-\-prompt "Who are you?"
an answer of the finished model
.SH EXIT STATUS
0: done.  1: failed.  2: misused (the command line or the configuration is wrong; the message says what to do).  130, 140, 143: a run that
SIGINT, SIGUSR2 or SIGTERM stopped before its last step; it has saved a checkpoint, and \-\-resume continues.  SIGUSR1 saves a checkpoint and the
run continues.
END
