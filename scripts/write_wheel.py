#!/usr/bin/env python3
"""Writes the wheel of a folder that scripts/package.sh filled, and prints its path.

usage: write_wheel.py STAGE ROOT OUT

STAGE holds sluice/ (the package, with its library and command), packages (the system's packages
that the library needs, one a line; none where the package has libs/) and perhaps licenses/. Each
file has the first time that the format knows, and names are in order: the same STAGE gives the same
bytes."""

import base64
import ctypes
import hashlib
import os
import platform
import re
import sys
import zipfile

PYTHON = ">=3.9"
FIRST_TIME = (1980, 1, 1, 0, 0, 0)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def list_files(folder, prefix):
    """Name in the wheel, and bytes, of each file below a folder."""
    files = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(place, name)
            files[f"{prefix}/{os.path.relpath(path, folder)}"] = read(path)
    return files


def find_version(package):
    """What the library says of itself; it is loaded as a user's Python loads it."""
    library = ctypes.CDLL(os.path.join(package, "libsluice.so.0"))
    library.sl_version_text.restype = ctypes.c_char_p
    return library.sl_version_text().decode()


def find_platform(files, is_bundled):
    """The tag of the platform: with all libraries inside, the newest glibc that one asks for."""
    machine = platform.machine()
    if not is_bundled:
        return f"linux_{machine}"
    minors = [
        int(minor)
        for content in files.values()
        if content.startswith(b"\x7fELF")
        for minor in re.findall(rb"GLIBC_2\.(\d+)", content)
    ]
    return f"manylinux_2_{max(minors)}_{machine}"


def describe(root, packages):
    """The page of the module, and what the system must have."""
    page = read(os.path.join(root, "python/README.md")).decode()
    if not packages:
        return page
    return page + (
        "\n## This wheel\n\nIt needs libraries of the system. On Debian or Ubuntu: "
        f"`apt-get install {' '.join(packages)}`.\n"
    )


def make_metadata(version, description):
    return (
        "Metadata-Version: 2.1\n"
        "Name: sluice\n"
        f"Version: {version}\n"
        "Summary: Trains GPT-2 models whose training states are larger than memory\n"
        "License: Apache-2.0\n"
        f"Requires-Python: {PYTHON}\n"
        "Provides-Extra: arrays\n"
        'Requires-Dist: numpy; extra == "arrays"\n'
        "Description-Content-Type: text/markdown\n"
        f"\n{description}"
    ).encode()


def make_record(files, name):
    """Checksum and size of each file; of the list itself neither."""
    lines = []
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(files[path])}\n")
    return ("".join(lines) + f"{name},,\n").encode()


def is_program(path):
    return path == "sluice/sluice" or ".data/scripts/" in path


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, FIRST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix
            entry.external_attr = (0o100755 if is_program(name) else 0o100644) << 16
            archive.writestr(entry, files[name])


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    stage, root, out = sys.argv[1:]
    package = os.path.join(stage, "sluice")
    packages = read(os.path.join(stage, "packages")).decode().split()
    files = list_files(package, "sluice")
    version = find_version(package)
    tag = f"py3-none-{find_platform(files, not packages)}"
    info = f"sluice-{version}.dist-info"
    script = read(os.path.join(root, "python/scripts/sluice"))
    files[f"sluice-{version}.data/scripts/sluice"] = script
    files[f"{info}/licenses/LICENSE"] = read(os.path.join(root, "LICENSE"))
    files.update(list_files(os.path.join(stage, "licenses"), f"{info}/licenses/libs"))
    files[f"{info}/METADATA"] = make_metadata(version, describe(root, packages))
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: sluice ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    files[f"{info}/RECORD"] = make_record(files, f"{info}/RECORD")
    path = os.path.join(out, f"sluice-{version}-{tag}.whl")
    write_zip(path, files)
    print(path)


if __name__ == "__main__":
    main()
