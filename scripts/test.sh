#!/bin/sh
# Installs what is missing, builds with warnings as errors, and runs the tests through CTest.
#
# usage: test.sh [--full] [--big] [--leg NAME | --legs all]
#        test.sh --self-test
#   (none)        the quick tests with reduced counts, as the release is built
#   --full        the complete counts
#   --big         also 124M, xl, and the comparisons with PyTorch
#   --leg NAME    another build: "release" (the only one with the CUDA backend), "asan" (address and
#                 undefined-behaviour sanitizers), "tsan" (thread sanitizer, the tests with threads);
#                 "static": what scripts/check.sh checks without running a test; or "fuzz": random
#                 inputs to every reader for some seconds each (scripts/fuzz.sh)
#   --legs all    all of them, as continuous integration does; a leg is built while the tests of those
#                 before it run; one that fails does not keep the next from running; what was skipped,
#                 a table of the legs, and CTest's summaries of those that failed, or of the release,
#                 come last
#   --self-test   plants a bug for each leg and expects that it fails
set -eu

all_legs='release asan tsan fuzz static'
fuzz_seconds=6 # for each reader
ahead=         # the process of run_ahead

usage()
{
    sed -n 's/^# \{0,1\}//; 2,18p' "$0"
}

# choose_leg NAME: what runs it; where it is built, with what, and which tests are its own.
choose_leg()
{
    run=run_tests
    cuda=-DSL_CUDA=OFF
    target=all
    tests=.
    case $1 in
    release)
        preset=release
        # Of the GPUs that a release is compiled for half, whose code has limits; with --full all.
        cuda='-DSL_CUDA_ARCHITECTURES=80-real;90 -DSL_PTX_ARCHITECTURES=90'
        [ -z "${SL_TEST_FULL:-}" ] ||
            cuda='-DSL_CUDA_ARCHITECTURES= -DSL_PTX_ARCHITECTURES=90;80;100;120'
        label="^($labels)\$"
        ;;
    asan) preset=dev; label="^($labels)\$" ;;
    tsan) preset=tsan; target=threaded_tests; label='^threads$' ;;
    static) preset=clang; run=run_static ;;
    fuzz) preset=fuzz; target=fuzz_targets; run=run_fuzz ;;
    *) echo "test.sh: no leg is called $1" >&2; usage >&2; exit 64 ;;
    esac
    tree=build/$preset
    summary=$tree/last_tests.log
    skips=$tree/last_skips.log
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
    rm -f "$summary" "$skips"
    # shellcheck disable=SC2086 # options
    cmake --preset "$preset" -B "$tree" $cuda "-DSL_PLANT=$1" &&
        cmake --build "$tree" --target "$target"
}

# Many tests spend most of their time waiting for processes or deadlines, and others use several
# threads: three tests at a time keep two cores busy.
test_leg()
{
    # shellcheck disable=SC2086 # a command and its option
    $launcher ctest --test-dir "$tree" --label-regex "$label" --tests-regex "$tests" \
        --output-on-failure --parallel 3 --no-tests=error --output-log "$summary"
    leg_code=$?
    list_skips "$summary" "$tree/Testing/Temporary/LastTest.log" > "$skips"
    return $leg_code
}

# list_skips SUMMARY LOG: a line "PROGRAM: TEST: reason" for each line of the log that says
# "skipped: ...", and one for each test or program that was skipped without saying so.
list_skips()
{
    awk '
    FNR == NR { if ($0 ~ /\*\*\*Skipped/) is_skipped[$4] = 1; next }
    function close_program() {
        if (program in is_skipped && !has_said)
            print program ": gave no reason"
        has_said = 0
        test = ""
    }
    /^[0-9]+\/[0-9]+ Test: / { close_program(); program = $3 }
    sub(/^\[ RUN      \] /, "") { test = $0 ": "; test_said = 0 }
    sub(/^skipped: /, "") { has_said = test_said = 1; print program ": " test $0 }
    sub(/^\[  SKIPPED \] /, "") && test == $0 ": " && !test_said {
        has_said = test_said = 1
        print program ": " test "gave no reason"
    }
    END { close_program() }' "$1" "$2"
}

run_tests()
{
    build_leg '' || return
    [ -z "$later_legs" ] || [ -n "$ahead" ] || start_ahead
    adapt_to_system "$1" && test_leg
}

check_statically()
{
    rm -f "$summary"
    mkdir -p "$tree"
    scripts/check.sh > "$summary" 2>&1
}

run_static()
{
    rm -f "$skips"
    if [ -n "$ahead" ] && [ -s build/ahead/static ]; then
        leg_code=$(cat build/ahead/static)
    else
        check_statically
        leg_code=$?
    fi
    cat "$summary"
    sed -n 's/^skipped: */check.sh: /p' "$summary" > "$skips"
    return "$leg_code"
}

run_fuzz()
{
    rm -f "$summary" "$skips"
    mkdir -p "$tree"
    : > "$skips"
    scripts/fuzz.sh --seconds "$fuzz_seconds" > "$summary" 2>&1
    leg_code=$?
    cat "$summary"
    return $leg_code
}

run_leg()
{
    choose_leg "$1"
    echo "== leg $1: preset $preset"
    $run "$1"
}

# As run_leg, in a tree of its own, with one test: the program that the bug is planted in.
run_planted_leg()
{
    choose_leg "$1"
    tree=build/planted-$preset
    summary=$tree/last_tests.log
    skips=$tree/last_skips.log
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

# expect_step_red STEP FILE WORDS: a step of scripts/check.sh passes an empty file, and fails with
# these words where FILE holds what stands on standard input.
expect_step_red()
{
    log=build/planted-$1.log
    mkdir -p "$(dirname "build/planted-static/$2")"
    echo 'typedef int planted;' > "build/planted-static/$2"
    case $1 in scripts) printf '#!/bin/sh\n' > "build/planted-static/$2" ;; esac
    if ! scripts/check.sh --only "$1" "build/planted-static/$2" > "$log" 2>&1; then
        echo "FAILED  static, $1: fails without a fault, see $log"
        return 1
    fi
    cat > "build/planted-static/$2"
    if scripts/check.sh --only "$1" "build/planted-static/$2" > "$log" 2>&1 ||
        ! grep -q "$3" "$log"; then
        echo "FAILED  static, $1: did not notice the planted fault, see $log"
        return 1
    fi
    echo "ok      static, $1 notices a planted fault"
}

# The steps that are not here plant faults of their own whenever they run.
self_test_static()
{
    result=0
    printf 'int  f( void );\n' | expect_step_red format src/base/planted.c clang-format || result=1
    printf 'int f(void);\nint f(void)\n{\n    int *none = 0;\n    return *none;\n}\n' |
        expect_step_red tidy src/base/planted.c NullDereference || result=1
    printf 'uint64_t f(void);\n' | expect_step_red rooms src/base/planted.h uint64_t || result=1
    # shellcheck disable=SC2016 # the dollar is text
    printf '#!/bin/sh\necho $unset_words *\n' |
        expect_step_red scripts scripts/planted SC2154 || result=1
    printf '#ifdef __clang__\n#error planted\n#endif\n' > build/planted-static/clang.h
    log=build/planted-clang.log
    rm -rf build/planted-clang
    if CFLAGS="-include $PWD/build/planted-static/clang.h" SL_CLANG_TREE=build/planted-clang \
        scripts/check.sh --only clang > "$log" 2>&1 || ! grep -q 'error: planted' "$log"; then
        echo "FAILED  static, clang: did not notice the planted fault, see $log"
        result=1
    else
        echo "ok      static, clang notices a planted fault"
    fi
    return $result
}

# A test that is skipped inside of a program, and a program of nothing else, are seen.
self_test_skips()
{
    choose_leg release
    for plant in skip skip_all; do
        run_planted_leg release $plant > build/planted-$plant.log 2>&1
        if ! grep -q '^test_planted: sum_when.*: planted' "$skips"; then
            echo "FAILED  skips: $plant is not listed, see build/planted-$plant.log"
            return 1
        fi
    done
    if ! grep -q 'Skipped' build/planted-skip_all.log; then
        echo "FAILED  skips: a program that skips all its tests passes, see build/planted-skip_all.log"
        return 1
    fi
    echo "ok      skips are listed"
}

self_test()
{
    failures=0
    expect_red release wrong_sum 'is not 500500' || failures=1
    expect_red asan overflow 'heap-buffer-overflow' || failures=1
    expect_red tsan race 'data race' || failures=1
    self_test_skips || failures=1
    self_test_static || failures=1
    exit $failures
}

# print_summary LEG: CTest's own, as the log has it between marks of its own; none if nothing ran.
print_summary()
{
    choose_leg "$1"
    echo "== summary of leg $1"
    [ ! -e "$summary" ] ||
        sed -n '/^\(ok\|FAILED\|skipped\) /p; /tests passed/,${/^\[[A-Z_]*\] *$/!p}' "$summary"
}

# print_skips LEG...: what these did not test, and why.
print_skips()
{
    for leg in "$@"; do
        choose_leg "$leg"
        [ ! -s "$skips" ] || sed "s/^/$leg: /" "$skips"
    done > build/skips
    echo "== skipped: $(wc -l < build/skips) (tests inside of programs included)"
    cat build/skips
}

# Tests leave processors idle: they wait for processes and deadlines, and the last one runs alone. While
# the tests of one leg run, the later legs are built and the static one is run, at the lowest priority,
# in a session of their own, so that they end with this script.
start_ahead()
{
    rm -rf build/ahead
    mkdir -p build/ahead
    # shellcheck disable=SC2086 # a list of words
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
        setsid nice -n 19 scripts/test.sh --ahead $later_legs > build/ahead/log 2>&1 &
    ahead=$!
    trap 'kill -- "-$ahead" 2> /dev/null || true' EXIT
    trap 'exit 130' INT TERM HUP
}

# run_ahead LEG...: one after the other; build/ahead/LEG gets the exit code. A build that failed is tried
# again when its leg runs, and says why there.
run_ahead()
{
    # Where the kernel shares time among sessions first, the session is the last one, too.
    (echo 19 > /proc/self/autogroup) 2> /dev/null || true
    for leg in "$@"; do
        choose_leg "$leg"
        code=0
        case $leg in
        static) check_statically || code=$? ;;
        *) build_leg '' || code=$? ;;
        esac
        echo $code > "build/ahead/$leg"
    done
}

# await_ahead LEG: until the leg was built ahead, or will not be.
await_ahead()
{
    while [ -n "$ahead" ] && [ ! -s "build/ahead/$1" ] && kill -0 "$ahead" 2> /dev/null; do
        sleep 1
    done
}

# Every leg, then a table of them, then the summaries that tell most.
run_all_legs()
{
    table=
    failed=
    later_legs=$all_legs
    for leg in $all_legs; do
        later_legs=${later_legs#"$leg"}
        later_legs=${later_legs# }
        started=$(date +%s)
        verdict=passed
        await_ahead "$leg"
        if ! run_leg "$leg"; then
            verdict=FAILED
            failed="$failed $leg"
        fi
        table="$table$(printf '%-8s %s in %d s' "$leg" $verdict $(($(date +%s) - started)))
"
    done
    # shellcheck disable=SC2086 # a list of words
    print_skips $all_legs
    printf '== legs\n%s' "$table"
    for leg in ${failed:-release}; do
        print_summary "$leg"
    done
    [ -z "$failed" ]
}

labels=quick
legs=release
later_legs=
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
    --ahead) # LEG...: of the script itself
        shift
        cd "$(dirname "$0")/.."
        run_ahead "$@"
        exit
        ;;
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
case $legs in
all | planted | static | fuzz) # a step whose tool cannot be had is skipped, and listed as that
    scripts/install_deps.sh --tests --check || scripts/install_deps.sh --tests
    ;;
*) scripts/install_deps.sh --tests ;;
esac
[ "$legs" != planted ] || self_test
if [ -z "${SL_TEST_FULL:-}" ]; then
    echo "Reduced counts; scripts/test.sh --full runs the complete ones."
fi
if [ "$legs" = all ]; then
    run_all_legs
else
    code=0
    run_leg "$legs" || code=$?
    print_skips "$legs"
    print_summary "$legs"
    exit $code
fi
