#!/bin/sh
# Four ranks of one machine in a square: two hold the halves of each tensor, and two such pairs train
# on rows of their own, with parameters, gradients and optimizer states in shards (ZeRO stage 3) and
# what is not in use on the host. Then one rank trains the same rows: its losses agree to rounding.
#
# usage: two_by_two.sh WORK_DIR [OPTION...]
#   WORK_DIR  logs go there
#   OPTION    further ones for `sluice train`: --steps 10, --zero 1, --policy nvme, ...
#
# SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,9p' "$0"; exit 64; }
work=$1
shift
mkdir -p "$work"
# Any text does: this one is of the command itself.
"$sluice" manual train > "$work/text"
# The rows of a step are named as a whole, so that they stay the same with any number of ranks.
set -- --layers 4 --width 256 --heads 8 --context 128 --vocab 257 --tokenizer byte \
    --data "$work/text" --policy host --disk-dir "$work" --precision fp32 \
    --micro-batch 2 --global-batch 16 --steps 5 "$@"

"$sluice" plan --ranks 4 --tp 2 --zero 3 "$@"
"$sluice" launch -n 4 -- train --tp 2 --zero 3 "$@" --quiet --log-json "$work/square.json"
"$sluice" train "$@" --zero 0 --quiet --log-json "$work/one.json"

for run in square one; do
    printf '%-7s' "$run"
    sed -n 's/.*"event": *"step".*"loss": *\([^,]*\),.*/\1/p' "$work/$run.json" | tr '\n' ' '
    echo
done
