#!/bin/sh
# Whether a build of examples/million_classes.c gives the same loss on one rank and on two, and whether
# each of two ranks takes about half of the memory.
#
# usage: check_classes.sh PROGRAM SLUICE
set -eu
{
    "$1" 20000 6
    "$2" launch -n 2 -- "$1" 20000 6
} | awk '
    { print }
    /^loss/ { loss[++runs] = $2; mib[runs] = $4 }
    END {
        difference = loss[1] - loss[2]
        exit !(runs == 2 && difference < 0.001 && difference > -0.001 && loss[1] < 11 &&
               mib[2] < 0.6 * mib[1])
    }'
