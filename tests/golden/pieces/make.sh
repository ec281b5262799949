#!/bin/sh
# Makes the archives of this directory by the libraries themselves: tests/reference/write_pieces.py has what
# they need. They are not made again: files that were read once have to be read by every later version.
#
# usage: make.sh PYTHON
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for layout in fsdp-nested fsdp-flat fsdp-accelerate core-parallel core-stacked zero1 zero3; do
    "$1" "$here/../../reference/write_pieces.py" "$layout" "$scratch/$layout" --tiny
    from=$scratch/$layout
    case $layout in zero*) from=$from/universal ;; esac
    tar --sort=name --mtime=2026-01-01 --owner=0 --group=0 --numeric-owner -C "$from" -cf "$scratch/$layout.tar" .
    gzip -9n < "$scratch/$layout.tar" > "$here/$layout.tgz"
done
