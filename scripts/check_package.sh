#!/bin/sh
# Makes the Debian package of a build and tries it on a bare Debian: installs it there, reads the
# manual, completes a word, asks doctor, trains, and builds a program against the library.
#
# usage: check_package.sh BUILD_DIR [KEEP_DIR]
#   BUILD_DIR   a configured build folder, Release
#   KEEP_DIR    an empty directory for the bare system, which stays; without it a temporary one
#
# Needs root, debootstrap and the package archive that this machine's apt uses. Takes some minutes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

fail()
{
    echo "check_package.sh: $*" >&2
    exit 1
}

[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,9p' "$0"; exit 64; }
[ "$(id -u)" = 0 ] || fail "needs root, to make a system of its own"
command -v debootstrap > /dev/null || fail "needs debootstrap: apt-get install debootstrap"
build=$(cd "$1" && pwd)
bare=${2:-$(mktemp -d)}
# shellcheck source=/dev/null
. /etc/os-release

clean_up()
{
    umount "$bare/proc" "$bare/dev" 2> /dev/null || true
    [ -n "${kept:-}" ] || rm -rf --one-file-system "$bare"
}
kept=${2:-}
trap clean_up EXIT

# inside WORDS...: runs a command in the bare system.
inside()
{
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} chroot "$bare" "$@"
}

cmake --build "$build" --target sluice sluice_shared sluice_command sluice_pages
(cd "$build" && rm -f ./*.deb && cpack -G DEB)
# shellcheck disable=SC2016 # apt's own words
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
[ -e "$bare/usr/bin/dpkg" ] || debootstrap --variant=minbase "$VERSION_CODENAME" "$bare" "$site"
mount -t proc proc "$bare/proc"
mount --bind /dev "$bare/dev"
rm -f "$bare"/*.deb
cp "$build"/*.deb "$bare/"
inside sh -c 'rm -f /etc/dpkg/dpkg.cfg.d/*; apt-get update -q && apt-get install -q -y /*.deb'
inside apt-get install -q -y man-db bash-completion

inside sluice --version
inside sh -c 'man sluice-train | grep -q -e --policy' || fail "man sluice-train says nothing"
# shellcheck disable=SC2016 # for the shell inside
inside bash -c '. /usr/share/bash-completion/bash_completion
    _completion_loader sluice
    COMP_WORDS=(sluice train --policy nv) COMP_CWORD=3
    _sluice
    [ "${COMPREPLY[*]}" = nvme ]' || fail "bash does not complete"
inside sluice doctor --disk-dir /var/tmp
inside sh -c 'cat /usr/share/doc/sluice/docs/*.md > /tmp/text && cd /tmp &&
    sluice train --layers 2 --width 128 --heads 4 --context 128 --vocab 257 --data text \
        --policy nvme --disk-dir /var/tmp --steps 5 --save run && sluice generate run --tokens 8'

# A program of somebody else's, by pkg-config and by CMake.
mkdir -p "$bare/consumer"
cp "$root"/tests/package/main.c "$root"/tests/package/CMakeLists.txt "$bare/consumer/"
inside apt-get install -q -y --no-install-recommends gcc libc6-dev cmake make pkg-config libjansson-dev \
    libxxhash-dev liburing-dev zlib1g-dev libzstd-dev
# shellcheck disable=SC2016 # for the shell inside
inside sh -c 'cd /consumer && gcc main.c -o main $(pkg-config --cflags --libs sluice) && ./main'
inside sh -c 'cd /consumer && cmake -S . -B build -DEXAMPLE=/usr/share/doc/sluice/examples/own_model.c &&
    cmake --build build && ./build/with_shared && ./build/with_static'
inside apt-get remove -q -y sluice
[ ! -e "$bare/usr/bin/sluice" ] || fail "the package leaves sluice behind when it is removed"
echo "check_package.sh: the package works on a bare $PRETTY_NAME"
