#!/bin/sh
# Downloads and unpacks, without installing them, the Debian packages that building and testing sluice
# needs, into DIR: for a machine with a GPU, a CUDA toolkit and nothing else of ours, where nothing can
# be downloaded. Run it on a Debian machine of the same architecture, take DIR along, and give it to
# scripts/gpu_check.sh --prefix DIR. Needs no root.
#
# usage: gpu_packages.sh DIR
set -eu

packages='libjansson4 libjansson-dev libxxhash0 libxxhash-dev libpcre2-8-0 libpcre2-16-0
          libpcre2-32-0 libpcre2-posix3 libpcre2-dev libutf8proc2 libutf8proc-dev liburing2 liburing-dev
          libcmocka0 libcmocka-dev libjemalloc2 libjemalloc-dev pkgconf pkgconf-bin libpkgconf3'

if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
    sed -n 's/^# \{0,1\}//; 2,7p' "$0" >&2
    exit 64
fi
for tool in apt-get dpkg; do
    command -v $tool > /dev/null || {
        echo "gpu_packages.sh: this is no Debian: there is no $tool" >&2
        exit 1
    }
done

mkdir -p "$1"
prefix=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
cd "$scratch"
# shellcheck disable=SC2086 # a list of words on purpose
apt-get download -qq $packages
for package in *.deb; do
    dpkg -x "$package" "$prefix"
    echo "${package%%_*} $(dpkg-deb -f "$package" Version)"
done > "$prefix/packages.txt"
# What only people read stays behind.
rm -rf "$prefix/usr/share/doc" "$prefix/usr/share/man"
cat "$prefix/packages.txt"
echo "in $prefix: $(du -sh "$prefix" | cut -f1)"
