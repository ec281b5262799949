#!/bin/sh
# One model under several placement policies: what each would take and cost by its plan, then a few
# real steps of each. The losses must be the same to the last digit: where things are never changes
# the numbers.
#
# usage: compare_policies.sh WORK_DIR [OPTION...]
#   WORK_DIR  the disk tier and the logs go there
#   OPTION    a model and a batch for `sluice train` (--model gpt2 --micro-batch 1 --seq 128 --steps 3)
#
# SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,10p' "$0"; exit 64; }
work=$1
shift
mkdir -p "$work"
[ $# -gt 0 ] || set -- --model gpt2 --micro-batch 1 --seq 128 --steps 3
# Any text does: this one is of the command itself.
"$sluice" manual train > "$work/text"
set -- --data "$work/text" --tokenizer byte --disk-dir "$work" "$@"

for policy in device host nvme auto; do
    printf '%-7s ' "$policy"
    "$sluice" train "$@" --policy "$policy" --quiet --log-json "$work/$policy.json" > "$work/$policy.said" ||
        { cat "$work/$policy.said"; exit 1; }
    grep '"event": *"step"' "$work/$policy.json" | tail -n 1 |
        sed 's/.*"step_ms": *\([0-9]*\).*/last step \1 ms/; s/$/, losses:/' | tr '\n' ' '
    sed -n 's/.*"event": *"step".*"loss": *\([^,]*\),.*/\1/p' "$work/$policy.json" > "$work/$policy.losses"
    tr '\n' ' ' < "$work/$policy.losses"
    echo
    cmp "$work/device.losses" "$work/$policy.losses"
done
echo "The same losses under every policy."
