#!/bin/sh
# Installs what is missing, builds with warnings as errors, and runs the tests through CTest.
#
# usage: test.sh [--full] [--big]
#   (none)   the quick tests, with reduced counts
#   --full   the complete counts
#   --big    also 124M, xl, and the comparisons with PyTorch
set -eu

usage()
{
    sed -n 's/^# \{0,1\}//; 2,8p' "$0"
}

labels=quick
for option in "$@"; do
    case $option in
    --full) export SL_TEST_FULL=1 ;;
    --big) labels='quick|big'; export SL_TEST_BIG=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown option $option" >&2; usage >&2; exit 64 ;;
    esac
done

cd "$(dirname "$0")/.."
scripts/install_deps.sh
cmake --preset release
cmake --build --preset release
if [ -z "${SL_TEST_FULL:-}" ]; then
    echo "Reduced counts; scripts/test.sh --full runs the complete ones."
fi
# Tests are cheap beside their time-outs but use several threads themselves: two at a time.
exec ctest --test-dir build/release --label-regex "^($labels)\$" --output-on-failure --parallel 2 \
    --no-tests=error
