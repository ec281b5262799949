#!/bin/sh
# Installs what building and testing sluice needs and this machine lacks, by apt; asks sudo only when
# not root. Where everything is there it does nothing and needs no network.
#
# usage: install_deps.sh [--check] [--tests]
#   --check   with developer tools: formatter, linters
#   --tests   also the MPIs that tests/comm/test_comm_mpi.c runs ranks by, and, where there is a CUDA
#             compiler, the disassembler of scripts/check_sass, by pip into build/
set -eu

needed='cmake ninja-build gcc g++ libc6-dev pkg-config git libjansson-dev libxxhash-dev libpcre2-dev libutf8proc-dev
        libcmocka-dev libjemalloc-dev liburing-dev libhwloc-dev zlib1g-dev libzstd-dev'
for_tests_too='openmpi-bin libopenmpi-dev mpich libmpich-dev'
for_check='clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev shellcheck'

packages=$needed
for_tests=
for option in "$@"; do
    case $option in
    --check) packages="$packages $for_check" ;;
    --tests) packages="$packages $for_tests_too" for_tests=yes ;;
    *) echo "install_deps.sh: unknown option $option" >&2; exit 64 ;;
    esac
done

# Without it a test is skipped, which is no reason to end here.
if [ -n "$for_tests" ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } > /dev/null 2>&1 &&
    command -v python3 > /dev/null; then
    "$(dirname "$0")/check_sass" --install ||
        echo "install_deps.sh: no disassembler; the limits of CUDA kernels are not checked" >&2
fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    echo "install_deps.sh: this is no Debian; please install the equivalents of: $packages" >&2
    exit 0
fi

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words on purpose
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
