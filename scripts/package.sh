#!/bin/sh
# Makes what people install without building: of one build a Debian package, a Python wheel, and an
# archive that runs where it is unpacked, with their checksums. The same build gives the same bytes.
#
# usage: package.sh [--only KIND] BUILD_DIR [OUT_DIR]    prints the path of each package
#   KIND        deb, wheel or tar
#   BUILD_DIR   a configured build folder, Release; what is missing in it is built, but for --only wheel
#   OUT_DIR     where the packages and SHA256SUMS go (BUILD_DIR/packages)
#
# With patchelf, wheel and archive carry the shared libraries that they need, with their licences, under
# names of their own, so that no other module's copy is taken for them. They then need the C library of
# this system or a newer one; the tag of the wheel says which. Without patchelf there is no archive, and the
# wheel carries none of them: its tag is that of any Linux, and its description names the system's packages
# that it needs. Plug-ins that the library opens by name when it runs (MPI, CUDA, NCCL) are in none.
# A container with CUDA is made by the Containerfile of the source tree.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

fail()
{
    echo "package.sh: $*" >&2
    exit 1
}

say_usage()
{
    sed -n 's/^# \{0,1\}//; 2,15p' "$0"
    exit 64
}

kinds='deb wheel tar'
if [ "${1:-}" = --only ]; then
    case ${2:-} in
    deb | wheel | tar) kinds=$2 ;;
    *) say_usage ;;
    esac
    shift 2
fi
[ $# -ge 1 ] || say_usage
[ -e "$1/CMakeCache.txt" ] || fail "$1 is no configured build folder: cmake --preset release makes build/release"
build=$(cd "$1" && pwd)
mkdir -p "${2:-$build/packages}"
out=$(cd "${2:-$build/packages}" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# Times in packages: of the last commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2> /dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH

# ---- libraries that go along

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
    { dpkg -S "$1" "$real" "/usr$1" "${real#/usr}" 2> /dev/null || true; } | sed 's/:.*//' | head -n 1
}

# copy_licence NAME PATH FOLDER: that of a library's package.
copy_licence()
{
    owner=$(find_package "$2")
    licence=/usr/share/doc/${owner:-none}/copyright
    if [ -e "$licence" ]; then
        cp -L "$licence" "$3/$owner"
    else
        echo "package.sh: no licence of $1 is found; add it before you give the package away" >&2
    fi
}

# bundle LIBS LICENCES WAY FILE...: copies what the files need to LIBS, each under a name with a part of
# its checksum. WAY leads from a file's folder to LIBS.
bundle()
{
    libs=$1 licences=$2 way=$3
    shift 3
    mkdir -p "$libs" "$licences"
    list_needed "$@" > "$stage/needed"
    : > "$stage/renamed"
    while read -r name path; do
        sum=$(sha256sum "$path" | cut -c 1-8)
        renamed=${name%%.so*}-$sum.so${name#*.so}
        cp -L "$path" "$libs/$renamed"
        patchelf --set-soname "$renamed" "$libs/$renamed"
        echo "$name $renamed" >> "$stage/renamed"
        copy_licence "$name" "$path" "$licences"
    done < "$stage/needed"
    for file in "$@" "$libs"/*; do
        while read -r name renamed; do
            patchelf --replace-needed "$name" "$renamed" "$file"
        done < "$stage/renamed"
        case $file in
        "$libs"/*) patchelf --set-rpath "\$ORIGIN" "$file" ;;
        *) patchelf --set-rpath "\$ORIGIN/$way" "$file" ;;
        esac
    done
}

has_patchelf()
{
    command -v patchelf > /dev/null
}

# ---- packages: each prints its path

make_deb()
{
    command -v cpack > /dev/null || fail "the Debian package needs cpack, which comes with cmake"
    (cd "$build" && cpack -G DEB -B "$stage/deb" > "$stage/log" 2>&1) || fail "cpack: $(tail -n 3 "$stage/log")"
    made=$(ls "$stage"/deb/*.deb)
    mv "$made" "$out/"
    echo "$out/${made##*/}"
}

make_wheel()
{
    command -v python3 > /dev/null || fail "the wheel needs python3"
    for built in libsluice.so.0 sluice; do
        [ -e "$build/$built" ] || fail "$build has no $built: build it first"
    done
    package=$stage/wheel/sluice
    mkdir -p "$package"
    cp "$root"/python/sluice/*.py "$root/python/sluice/py.typed" "$package/"
    cp -L "$build/libsluice.so.0" "$build/sluice" "$package/"
    : > "$stage/wheel/packages"
    if has_patchelf; then
        bundle "$package/libs" "$stage/wheel/licenses" libs "$package/libsluice.so.0" "$package/sluice"
    else
        echo "package.sh: no patchelf: the wheel will need libraries of the system" >&2
        list_needed "$build/libsluice.so.0" "$build/sluice" | while read -r name path; do
            owner=$(find_package "$path")
            echo "${owner:-$name}"
        done | LC_ALL=C sort -u > "$stage/wheel/packages"
    fi
    python3 "$root/scripts/write_wheel.py" "$stage/wheel" "$root" "$out"
}

# What cmake --install puts under a prefix: it may be unpacked anywhere.
make_tar()
{
    if ! has_patchelf; then
        echo "package.sh: no patchelf: there is no archive" >&2
        return
    fi
    archive=sluice-$("$build/sluice" --version | sed -n '1s/^sluice \([0-9.]*\).*/\1/p')-linux-$(uname -m)
    tree=$stage/$archive
    cmake --install "$build" --prefix "$tree" --strip > "$stage/log" 2>&1 || fail "$(tail -n 3 "$stage/log")"
    library=$(find "$tree" -name 'libsluice.so.0.*' -type f)
    folder=$(dirname "$library")
    bundle "$folder/sluice/libs" "$tree/share/doc/sluice/licenses" sluice/libs "$library" "$tree/bin/sluice"
    patchelf --set-rpath "\$ORIGIN/..${folder#"$tree"}/sluice/libs" "$tree/bin/sluice"
    tar -C "$stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=go-w -cf "$stage/archive" "$archive"
    gzip -9n < "$stage/archive" > "$out/$archive.tar.gz"
    echo "$out/$archive.tar.gz"
}

case $kinds in
*deb* | *tar*) cmake --build "$build" --target sluice sluice_shared sluice_command sluice_pages > "$stage/log" 2>&1 ||
    fail "the build failed: $(tail -n 3 "$stage/log")" ;;
esac
for kind in $kinds; do
    "make_$kind"
done
(cd "$out" && find . -maxdepth 1 -type f \( -name '*.deb' -o -name '*.whl' -o -name '*.tar.gz' \) -printf '%f\n' |
    LC_ALL=C sort | xargs sha256sum > SHA256SUMS)
