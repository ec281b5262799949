#!/bin/sh
# Applies the patches of docs/add-a-rule.md and docs/add-a-model.md to one copy of the tree, builds it
# once, and runs sign_case.c and gemma_case.c there. If SL_TEST_PYTHON names an interpreter with
# transformers, what is written of the model is read there, too.
#
# usage: try_pages.sh SOURCE_DIRECTORY BUILD_DIRECTORY
set -eu

# Applies the patch of page $1, which adds at most $2 lines.
apply()
{
    # shellcheck disable=SC2016 # the quotes of a page, not of a shell
    sed -n '/^```diff$/,/^```$/p' "docs/$1.md" | sed '1d;$d' > "$1.patch"
    added=$(grep -c '^+[^+]' "$1.patch")
    [ "$added" -le "$2" ] || { echo "$1 takes $added lines, not $2 at most"; exit 1; }
    GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply "$1.patch" # not as a part of the tree around it
}

copy=$2
rm -rf "$copy" "$copy.files"
mkdir -p "$copy"
git -C "$1" ls-files > "$copy.files" 2> /dev/null || exit 77 # no checkout: its files are not known
(cd "$1" && tar cf - -T "$copy.files") | (cd "$copy" && tar xf -)
cd "$copy"
apply add-a-rule 120
apply add-a-model 130
cp tests/patches/sign_case.c tests/engine/test_sign.c
cp tests/patches/gemma_case.c tests/program/test_gemma.c
# What is compiled runs for a second: -O1 is sooner done with both.
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DSL_CUDA=OFF \
    -DSL_COMMIT=page > cmake.log 2>&1 || { tail -n 20 cmake.log; exit 1; }
compares=${SL_TEST_PYTHON:+sluice dump_gradients}
# shellcheck disable=SC2086 # words
ninja -C build test_sign test_gemma $compares > build.log 2>&1 ||
    { grep -A 5 error build.log | head -n 40; exit 1; }
build/tests/test_sign
build/tests/test_gemma
if [ -n "$compares" ]; then
    "$SL_TEST_PYTHON" tests/reference/compare_llama.py --page --sluice build/sluice \
        --tool build/tests/dump_gradients || [ $? -eq 77 ] # no transformers: left out
fi
cd /
rm -rf "$copy" "$copy.files"
