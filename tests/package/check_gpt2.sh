#!/bin/sh
# Whether a build of examples/gpt2.c trains, saves, and goes on from what it saved.
#
# usage: check_gpt2.sh PROGRAM TEXT
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" "$2" "$place/run" 8 > "$place/first"
"$1" "$2" "$place/run" 16 > "$place/second"
cat "$place/first" "$place/second"
[ -f "$place/run/step-00000016/model.safetensors" ]
awk '
    FNR == 1 { part++ }
    /^step/ { step[part] = $2 }
    /^loss/ { loss[part] = $6 }
    END { exit !(step[1] == 8 && step[2] == 16 && loss[1] > loss[2] && loss[2] > 1) }
' "$place/first" "$place/second"
