#!/bin/sh
# What scripts/gpu_check.sh makes of its stages, on a machine whose GPU, compiler and sluice are stubs:
# every number is made up. Wrong could be: the order and the seconds of stages; that an unfinished bench
# takes the quick one's rates away, or that stages do not do without; a report that forgets earlier
# calls, or remembers those of another commit; sides of a comparison that vanish without a word.
#
# usage: check.sh PYTHON REPOSITORY
set -eu

python=$1 root=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/build" "$scratch/bin"
cp "$root"/tests/gpu_report/stub/* "$scratch/bin"
mv "$scratch/bin/sluice" "$scratch/build/sluice"
ln -s "$python" "$scratch/bin/python3"
PATH=$scratch/bin:$PATH
export PATH

# Quick tests ask no Python package, not even where one is installed.
mkdir "$scratch/none"
for package in torch numpy transformers; do
    echo "raise ModuleNotFoundError(\"No module named '$package'\")" > "$scratch/none/$package.py"
done
export PYTHONPATH="$scratch/none"

fail()
{
    echo "FAILED: $*" >&2
    cat "$scratch"/out/logs.txt >&2 || :
    exit 1
}

check()
{
    code=0
    "$root/scripts/gpu_check.sh" --out "$scratch/out" --build "$scratch/build" "$@" \
        > "$scratch/said" || code=$?
    page=$scratch/out/report.md
}

says() { grep -qF -- "$1" "$page" || fail "the page does not say: $1"; }
says_not() { ! grep -qF -- "$1" "$page" || fail "the page says: $1"; }

check --commit one --limit 0 --disk-dir none
order=$(cut -f 1 "$scratch/build/check/stages.tsv" | tr '\n' ' ')
[ "$order" = 'build proof gpu bench memory pair offload agreement largest ranks tests sanitizer ' ] ||
    fail "the order is $order"

# The parts of a self-test, also of one that ends with an error; other stages do not test again.
check --commit one --limit 200 --disk-dir none --stage proof
[ $code -eq 1 ] || fail "a wrong answer ends with $code"
says '| cuda:0 order | passed | 1000 rounds'
says '| cuda:0 kernels | failed | linear in bf16'
says '| proof | fail |'

# Without rates; and what one stage does not take is the next one's, but for what later ones count on.
check --commit one --limit 200 --disk-dir none --stage build --stage offload
[ $code -eq 0 ] || fail "offload without a bench ends with $code"
grep -q 'build (at most 140 s)' "$scratch/said" || fail "the build's seconds are others"
grep -Eq 'offload \(at most (1[0-9][0-9]|200) s\)' "$scratch/said" || fail "no stage has what another left"
says 'bench.json is not there'
says 'no machine profile'
says '| gpt2 | nvme | not run: there is no --disk-dir |'

check --commit one --limit 200 --disk-dir "$scratch" --stage bench --stage pair --stage offload
[ $code -eq 0 ] || fail "the stages end with $code"
says 'the quick rates only'
says_not 'bench.json is not there'
says '| gpt2 | no-epilogue |'
says '| gpt2-xl | no-wait-value |'
says '| gpt2 | own-products |'
says '| gpt2 | eager | '
says '| gpt2-xl | nvme | '
says 'gpt2-xl: 8192 tokens a step (8 rows of 1024)'
grep -q '"version": "--cuda-wait-value"' "$scratch/build/check/pair.json" ||
    fail "a side runs without its switch"
grep -q '"of_roof"' "$scratch/build/check/offload.json" || fail "no lane is beside its roof"
grep -q '"mfu": [0-9]' "$scratch/build/check/offload.json" || fail "there is no MFU"
says '| build | pass |'

# Checkpoints go to memory only where it has room for them.
for SHM_KIB in 65536 99000000; do
    export SHM_KIB
    check --commit one --limit 200 --disk-dir "$scratch" --stage agreement
    [ $code -eq 0 ] || fail "the agreement ends with $code"
    place=$(sed -n 's/^ *"work_dir": "\(.*\)",*$/\1/p' "$scratch/build/check/agreement.json")
    case $SHM_KIB in
    65536) [ "$place" = "$scratch" ] || fail "checkpoints go to $place, which has no room" ;;
    *) # of memory that is surely enough
        ! grep -q '^MemAvailable: *[0-9]\{9\}' /proc/meminfo || [ "$place" = /dev/shm ] ||
            fail "checkpoints go to $place, not to memory" ;;
    esac
done
says '| fp32 | nvme, AdamW on the device |  | ok |'

check --commit two --limit 0 --disk-dir none --stage pair
says_not '| build |'
says_not 'no-epilogue'

# PyTorch is not handed the toolkit's libraries, sluice is.
mkdir "$scratch/toolkit" "$scratch/other"
: > "$scratch/toolkit/libcublasLt.so.13"
kept=$(LD_LIBRARY_PATH=$scratch/toolkit:$scratch/other PYTHONPATH=$root/benchmarks:$PYTHONPATH "$python" -c \
    'import gpu_pair; print(gpu_pair.torch_environment()["LD_LIBRARY_PATH"])')
[ "$kept" = "$scratch/other" ] || fail "PyTorch is handed $kept"
echo "stages are run, limited and reported as they should be"
