#!/bin/sh
# The report of scripts/gpu_check.sh from SAMPLE NUMBERS, made up for this test: they were measured on
# no GPU. Whole, then with each file missing or cut in half: there must be a report of the rest.
#
# usage: run.sh PYTHON REPOSITORY
set -eu

python=$1 root=$2
sample=$root/tests/gpu_report/sample
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Quick tests ask no Python package, not even where one is installed.
mkdir "$scratch/none"
for package in torch numpy transformers; do
    echo "raise ModuleNotFoundError(\"No module named '$package'\")" > "$scratch/none/$package.py"
done
export PYTHONPATH="$scratch/none"

fail()
{
    echo "FAILED: $*" >&2
    exit 1
}

write() { "$python" "$root/scripts/gpu_report.py" "$scratch/work" "$scratch/out"; }

fresh()
{
    rm -rf "$scratch/work" "$scratch/out"
    cp -r "$sample" "$scratch/work"
}

"$python" "$root/benchmarks/gpu_limits.py"

fresh
write
page=$scratch/out/report.md
for text in 'SAMPLE GPU' '| cuda:0 image | passed | code for sm_90' '| cuda:0 copies | not tested |' '| gpu | fail | 61 |' '1 passed, 1 failed, 1 skipped' 'operand 2, element 5' \
    'gpu_test_cuda_sample' '| bf16 | linear 8192x8192, 8192 rows | 700.0 |' '| 50.0 % |' \
    '| gpt2 | eager | 250000 | 2.0 % |' '| 1.200 |' '| gpt2 | no-epilogue | 290000 |' \
    "| gpt2 | compiled | python3: No module named 'torch' |" '16384 tokens a step' \
    '| host | 30000 | 546 | 28.5 % | 0.500 | 0.900 | 0.950 | the same |' \
    '| gpt2-xl | host | 70 | 50 at 90 |  | 95 at 85 |  |  |' \
    '| gpt2-xl | nvme | not run: there is no --disk-dir |' 'missing: no machine profile' \
    '3 blocks of width 5120' '+12.5' '3.00e-06 of 1.00e-05, in step 2 of 2' '1.0e-06 3.0e-06' '| fp32 | norms of gradients | 2.0e-05 1.0e-05 |' \
    '| fp32 | nvme | no time was left | not run |'; do
    grep -qF -- "$text" "$page" || fail "the page does not say: $text"
done
"$python" - "$scratch/out/report.json" << 'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["facts"]["commit"] == "sample" and len(report["stages"]) == 3
assert report["gpu_tests"]["failed"][0]["name"] == "gpu_test_cuda_sample"
assert len(report["bench"]["rows"]) == 3
END

for file in "$sample"/*; do
    name=${file##*/}
    for damage in missing half; do
        fresh
        case $damage in
        missing) rm "$scratch/work/$name" ;;
        half) head -c $(($(wc -c < "$file") / 2)) "$file" > "$scratch/work/$name" ;;
        esac
        write || fail "no report with $name $damage"
        grep -q '^# sluice on a GPU' "$page" || fail "no page with $name $damage"
    done
done
echo "the report is written, whole and in part"
