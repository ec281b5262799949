#!/bin/sh
# Whether a build of examples/own_model.c learns: it moves chunks, starts where a model without
# knowledge does (ln 256 = 5.545 for bytes, half a unit of room for its initial values), and in 40
# steps comes to know which bytes are frequent (English text: below 3.6).
#
# usage: check_example.sh PROGRAM TEXT    prints what the program printed
#   TEXT  one that never changes: what is learnt in so few steps depends on it
set -eu
"$1" "$2" 40 | awk '
    { print }
    /^device/ { device = $2; moved = $8 }
    /^step/ { loss[$2] = $4; steps++ }
    END {
        if (!(device > 0 && moved > 0))
            wrong = "nothing was planned or moved"
        else if (steps != 3 || !(loss[1] > 5.045 && loss[1] < 6.045))
            wrong = "the first loss is " loss[1]
        else if (!(loss[40] < 3.6 && loss[40] < loss[20]))
            wrong = "it does not learn: " loss[1] ", " loss[20] ", " loss[40]
        if (wrong != "") {
            print "FAILED: " wrong > "/dev/stderr"
            exit 1
        }
    }'
