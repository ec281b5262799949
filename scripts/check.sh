#!/bin/sh
# Everything a change must pass that needs no test run: format, documents, sizes, layers, headers that
# compile alone, scripts, a build by clang and clang-tidy over every source. Continuous integration
# runs it as the leg "static" of scripts/test.sh. A tool that is missing is named, and its checks are
# counted as skipped; scripts/install_deps.sh --check installs them.
#
# usage: check.sh [--quick | --workflow | --only STEP] [FILE...]
#   (none)       all steps
#   --quick      without the build by clang and clang-tidy: seconds
#   --workflow   and the dev workflow: sanitizers, warnings as errors, quick tests
#   --only STEP  one of: format documents sizes layers headers rooms scripts clang tidy
#   FILE...      format, rooms, scripts and tidy look at these alone
set -eu

usage()
{
    sed -n 's/^# \{0,1\}//; 2,12p' "$0"
}

fast='format documents sizes layers headers rooms scripts'
chosen="$fast clang tidy"
workflow=no
while [ $# -gt 0 ]; do
    case $1 in
    --quick) chosen=$fast ;;
    --workflow) workflow=yes ;;
    --only)
        [ $# -gt 1 ] || { usage >&2; exit 64; }
        chosen=$2
        shift
        ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "check.sh: unknown option $1" >&2; usage >&2; exit 64 ;;
    *) break ;;
    esac
    shift
done
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
clang_tree=${SL_CLANG_TREE:-build/clang}
printf '%s\n' "$@" | sed '/^$/d' > "$scratch/files"
failures=0
skipped=

# sources PATTERN: what is checked and matches, one a line.
sources()
{
    if [ -s "$scratch/files" ]; then
        cat "$scratch/files"
    else
        git ls-files --cached --others --exclude-standard | while read -r file; do
            [ ! -e "$file" ] || echo "$file"
        done
    fi | grep -E "$1"
}

# ---- steps: each passes, fails, or names what is missing and returns 77

need()
{
    for tool in "$@"; do
        command -v "$tool" > /dev/null || { echo "there is no $tool"; return 77; }
    done
}

check_format()
{
    need clang-format-14 || return
    sources '\.(c|h|cpp|cu|cuh)$' | xargs clang-format-14 --dry-run --Werror
}

check_documents()
{
    scripts/check_docs && scripts/check_docs --self-test || return
    need python3 || return
    scripts/make_reference --check
}

check_sizes()
{
    scripts/check_size && scripts/check_size --self-test
}

check_layers()
{
    scripts/check_layers && scripts/check_layers --self-test
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

check_headers()
{
    need gcc g++ || return
    compile_alone gcc c11 c && compile_alone g++ c++11 cc
}

# Headers of the rooms compile alone too, in C. lanes.h and its users are made for one ISA at a time.
check_rooms()
{
    need gcc || return
    sources '^(.*/)?(src|chunk|kernels|offload)/.*\.h$' | grep -Ev '^kernels/cpu/simd/|(^|/)tests/' |
        while read -r header; do
            echo "#include \"$(realpath "$header")\"" > "$scratch/room.c"
            gcc -std=gnu11 -Wall -Wextra -Werror -Iinclude -Isrc -I. -fsyntax-only \
                "$scratch/room.c" || exit 1
        done
}

check_scripts()
{
    need shellcheck || return
    sources . | while read -r file; do
        if head -n 1 "$file" | tr -d '\000' | grep -q '^#!/bin/sh'; then echo "$file"; fi
    done | xargs shellcheck
}

# What one compiler alone takes is no C. The command must also start.
check_clang()
{
    need clang-14 clang++-14 || return
    cmake --preset clang -B "$clang_tree" > "$scratch/log" || { cat "$scratch/log"; return 1; }
    cmake --build "$clang_tree" --target sluice_command > "$scratch/log" ||
        { tail -n 60 "$scratch/log"; return 1; }
    "$clang_tree/sluice" --version | head -n 2
}

# By the flags of the build by clang. The inner loops of the kernels are left out: each file is in the
# build once for each instruction set, and all they hold is arithmetic, which the tests hold.
check_tidy()
{
    need clang-tidy-14 || return
    [ -e "$clang_tree/compile_commands.json" ] || cmake --preset clang -B "$clang_tree" > /dev/null
    cmake --build "$clang_tree" --target sluice_commit > /dev/null
    sources '^(.*/)?(src|chunk|kernels|offload)/.*\.c$' | grep -Ev '^kernels/cpu/simd/|(^|/)tests/' |
        xargs -P "$(nproc)" -n 4 clang-tidy-14 -p "$clang_tree" --quiet 2> "$scratch/log" && return
    grep -v 'warnings generated' "$scratch/log" | tail -n 20
    return 1
}

check_workflow()
{
    cmake --workflow --preset dev
}

# ---- all of them

# step NAME: runs one and goes on when it fails.
step()
{
    started=$(date +%s)
    code=0
    ("check_$1") > "$scratch/step" 2>&1 || code=$?
    taken="$(printf '%-10s %4d s' "$1" $(($(date +%s) - started)))"
    case $code in
    0) echo "ok      $taken" ;;
    77)
        echo "skipped $taken: $(tail -n 1 "$scratch/step")"
        skipped="$skipped $1"
        ;;
    *)
        cat "$scratch/step"
        echo "FAILED  $taken"
        failures=$((failures + 1))
        ;;
    esac
}

[ $workflow = no ] || chosen="$chosen workflow"
for name in $chosen; do
    case " $fast clang tidy workflow " in
    *" $name "*) step "$name" ;;
    *) echo "check.sh: no step is called $name" >&2; usage >&2; exit 64 ;;
    esac
done

[ -z "$skipped" ] || echo "skipped:$skipped (scripts/install_deps.sh --check installs what they need)"
if [ "$failures" -ne 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo "all checks that ran passed"
