#!/bin/sh
# Makes a Python wheel of a build: the module, the shared library and the command `sluice`. The same
# build gives the same bytes.
#
# usage: package_wheel.sh BUILD_DIR [OUT_DIR]    prints the path of the wheel
#   BUILD_DIR   a build folder, Release
#   OUT_DIR     where the wheel goes (BUILD_DIR)
#
# With patchelf, the wheel carries the shared libraries that it needs, with their licences, under
# names of their own, so that no other module's copy is taken for them. It then needs the C library of
# this system or a newer one, and its tag says which. Without patchelf it carries none of them: its tag is
# that of any Linux, and its description names the system's packages that it needs.
# Plug-ins that the library opens by name when it runs (MPI, CUDA, NCCL) are not in it.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

fail()
{
    echo "package_wheel.sh: $*" >&2
    exit 1
}

[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,13p' "$0"; exit 64; }
command -v python3 > /dev/null || fail "needs python3"
for built in libsluice.so.0 sluice; do
    [ -e "$1/$built" ] || fail "$1 has no $built: build it first"
done
build=$(cd "$1" && pwd)
mkdir -p "${2:-$build}"
out=$(cd "${2:-$build}" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# What every Linux with glibc has: the list of the manylinux standards, as far as it is needed here.
is_of_system()
{
    case $1 in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | ld-linux* | linux-vdso* | \
        libgcc_s.so.* | libstdc++.so.*) return 0 ;;
    esac
    return 1
}

# list_needed FILE...: name and path of each library that is needed and is not the system's.
list_needed()
{
    ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | LC_ALL=C sort -u | while read -r name path; do
        is_of_system "$name" && continue
        [ -e "$path" ] || fail "$name is not found"
        echo "$name $path"
    done
}

# find_package PATH: the package of the system that has this file; nothing where there is no dpkg. A
# file may be listed with or without /usr, which are the same folder today.
find_package()
{
    real=$(realpath "$1")
    for path in "$1" "$real" "/usr$1" "${real#/usr}"; do
        dpkg -S "$path" 2> /dev/null || true
    done | sed 's/:.*//' | head -n 1
}

# bundle: copies what is needed beside the library, each under a name with a part of its checksum.
bundle()
{
    mkdir "$package/libs" "$stage/licenses"
    while read -r name path; do
        sum=$(sha256sum "$path" | cut -c 1-8)
        renamed=${name%%.so*}-$sum.so${name#*.so}
        cp -L "$path" "$package/libs/$renamed"
        patchelf --set-soname "$renamed" "$package/libs/$renamed"
        echo "$name $renamed" >> "$stage/renamed"
        owner=$(find_package "$path")
        licence=/usr/share/doc/${owner:-none}/copyright
        if [ -e "$licence" ]; then
            cp -L "$licence" "$stage/licenses/$owner"
        else
            echo "package_wheel.sh: no licence of $name is found; add it before you give the wheel away" >&2
        fi
    done < "$stage/needed"
    for file in "$package/libsluice.so.0" "$package/sluice" "$package"/libs/*; do
        while read -r name renamed; do
            patchelf --replace-needed "$name" "$renamed" "$file"
        done < "$stage/renamed"
        case $file in
        */libs/*) patchelf --set-rpath "\$ORIGIN" "$file" ;;
        *) patchelf --set-rpath "\$ORIGIN/libs" "$file" ;;
        esac
    done
}

package=$stage/sluice
mkdir "$package"
cp "$root"/python/sluice/*.py "$root/python/sluice/py.typed" "$package/"
cp -L "$build/libsluice.so.0" "$build/sluice" "$package/"
list_needed "$build/libsluice.so.0" "$build/sluice" > "$stage/needed"
: > "$stage/packages"
if command -v patchelf > /dev/null; then
    bundle
else
    echo "package_wheel.sh: no patchelf: the wheel will need libraries of the system" >&2
    while read -r name path; do
        owner=$(find_package "$path")
        echo "${owner:-$name}"
    done < "$stage/needed" | LC_ALL=C sort -u > "$stage/packages"
fi
python3 "$root/scripts/write_wheel.py" "$stage" "$root" "$out"
