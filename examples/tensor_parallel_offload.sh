#!/bin/sh
# Two tensor-parallel ranks of one machine, each with half of every tensor and with offload of its
# own: optimizer states on disk, parameters and gradients on the host, a chunk or two on the device.
# Then one rank goes on from their checkpoint and speaks: a checkpoint knows nothing of ranks.
#
# usage: tensor_parallel_offload.sh WORK_DIR [OPTION...]
#   WORK_DIR  the disk tier, checkpoints and logs go there; run it again to train on
#   OPTION    further ones for `sluice train`: --steps 100, --model gpt2-medium, --sequence-parallel, ...
#
# SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,10p' "$0"; exit 64; }
work=$1
shift
mkdir -p "$work"
# Any text does: this one is of the command itself.
"$sluice" manual train > "$work/text"
set -- --model gpt2 --vocab 257 --tokenizer byte --data "$work/text" --policy nvme \
    --device-memory 300M --host-memory 1G --disk-dir "$work" --micro-batch 2 --seq 128 --steps 4 "$@"

# 1. What each rank would hold and exchange. No rank is started.
"$sluice" plan --ranks 2 --tp 2 "$@"

# 2. Train with both. Ctrl-C ends the step together, saved; the same command goes on from there.
"$sluice" launch -n 2 -- train --tp 2 "$@" --save "$work/run" --resume --log-json "$work/log.json"

# 3. One rank alone goes on for two steps, and speaks.
"$sluice" train "$@" --tp 1 --steps 6 --save "$work/run" --resume
"$sluice" generate "$work/run" --prompt 'The ' --tokens 32
