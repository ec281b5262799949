#!/bin/sh
# Gives random inputs to every reader of files and words, by libFuzzer (clang-14) with the address
# and undefined-behaviour sanitizers. What it finds lies in build/fuzz/finds; a find that is mended
# goes into tests/fuzz/corpus, whose inputs come first and are replayed by the quick tests too.
#
# usage: fuzz.sh MINUTES [TARGET...]        minutes for each target; none named: all
#        fuzz.sh --processor MINUTES [TARGET...]  of processor time: beside other work the same work
#        fuzz.sh --seconds N [TARGET...]    as continuous integration does
#        fuzz.sh --coverage [TARGET...]     lines of each reader that the kept inputs reach (gcc)
#        fuzz.sh --minimise [TARGET...]     keeps of old and new inputs the fewest that reach as much
#        fuzz.sh --self-test [TARGET...]    plants a bug in each reader (tests/fuzz/plants.txt) and
#                                           expects that its target finds it: by new inputs, made
#                                           from the kept ones that do not show it, or else by
#                                           those that do
set -eu

# Time for one input, in seconds; memory of the process, in MiB; bytes of an input.
limits='-timeout=10 -rss_limit_mb=1024 -max_len=4096'
self_test_seconds=20
patience=1 # seconds on the wall for each that is asked for

usage()
{
    sed -n 's/^# \{0,1\}//; 2,14p' "$0"
}

# build PRESET TREE [OPTION...]: configures and builds the targets.
build()
{
    preset=$1
    tree=$2
    shift 2
    cmake --preset "$preset" -B "$tree" "$@" > "$logs/build.log" 2>&1 &&
        cmake --build "$tree" --target fuzz_targets >> "$logs/build.log" 2>&1 && return
    cat "$logs/build.log"
    return 1
}

# The leak sanitizer does not run where a debugger is attached, as in some containers.
adapt_to_system()
{
    if ! "$1" -runs=1 > "$logs/probe.log" 2>&1 && grep -q 'LeakSanitizer has' "$logs/probe.log"
    then
        echo "The leak sanitizer does not run here (ptrace?): leaks are not looked for."
        export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
    fi
}

# run_fuzzer TARGET SECONDS FINDS CORPUS...: libFuzzer's exit status; what it said is in its log.
run_fuzzer()
{
    target=$1
    seconds=$2
    finds=$3
    shift 3
    mkdir -p "$finds"
    # shellcheck disable=SC2086 # words on purpose
    "$programs/fuzz_$target" $limits "-max_total_time=$((seconds * patience))" \
        -print_final_stats=1 \
        "-dict=tests/fuzz/dictionaries/$target.dict" "-artifact_prefix=$finds/" "$@" \
        > "$logs/$target.log" 2>&1
}

# find_number NAME TARGET: one of the numbers at the end of a log.
find_number()
{
    sed -n "s/^stat::$1: *//p" "$logs/$2.log" | tail -1
}

# One line for a target; fails if something was found.
fuzz_target()
{
    finds=build/fuzz/finds/$1
    grown=build/fuzz/corpus/$1
    mkdir -p "$grown"
    verdict=ok
    run_fuzzer "$1" "$2" "$finds" "$grown" "tests/fuzz/corpus/$1" || verdict=FAILED
    printf '%-7s %-14s %10s inputs, %6s a second, %4s kept, %4s new\n' $verdict "$1" \
        "$(find_number number_of_executed_units "$1")" "$(find_number average_exec_per_sec "$1")" \
        "$(find "tests/fuzz/corpus/$1" -type f | wc -l)" "$(find_number new_units_added "$1")"
    [ $verdict = ok ] || {
        grep -m 3 -E '^fuzz: |SUMMARY|ERROR: ' "$logs/$1.log" || tail -3 "$logs/$1.log"
        find "$finds" -type f
        return 1
    }
}

# wait_for PROCESS...: fails if one of them did.
wait_for()
{
    result=0
    for process in "$@"; do
        wait "$process" || result=1
    done
    return $result
}

# One target for each core at a time.
fuzz_all()
{
    build fuzz build/fuzz || return 1
    programs=build/fuzz/tests/fuzz
    adapt_to_system "$programs/fuzz_tokens"
    failed=0
    seconds_each=$1
    set --
    for target in $targets; do
        fuzz_target "$target" "$seconds_each" &
        set -- "$@" $!
        [ $# -ge "$(nproc)" ] || continue
        wait_for "$@" || failed=1
        set --
    done
    wait_for "$@" || failed=1
    return $failed
}

# libFuzzer's merge takes the fewest inputs, smallest first; inputs that crash are left out. What is
# reached counts, not how often: that would keep three times as many.
minimise()
{
    build fuzz build/fuzz || return 1
    for target in $targets; do
        kept=tests/fuzz/corpus/$target
        least=$logs/least-$target
        mkdir -p "$least" "$kept" "build/fuzz/corpus/$target"
        # shellcheck disable=SC2086 # words on purpose
        "build/fuzz/tests/fuzz/fuzz_$target" $limits -merge=1 -use_counters=0 \
            "-artifact_prefix=$logs/" "$least" "$kept" "build/fuzz/corpus/$target" \
            > "$logs/$target.log" 2>&1
        rm -rf "$kept"
        mv "$least" "$kept"
        printf '%-14s %4s inputs, %6s bytes\n' "$target" "$(find "$kept" -type f | wc -l)" \
            "$(find "$kept" -type f -exec cat {} + | wc -c)"
    done
}

# find_planted TARGET WORDS CORPUS
find_planted()
{
    ! run_fuzzer "$1" $self_test_seconds "$logs/finds-$1" "$3" && grep -q "$2" "$logs/$1.log"
}

# expect_find TARGET WORDS
expect_find()
{
    clean=$logs/clean-$1
    mkdir -p "$clean"
    # shellcheck disable=SC2086 # words on purpose
    "$programs/fuzz_$1" $limits -merge=1 "-artifact_prefix=$logs/" "$clean" \
        "tests/fuzz/corpus/$1" > "$logs/$1.log" 2>&1 || true
    kept_count=$(find "tests/fuzz/corpus/$1" -type f | wc -l)
    clean_count=$(find "$clean" -type f | wc -l)
    started=$(date +%s)
    if find_planted "$1" "$2" "$clean"; then
        echo "ok      $1 finds its planted bug by a new input in $(($(date +%s) - started)) s," \
            "from $clean_count of $kept_count kept ones"
    elif find_planted "$1" "$2" "tests/fuzz/corpus/$1"; then
        echo "ok      $1 finds its planted bug by kept inputs; by new ones not in" \
            "$self_test_seconds s, from $clean_count of $kept_count"
    else
        cp "$logs/$1.log" "build/fuzz-planted/$1.log"
        echo "FAILED  $1 did not find its planted bug ($2), see build/fuzz-planted/$1.log"
        return 1
    fi
}

self_test()
{
    build fuzz build/fuzz-planted -DSL_FUZZ_PLANT=ON -DSL_WERROR=OFF || return 1
    programs=build/fuzz-planted/tests/fuzz
    adapt_to_system "$programs/fuzz_tokens"
    failed=0
    for target in $targets; do
        words=$(sed -n "s/^$target [^ ]* s\/.*\/ //p" tests/fuzz/plants.txt)
        expect_find "$target" "$words" || failed=1
    done
    return $failed
}

mode=fuzz
case ${1:-} in
--seconds)
    [ $# -gt 1 ] || { usage >&2; exit 64; }
    seconds=$2
    shift
    ;;
--processor)
    [ $# -gt 1 ] || { usage >&2; exit 64; }
    seconds=$(($2 * 60))
    patience=100
    export SL_FUZZ_PROCESSOR_SECONDS=$seconds
    shift
    ;;
--coverage | --minimise | --self-test) mode=${1#--} ;;
-h | --help) usage; exit 0 ;;
[0-9]*) seconds=$(($1 * 60)) ;;
*) usage >&2; exit 64 ;;
esac
shift

cd "$(dirname "$0")/.."
known=$(find tests/fuzz/dictionaries -name '*.dict' -exec basename {} .dict \; | LC_ALL=C sort)
targets=${*:-$known}
for target in $targets; do
    echo "$known" | grep -qx "$target" || {
        echo "fuzz.sh: no target is called $target" >&2
        exit 64
    }
done
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export TMPDIR="$logs" # targets that abort leave their files

case $mode in
fuzz) fuzz_all "$seconds" ;;
minimise) minimise ;;
self-test) self_test ;;
coverage)
    # shellcheck disable=SC2086 # words on purpose
    build fuzz-coverage build/fuzz-coverage && tests/fuzz/coverage.py build/fuzz-coverage $targets
    ;;
esac
