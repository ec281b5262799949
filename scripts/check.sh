#!/bin/sh
# Everything a change must pass: format, sizes, layers, headers that compile alone, scripts, and the
# dev workflow (sanitizers, warnings as errors, quick tests). Tools that are not installed are named
# and skipped; scripts/install_deps.sh --check installs them.
#
# usage: check.sh [--no-workflow] [--tidy]
#   --no-workflow   without building and testing
#   --tidy          clang-tidy too, over every source (some minutes)
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
workflow=yes
tidy=no
for option in "$@"; do
    case $option in
    --no-workflow) workflow=no ;;
    --tidy) tidy=yes ;;
    *) echo "check.sh: unknown option $option" >&2; exit 64 ;;
    esac
done

# step NAME COMMAND...: runs one check and goes on when it fails.
step()
{
    name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        failures=$((failures + 1))
    fi
}

sources()
{
    git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.cu' '*.cuh'
}

check_format()
{
    sources | xargs clang-format-14 --dry-run --Werror
}

# compile_alone COMPILER STANDARD LANGUAGE: each public header, as the only line of a program.
compile_alone()
{
    for header in include/sluice/*.h; do
        echo "#include \"sluice/$(basename "$header")\"" > "$scratch/alone.$3"
        "$1" "-std=$2" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only \
            "$scratch/alone.$3" || return 1
    done
}

# Headers of the rooms compile alone too, in C. lanes.h and its users are made for one ISA at a time.
compile_rooms_alone()
{
    sources | grep -E '^(src|chunk|kernels|offload)/.*\.h$' | grep -v '^kernels/cpu/simd/' |
        while read -r header; do
            echo "#include \"$PWD/$header\"" > "$scratch/room.c"
            gcc -std=gnu11 -Wall -Wextra -Werror -Iinclude -Isrc -I. -fsyntax-only \
                "$scratch/room.c" || exit 1
        done
}

check_tidy()
{
    cmake --preset dev > /dev/null
    sources | grep -E '^(src|chunk|kernels|offload)/.*\.c$' | grep -v '^kernels/cpu/simd/' |
        xargs -P "$(nproc)" -n 6 clang-tidy-14 -p build/dev --quiet 2> /dev/null
}

check_scripts()
{
    shellcheck scripts/*.sh scripts/check_layers scripts/check_docs scripts/check_size .ci/run tests/package/run.sh tests/gpu_report/*.sh \
        tests/golden/make.sh
}

# step_with TOOL NAME COMMAND...
step_with()
{
    tool=$1
    shift
    if command -v "$tool" > /dev/null; then
        step "$@"
    else
        echo "skipped $1: no $tool"
    fi
}

step_with clang-format-14 format check_format
step documents scripts/check_docs
step "documents, planted faults" scripts/check_docs --self-test
step sizes scripts/check_size
step "sizes, planted faults" scripts/check_size --self-test
step layers scripts/check_layers
step "layers, planted faults" scripts/check_layers --self-test
step "headers alone, C" compile_alone gcc c11 c
step_with g++ "headers alone, C++" compile_alone g++ c++11 cc
step "headers of rooms alone" compile_rooms_alone
step_with shellcheck scripts check_scripts
[ $workflow = no ] || step "dev workflow" cmake --workflow --preset dev
[ $tidy = no ] || step_with clang-tidy-14 tidy check_tidy

if [ "$failures" -ne 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks passed"
