#!/bin/sh
# Whether a build of examples/gpt2.c trains, saves, and goes on from what it saved.
#
# usage: check_gpt2.sh PROGRAM TEXT
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" "$2" "$place/run" 20 > "$place/first"
"$1" "$2" "$place/run" 40 > "$place/second"
cat "$place/first" "$place/second"
[ -f "$place/run/step-00000040/model.safetensors" ]
awk '
    FNR == 1 { part++ }
    /^step/ { step[part] = $2 }
    /^validation/ { loss[part] = $3 }
    END { exit !(step[1] == 20 && step[2] == 40 && loss[1] > loss[2] && loss[2] > 2) }
' "$place/first" "$place/second"
