#!/bin/sh
# Makes the packages of a build and tries them. The wheel: in an environment of each Python that is found,
# by its command and its module. On a bare Debian: the archive, before anything is installed; then the
# Debian package: installs it, asks for help and doctor, reads the manual, completes words in bash and
# zsh, trains, runs examples, and builds programs against the library; then the wheel again.
#
# usage: check_package.sh BUILD_DIR [KEEP_DIR]
#   BUILD_DIR   a configured build folder, Release
#   KEEP_DIR    an empty directory for the bare system, which stays; without it a temporary one
#
# The bare system needs root, debootstrap and the package archive that this machine's apt uses: where one is missing it
# says so and leaves with 77. Takes some minutes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

fail()
{
    echo "check_package.sh: $*" >&2
    exit 1
}

skip()
{
    echo "check_package.sh: skipped: $*" >&2
    exit 77
}

[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,13p' "$0"; exit 64; }
build=$(cd "$1" && pwd)
packages=$build/packages
rm -rf "$packages"
"$root/scripts/package.sh" "$build" "$packages"
(cd "$packages" && sha256sum --quiet -c SHA256SUMS && [ "$(wc -l < SHA256SUMS)" -ge 2 ]) ||
    fail "SHA256SUMS does not name the packages"

# What a stranger does first, by the command and by the module. $1: the folder of both.
# shellcheck disable=SC2016 # for the shell that runs it
trial='set -e
cd "$(mktemp -d)"
printf "%s\n" "import sluice" "options = dict(layers=1, width=32, heads=2, context=32, steps=2, device=\"cpu\")" \
    "with sluice.Session(options, data=\"text\", save=\"run\") as session:" "    print(session.train())" > try.py
seq 2000 > text
"$1/sluice" --version | head -n 1
"$1/python" try.py
"$1/sluice" generate run --tokens 8 --quiet > /dev/null'

# try_wheel PYTHON
try_wheel()
{
    place=$(mktemp -d)
    "$1" -m venv "$place/environment"
    "$place/environment/bin/python" -m pip --disable-pip-version-check install --quiet --no-index "$packages"/*.whl
    sh -c "$trial" sh "$place/environment/bin" || fail "the wheel does not work with $1"
    rm -rf "$place"
}

for minor in 9 10 11 12 13 14; do
    python=$(command -v "python3.$minor" || true)
    if [ -n "$python" ] && "$python" -c 'import venv' 2> /dev/null; then
        try_wheel "$python"
        echo "check_package.sh: the wheel works with Python 3.$minor"
    fi
done

[ "$(id -u)" = 0 ] || skip "needs root, to make a system of its own"
command -v debootstrap > /dev/null || skip "needs debootstrap: apt-get install debootstrap"
bare=${2:-$(mktemp -d)}
# shellcheck source=/dev/null
. /etc/os-release

clean_up()
{
    umount "$bare/dev/pts" "$bare/proc" "$bare/dev" 2> /dev/null || true
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

# shellcheck disable=SC2016 # apt's own words
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
[ -e "$bare/usr/bin/dpkg" ] || debootstrap --variant=minbase "$VERSION_CODENAME" "$bare" "$site"
mount -t proc proc "$bare/proc"
mount --bind /dev "$bare/dev"
mount --bind /dev/pts "$bare/dev/pts"
rm -rf "$bare"/*.deb "$bare"/*.whl "$bare"/tmp/* "$bare/consumer" # of a try before this one, in a KEEP_DIR
cp "$packages"/*.deb "$packages"/*.whl "$bare/"
for archive in "$packages"/*.tar.gz; do
    [ -e "$archive" ] || break # there was no patchelf
    tar -xf "$archive" -C "$bare/tmp"
    inside sh -c 'cd /tmp && seq 2000 > numbers && mv sluice-*-linux-* unpacked && unpacked/bin/sluice --version &&
        unpacked/bin/sluice train --layers 1 --width 32 --heads 2 --context 32 --data numbers --steps 2 --save archived &&
        unpacked/bin/sluice generate archived --tokens 8' || fail "the archive does not run where it is unpacked"
done
inside sh -c 'rm -f /etc/dpkg/dpkg.cfg.d/*; apt-get update -q && apt-get install -q -y --reinstall /*.deb'
inside apt-get install -q -y man-db bash-completion zsh

inside sluice --version
inside sluice --help | grep -q '^  train ' || fail "--help does not list train"
for page in sluice sluice-train sluice-plan sluice-doctor; do
    inside sh -c "MANWIDTH=80 man -P cat $page" > "$bare/page" 2> "$bare/complaint"
    { [ "$(wc -l < "$bare/page")" -gt 20 ] && [ ! -s "$bare/complaint" ]; } || fail "man $page says too little"
done
inside sh -c 'man -P cat sluice-train' | grep -q -e --policy || fail "man sluice-train has no --policy"
# shellcheck disable=SC2016 # for the shell inside
inside bash -c '. /usr/share/bash-completion/bash_completion
    _completion_loader sluice
    COMP_WORDS=(sluice train --policy nv) COMP_CWORD=3
    _sluice
    [ "${COMPREPLY[*]}" = nvme ]' || fail "bash does not complete"
# A terminal of its own, in which the tab key is pressed; what it shows is read back.
# shellcheck disable=SC2016 # for the shell inside
inside zsh -fc 'zmodload zsh/zpty
    zpty -b terminal TERM=dumb zsh -f
    zpty -w terminal "autoload -Uz compinit; compinit -u -D; PS1=; echo rea""dy"
    for try in {1..100}; do
        zpty -r -t terminal line && [[ $line = *ready* ]] && break
        sleep 0.1
    done
    zpty -w -n terminal "sluice train --policy nv"$'"'\t'"'
    said=
    for try in {1..100}; do
        zpty -r -t terminal line && said+=$line
        [[ $said = *nvme* ]] && exit 0
        sleep 0.1
    done
    print -r -- "$said" >&2
    exit 1' || fail "zsh does not complete"
inside sluice doctor --disk-dir /var/tmp
inside sh -c 'cat /usr/share/doc/sluice/docs/*.md > /tmp/text && cd /tmp &&
    sluice train --layers 2 --width 128 --heads 4 --context 128 --vocab 257 --data text \
        --policy nvme --disk-dir /var/tmp --steps 5 --save run && sluice generate run --tokens 8'
small='--layers 2 --width 128 --heads 4 --context 128 --micro-batch 2'
inside sh -c "sh /usr/share/doc/sluice/examples/compare_policies.sh /tmp/compared $small --vocab 257 --steps 3"
inside sh -c "sh /usr/share/doc/sluice/examples/profile_memory.sh /tmp/profiled $small --policy host"
inside sh -c "sluice plan --layers 24 --width 2304 --heads 24 --context 2048 --vocab 51200 --ranks 32 \
    --global-batch 512 --cluster /usr/share/doc/sluice/examples/clusters/dgx-a100-80gb.json"

# Programs of somebody else's, by pkg-config and by CMake: with the shared library alone, then with what
# the package suggests, the static one too.
mkdir -p "$bare/consumer"
cp "$root"/tests/package/main.c "$root"/tests/package/CMakeLists.txt "$bare/consumer/"
inside apt-get install -q -y --no-install-recommends gcc g++ libc6-dev make cmake pkg-config
# shellcheck disable=SC2016 # for the shell inside
inside sh -c 'cd /consumer && gcc main.c -o main $(pkg-config --cflags --libs sluice) && ./main &&
    g++ -x c++ main.c -o main_cpp $(pkg-config --cflags --libs sluice) && ./main_cpp'
suggested=$(dpkg-deb -f "$bare"/*.deb Suggests | tr -d ,)
# shellcheck disable=SC2086 # a list of words
inside apt-get install -q -y --no-install-recommends $suggested
inside sh -c 'cd /consumer && cmake -S . -B build -DEXAMPLE=/usr/share/doc/sluice/examples/mlp.c &&
    cmake --build build &&
    ./build/with_shared && ./build/with_static && ./build/with_cpp && ./build/with_cpp_static &&
    ./build/train_with_shared /usr/share/common-licenses/Apache-2.0 40 &&
    ./build/train_with_static /usr/share/common-licenses/Apache-2.0 40 &&
    ./build/embed /usr/share/common-licenses/Apache-2.0 20'
inside apt-get remove -q -y sluice
inside apt-get install -q -y --no-install-recommends python3-venv
inside sh -c 'python3 -m venv /tmp/environment && /tmp/environment/bin/pip install --quiet --no-index /*.whl'
inside sh -c "$trial" sh /tmp/environment/bin || fail "the wheel does not work on a bare $PRETTY_NAME"
[ ! -e "$bare/usr/bin/sluice" ] || fail "the package leaves sluice behind when it is removed"
echo "check_package.sh: the packages work on a bare $PRETTY_NAME"
