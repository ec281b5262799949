#!/bin/sh
# Installs what is missing, builds with warnings as errors, and runs the tests through CTest.
#
# usage: test.sh [--full] [--big] [--leg NAME | --legs all]
#        test.sh --self-test
#   (none)        the quick tests with reduced counts, as the release is built
#   --full        the complete counts
#   --big         also 124M, xl, and the comparisons with PyTorch
#   --leg NAME    another build: "release" (the only one with the CUDA backend), "asan" (address and
#                 undefined-behaviour sanitizers), "tsan" (thread sanitizer, the tests with threads)
#   --legs all    all three, one after the other, as continuous integration does; a leg that fails
#                 does not keep the next from running; CTest's summary of the first that failed, or
#                 of the release, comes last
#   --self-test   plants a bug for each leg and expects that it fails
set -eu

usage()
{
    sed -n 's/^# \{0,1\}//; 2,14p' "$0"
}

# choose_leg NAME: where it is built, with what, and which tests are its own.
choose_leg()
{
    cuda=-DSL_CUDA=OFF
    target=all
    tests=.
    case $1 in
    release) preset=release; cuda=; label="^($labels)\$" ;;
    asan) preset=dev; label="^($labels)\$" ;;
    tsan) preset=tsan; target=threaded_tests; label='^threads$' ;;
    *) echo "test.sh: no leg is called $1" >&2; usage >&2; exit 64 ;;
    esac
    tree=build/$preset
    summary=$tree/last_tests.log
}

# can_run COMMAND...: whether a program with the thread sanitizer, or with the leak sanitizer, runs.
can_run()
{
    sanitizer=$1
    shift
    echo 'int main(void) { return 0; }' > "$tree/probe.c"
    "${CC:-cc}" "-fsanitize=$sanitizer" -o "$tree/probe" "$tree/probe.c" &&
        "$@" "$tree/probe" > /dev/null 2>&1
}

# Sanitizers ask of the system what some containers and kernels refuse.
adapt_to_system()
{
    launcher=
    case $1 in
    asan)
        if ! can_run address env; then
            echo "The leak sanitizer does not run here (ptrace?): leaks are not looked for."
            export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
        fi
        ;;
    tsan)
        if ! can_run thread env && can_run thread setarch -R; then
            echo "The thread sanitizer needs addresses that are not randomised: setarch -R."
            launcher='setarch -R'
        fi
        ;;
    esac
}

# build_leg PLANT: configures and builds; with a PLANT only the program that it is planted in.
build_leg()
{
    rm -f "$summary"
    cmake --preset "$preset" -B "$tree" ${cuda:+"$cuda"} "-DSL_PLANT=$1" &&
        cmake --build "$tree" --target "$target"
}

# Tests are cheap beside their time-outs but use several threads themselves: two at a time.
test_leg()
{
    # shellcheck disable=SC2086 # a command and its option
    $launcher ctest --test-dir "$tree" --label-regex "$label" --tests-regex "$tests" \
        --output-on-failure --parallel 2 --no-tests=error --output-log "$summary"
}

run_leg()
{
    choose_leg "$1"
    echo "== leg $1: preset $preset"
    build_leg '' && adapt_to_system "$1" && test_leg
}

# As run_leg, in a tree of its own, with one test: the program that the bug is planted in.
run_planted_leg()
{
    choose_leg "$1"
    tree=build/planted-$preset
    summary=$tree/last_tests.log
    target=test_planted
    tests='^test_planted$'
    cuda=-DSL_CUDA=OFF
    build_leg "$2" && adapt_to_system "$1" && test_leg
}

# expect_red LEG PLANT WORDS: the leg passes without the bug, and with it fails with these words.
expect_red()
{
    mkdir -p build
    log=build/planted-$1.log
    if ! run_planted_leg "$1" nothing > "$log" 2>&1; then
        echo "FAILED  $1: fails without a bug, see $log"
        return 1
    fi
    if run_planted_leg "$1" "$2" > "$log" 2>&1 || ! grep -q "$3" "$log"; then
        echo "FAILED  $1: did not notice the planted $2, see $log"
        return 1
    fi
    echo "ok      $1 notices a planted $2"
}

self_test()
{
    failures=0
    expect_red release wrong_sum 'is not 500500' || failures=1
    expect_red asan overflow 'heap-buffer-overflow' || failures=1
    expect_red tsan race 'data race' || failures=1
    exit $failures
}

# print_summary LEG: CTest's own, as the log has it between marks of its own; none if nothing ran.
print_summary()
{
    choose_leg "$1"
    echo "== summary of leg $1"
    [ ! -e "$summary" ] || sed -n '/tests passed/,${/^\[[A-Z_]*\] *$/!p}' "$summary"
}

# Every leg, then a table of them, then the summary that tells most.
run_all_legs()
{
    table=
    failed=
    for leg in release asan tsan; do
        started=$(date +%s)
        verdict=passed
        if ! run_leg "$leg"; then
            verdict=FAILED
            failed=${failed:-$leg}
        fi
        table="$table$(printf '%-8s %s in %d s' "$leg" $verdict $(($(date +%s) - started)))
"
    done
    printf '== legs\n%s' "$table"
    print_summary "${failed:-release}"
    [ -z "$failed" ]
}

labels=quick
legs=release
while [ $# -gt 0 ]; do
    case $1 in
    --full) export SL_TEST_FULL=1 ;;
    --big) labels='quick|big' ;;
    --leg | --legs)
        [ $# -gt 1 ] || { echo "test.sh: $1 needs a name" >&2; usage >&2; exit 64; }
        legs=$2
        shift
        ;;
    --self-test) legs=planted ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown option $1" >&2; usage >&2; exit 64 ;;
    esac
    shift
done
case $legs in
all | planted) ;;
*) choose_leg "$legs" ;; # a name that is none ends here
esac

cd "$(dirname "$0")/.."
scripts/install_deps.sh
[ "$legs" != planted ] || self_test
if [ -z "${SL_TEST_FULL:-}" ]; then
    echo "Reduced counts; scripts/test.sh --full runs the complete ones."
fi
if [ "$legs" = all ]; then
    run_all_legs
else
    run_leg "$legs"
fi
