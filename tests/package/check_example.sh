#!/bin/sh
# Whether a build of examples/mlp.c learns: it starts where a model without knowledge does (ln 257 =
# 5.549 for bytes and end of text, half a unit of room for its initial values), and in 40 steps comes
# to know which bytes are frequent (English text: below 3.6).
#
# usage: check_example.sh PROGRAM TEXT    prints what the program printed
#   TEXT  one that never changes: what is learnt in so few steps depends on it
set -eu
"$1" "$2" 40 | awk '
    { print }
    /^step/ { loss[$2] = $4; steps++ }
    END {
        if (steps != 3 || !(loss[1] > 5.049 && loss[1] < 6.049))
            wrong = "the first loss is " loss[1]
        else if (!(loss[40] < 3.6 && loss[40] < loss[20]))
            wrong = "it does not learn: " loss[1] ", " loss[20] ", " loss[40]
        if (wrong != "") {
            print "FAILED: " wrong > "/dev/stderr"
            exit 1
        }
    }'
