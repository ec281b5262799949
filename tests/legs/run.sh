#!/bin/sh
# What scripts/test.sh says of its legs, with stand-ins for all that builds and tests. Wrong could be:
# a leg that fails and is not told, or ends the others; later legs that are not built while the release is
# tested, or a build of them that goes on after the end; a skip that is not listed; a summary that is
# missing; the network asked, by scripts/install_deps.sh, for what only tests need.
#
# usage: run.sh REPOSITORY
set -eu

root=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/scripts"
cp "$root/scripts/test.sh" "$scratch/scripts"
said=$scratch/said

# stub FILE: a program of what stands on standard input.
stub()
{
    (echo '#!/bin/sh'; cat) > "$scratch/$1"
    chmod +x "$scratch/$1"
}

stub scripts/install_deps.sh << 'END'
[ "$1" = --tests ] || { echo 'what tests need is not asked for' >&2; exit 1; }
END
stub bin/cmake << 'END'
mkdir -p build/release build/dev build/tsan build/clang build/fuzz
case $* in
*build/dev*) [ "$BROKEN" != build ] || { echo 'a planted error'; exit 1; } ;;
esac
END
stub bin/cc << 'END'
while [ "$1" != -o ]; do shift; done
cp "$(command -v true)" "$2"
END
stub scripts/check.sh << 'END'
echo 'ok      format  1 s'
echo 'skipped: tidy'
if [ "$BROKEN" = stopped ]; then
    trap 'echo yes > build/stopped; exit 1' TERM
    echo yes > build/checks
    sleep 600 &
    wait
fi
[ "$BROKEN" != static ]
END
stub scripts/fuzz.sh << 'END'
echo 'ok      readers'
[ "$BROKEN" != fuzz ]
END
stub bin/ctest << 'END'
while [ $# -gt 0 ]; do
    case $1 in
    --test-dir) tree=$2 ;;
    --output-log) log=$2 ;;
    esac
    shift
done
mkdir -p "$tree/Testing/Temporary"
awaited=build/ahead/static
[ "$BROKEN" != stopped ] || awaited=build/checks
if [ -n "$AHEAD" ] && [ "$tree" = build/release ]; then
    while [ ! -s $awaited ]; do sleep 0.1; done
fi
[ "$BROKEN" != stopped ] || kill "$PPID"
echo '1/2 Test #1: all_skipped ....***Skipped   0.00 sec
50% tests passed, 1 tests failed out of 2' > "$log"
echo '1/2 Test: all_skipped
2/2 Test: one_skipped
[ RUN      ] first_when_so
[       OK ] first_when_so
[ RUN      ] second_when_so
skipped: no drive
[  SKIPPED ] second_when_so' > "$tree/Testing/Temporary/LastTest.log"
[ "$tree" != "build/$BROKEN" ]
END

# legs BROKEN OPTION...: runs with one leg that fails, and leaves the exit code in `code`.
legs()
{
    code=0
    BROKEN=$1
    shift
    AHEAD=
    case $* in *all*) AHEAD=yes ;; esac
    export AHEAD BROKEN
    PATH=$scratch/bin:$PATH CC=cc "$scratch/scripts/test.sh" "$@" > "$said" 2>&1 || code=$?
}

says()
{
    grep -q -- "$1" "$said" || { cat "$said"; echo "FAILED: it does not say $1" >&2; exit 1; }
}

leaves()
{
    [ $code -eq "$1" ] || { cat "$said"; echo "FAILED: it leaves with $code" >&2; exit 1; }
}

legs none
leaves 0
says '^release: all_skipped: gave no reason$'
says '^release: one_skipped: second_when_so: no drive$'
says '^== skipped: 2 '
says '^50% tests passed'
legs none --legs all
leaves 0
for leg in release asan tsan static fuzz; do
    says "^$leg  *passed in"
done
says '^== skipped: 7 '
legs tsan --legs all
leaves 1
says '^tsan  *FAILED in'
says '^fuzz  *passed in'
says '^== summary of leg tsan'
legs static --legs all
leaves 1
says '^static  *FAILED in'
says '^ok      format'
legs build --legs all
leaves 1
says '^a planted error'
says '^asan  *FAILED in'
says '^tsan  *passed in'
legs release --leg release
leaves 1
legs stopped --legs all
leaves 130
until [ -s "$scratch/build/stopped" ]; do sleep 0.1; done # or CTest's limit ends this

# What only tests need is asked of the network for tests alone.
mkdir "$scratch/deps"
cp "$root/scripts/install_deps.sh" "$scratch/deps"
stub deps/check_sass << 'END'
echo "asked for $1"
exit 1
END
for name in nvcc python3 apt-get; do stub bin/$name < /dev/null; done
stub bin/dpkg-query << 'END'
echo installed
END
deps=$(PATH=$scratch/bin:$PATH "$scratch/deps/install_deps.sh" --check 2>&1)
[ -z "$deps" ] || { echo "FAILED: without --tests: $deps" >&2; exit 1; }
PATH=$scratch/bin:$PATH "$scratch/deps/install_deps.sh" --tests > "$said" 2>&1
says '^asked for --install'
says 'no disassembler'
echo "legs are told as they end"
