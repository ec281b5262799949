#!/bin/sh
# Applies the patch of docs/add-a-rule.md to a copy of the tree, and builds and runs sgd_case.c there.
#
# usage: try_page.sh SOURCE_DIRECTORY BUILD_DIRECTORY
set -eu

copy=$2
rm -rf "$copy" "$copy.files"
mkdir -p "$copy"
git -C "$1" ls-files > "$copy.files" 2> /dev/null || exit 77 # no checkout: its files are not known
(cd "$1" && tar cf - -T "$copy.files") | (cd "$copy" && tar xf -)
cd "$copy"
# shellcheck disable=SC2016 # the quotes of a page, not of a shell
sed -n '/^```diff$/,/^```$/p' docs/add-a-rule.md | sed '1d;$d' > sgd.patch
added=$(grep -c '^+[^+]' sgd.patch)
[ "$added" -le 120 ] || { echo "the rule takes $added lines, not 120 at most"; exit 1; }
GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply sgd.patch # not as a part of the tree around it
cp tests/rules/sgd_case.c tests/engine/test_sgd.c
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DSL_CUDA=OFF -DSL_COMMIT=page > cmake.log 2>&1 ||
    { tail -n 20 cmake.log; exit 1; }
ninja -C build test_sgd > build.log 2>&1 || { grep -A 5 error build.log | head -n 40; exit 1; }
build/tests/test_sgd
cd /
rm -rf "$copy" "$copy.files"
