#!/bin/sh
# Where the memory and the time of a training step go, measured in a few steps that need no data:
# first as the plan has it, then as it was; with a report to look at, numbers for a script and a
# timeline for Perfetto.
#
# usage: profile_memory.sh WORK_DIR [OPTION...]
#   WORK_DIR  the disk tier, profile.html, profile.json and timeline.json go there
#   OPTION    a model, a batch and a policy (--model gpt2 --micro-batch 1 --seq 256 --policy host
#             --device-memory 700M)
#
# SLUICE names another command than sluice.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,12p' "$0"; exit 64; }
work=$1
shift
mkdir -p "$work"
[ $# -gt 0 ] || set -- --model gpt2 --micro-batch 1 --seq 256 --policy host --device-memory 700M
set -- --disk-dir "$work" "$@"

"$sluice" plan "$@" --explain
"$sluice" profile "$@" --profile-steps 3 --report "$work/profile.html" \
    --timeline "$work/timeline.json"
"$sluice" profile "$@" --profile-steps 1 --quiet --json "$work/profile.json"
echo "look at $work/profile.html, and open $work/timeline.json in ui.perfetto.dev"
