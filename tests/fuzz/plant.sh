#!/bin/sh
# Writes a source with the bug that plants.txt has for it.
#
# usage: plant.sh ROOT SOURCE TARGET    exit 1: there is none for it
set -eu
line=$(grep -v '^#' "$(dirname "$0")/plants.txt" | grep "^[a-z_]* $2 ") || exit 1
change=$(printf "%s\n" "$line" | sed 's/^[a-z_]* [^ ]* \(s\/.*\/\) .*/\1/')
mkdir -p "$(dirname "$3")"
sed "$change" "$1/$2" > "$3"
if cmp -s "$1/$2" "$3"; then
    echo "plants.txt: $2 has nothing that $change changes" >&2
    exit 2
fi
