#!/bin/sh
# Whether a build of examples/tensor_parallel.c learns, and prints the same losses on one, two and three
# ranks: fp32 sums in another order are off by some 1e-6, and a wrong term by far more than 1e-4.
#
# usage: check_ranks.sh PROGRAM SLUICE
set -eu
{
    "$1"
    "$2" launch -n 2 -- "$1"
    "$2" launch -n 3 -- "$1"
} | awk '
    { print }
    /^step/ && !($2 in loss) { loss[$2] = $4 }
    /^step/ {
        difference = $4 - loss[$2]
        wrong += difference > 0.0001 || difference < -0.0001
        lines++
    }
    END { exit !(lines == 15 && !wrong && loss[10] < 6.9 && loss[50] < 0.5 * loss[10]) }'
