#!/bin/sh
# Eight ranks of one machine in a cube, 2 x 2 x 2: pairs hold the halves of each tensor (--tp), of two
# such pairs one has the first layers and one the last (--pp), and two of these pipelines train on rows
# of their own, with gradients and optimizer states in shards (ZeRO stage 2) and what is not in use on
# the host. First what each stage would hold; at the end one rank trains the same rows, and its losses
# agree to rounding.
#
# usage: cube_of_ranks.sh WORK_DIR [OPTION...]
#   WORK_DIR  logs go there
#   OPTION    further ones for `sluice train`: --steps 10, --zero 3, --policy nvme, ...
#
# SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,13p' "$0"; exit 64; }
work=$1
shift
mkdir -p "$work"
# Any text does: this one is of the command itself.
"$sluice" manual train > "$work/text"
# The rows of a step are named as a whole, so that they stay the same with any number of ranks.
set -- --layers 4 --width 256 --heads 8 --context 128 --vocab 257 --tokenizer byte \
    --data "$work/text" --policy host --disk-dir "$work" --precision fp32 \
    --micro-batch 2 --global-batch 16 --steps 5 "$@"

"$sluice" plan --ranks 8 --tp 2 --pp 2 --zero 2 "$@"
"$sluice" launch -n 8 -- train --tp 2 --pp 2 --zero 2 "$@" --quiet --log-json "$work/cube.json"
"$sluice" train "$@" --zero 0 --quiet --log-json "$work/one.json"

for run in cube one; do
    printf '%-7s' "$run"
    sed -n 's/.*"event": *"step".*"loss": *\([^,]*\),.*/\1/p' "$work/$run.json" | tr '\n' ' '
    echo
done
