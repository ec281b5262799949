#!/bin/sh
# The Python module as a stranger has it: makes the wheel of a build twice, of the same bytes, installs it
# in an environment of its own, and runs the tests there: without numpy, then with it where it is
# installed or can be fetched. Skipped (77) where there is no python3 with venv and pip.
#
# usage: run.sh BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python=$place/environment/bin/python

skip()
{
    echo "skipped: $*"
    exit 77
}

# The rest of the environment must not reach the tests: they are for what the wheel holds.
unset SLUICE_LIBRARY PYTHONPATH PYTHONHOME
command -v python3 > /dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
python3 -m venv "$place/environment" > "$place/log" 2>&1 ||
    skip "python3 makes no environment: $(tail -n 1 "$place/log")"

wheel=$("$here/../../scripts/package.sh" --only wheel "$1" "$place/first")
again=$("$here/../../scripts/package.sh" --only wheel "$1" "$place/second")
cmp "$wheel" "$again"
"$python" -m pip --disable-pip-version-check install --quiet --no-index "$wheel"
"$place/environment/bin/sluice" --version | head -n 1

# Where numpy is installed there is no need to fetch it.
add_numpy()
{
    if python3 -c 'import numpy' 2> /dev/null; then
        python3 -m venv --system-site-packages "$place/environment"
    else
        timeout 60 "$python" -m pip --disable-pip-version-check install --quiet --timeout 5 \
            --retries 0 --only-binary :all: numpy > "$place/log" 2>&1
    fi
}

echo "without numpy:"
"$python" "$here/test_module.py"
if add_numpy; then
    echo "with numpy:"
    "$python" "$here/test_module.py"
else
    echo "numpy cannot be had: tests of arrays were skipped"
fi
