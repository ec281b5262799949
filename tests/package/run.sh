#!/bin/sh
# Installs a build of sluice into an empty place and uses it as a stranger would: by find_package,
# shared and static, and by pkg-config: plans, opens an engine, trains; reads manual pages and completes
# words. Finds what an install rule, an export or a visibility forgot.
#
# usage: run.sh BUILD_DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
example=$root/examples/mlp.c
place=$(mktemp -d)
trap '[ $? -eq 0 ] || tail -n 40 "$place/log" >&2; rm -rf "$place"' EXIT

{
    cmake --install "$1" --prefix "$place/installed"
    "$here/check_pages.sh" "$place/installed"
    cmake -G Ninja -S "$here" -B "$place/build" -DCMAKE_PREFIX_PATH="$place/installed" \
        -DEXAMPLE="$example"
    cmake --build "$place/build"
} > "$place/log" 2>&1

# With the sources in its tree a project is configured; it would take minutes to build it.
cmake -G Ninja -S "$here/subproject" -B "$place/sources" -DSLUICE="$(cd "$root" && pwd)" > "$place/log" 2>&1
ninja -C "$place/sources" -t targets all | grep -q '^with_sources: C_EXECUTABLE_LINKER'

# pkg-config finds the place by where its file lies, so an install can be moved.
mv "$place/installed" "$place/moved"
libraries=$(dirname "$(find "$place/moved" -name libsluice.so)")
export PKG_CONFIG_PATH="$libraries/pkgconfig"
# shellcheck disable=SC2046 # lists of words on purpose
cc "$here/main.c" -o "$place/with_pkg_config" $(pkg-config --cflags --libs sluice)
# shellcheck disable=SC2046
cc "$example" -o "$place/train_with_pkg_config" $(pkg-config --cflags --libs sluice) -lm

# shellcheck disable=SC2046
cc "$here/main.c" -o "$place/with_pkg_config_static" "$libraries/libsluice.a" \
    $(pkg-config --cflags --static --libs sluice | sed 's/-lsluice//')
# shellcheck disable=SC2046
cc "$example" -o "$place/train_with_pkg_config_static" "$libraries/libsluice.a" \
    $(pkg-config --cflags --static --libs sluice | sed 's/-lsluice//')

for program in build/with_static build/with_shared build/with_cpp build/with_cpp_static \
    with_pkg_config with_pkg_config_static; do
    LD_LIBRARY_PATH="$libraries" "$place/$program" | tee "$place/said"
    grep -q '^sluice [0-9.]*: 28 tensors, 2 steps$' "$place/said"
done

LD_LIBRARY_PATH="$libraries" "$place/build/embed" "$root/LICENSE" 20 | grep -q '^loss [0-9.]*; e is like a'

LD_LIBRARY_PATH="$libraries" "$place/build/tensor_parallel" | grep -q '^step 50 loss 0.0'

# The engine steps, and in the same bits however it was linked.
for program in build/train_with_static build/train_with_shared train_with_pkg_config \
    train_with_pkg_config_static; do
    LD_LIBRARY_PATH="$libraries" "$here/check_example.sh" "$place/$program" \
        "$root/LICENSE" > "$place/trained"
    [ -e "$place/trained_first" ] || cp "$place/trained" "$place/trained_first"
    cmp "$place/trained" "$place/trained_first"
done
if nm -D --defined-only "$libraries/libsluice.so" | grep -v ' sl_'; then
    echo "names that do not start with sl_ are visible" >&2
    exit 1
fi
if nm -D --defined-only "$libraries/libsluice.so" | grep ' sl_status_fail$'; then
    echo "names that are not marked SL_API are visible" >&2
    exit 1
fi
