#!/bin/sh
# Pretrains GPT-2 124M on one device that does not hold its training state, from a folder of text to a
# text of its own, and goes on after an interruption.
#
# usage: pretrain_with_offload.sh TEXT WORK_DIR [OPTION...]
#   TEXT      a file or a folder of text
#   WORK_DIR  vocabulary, tokens and checkpoints go there; run it again to train on
#   OPTION    further ones for `sluice train`: --steps 20000, --micro-batch 8, --seq 1024, ...
#
# The state of 124 M parameters is 2 GB and more; 700 MB of device memory and 2 GB of the host's are
# given here, and the moments of AdamW lie on disk. SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//; 2,11p' "$0"; exit 64; }
text=$1
work=$2
shift 2
mkdir -p "$work"

# 1. A vocabulary of its own, learnt from the text once, and the text as its tokens.
[ -e "$work/vocabulary" ] ||
    "$sluice" tokenize --learn 8192 --data "$text" --tokenizer "$work/vocabulary" \
        --output "$work/tokens.bin"

# 2. What will it take? Nothing is allocated, and what does not fit is refused here.
set -- --model gpt2 --vocab 8192 --data "$work/tokens.bin" --tokenizer "$work/vocabulary" \
    --policy nvme --device-memory 700M --host-memory 2G --disk-dir "$work" \
    --micro-batch 2 --seq 256 --steps 20 "$@"
"$sluice" plan "$@"

# 3. Train. Ctrl-C ends it after its step, saved; the same command goes on from there.
"$sluice" train "$@" --save "$work/run" --save-every 10 --keep 2 --resume --log-json "$work/log.json"

# 4. Let it speak.
"$sluice" generate "$work/run" --prompt 'The ' --tokens 32
