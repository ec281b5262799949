#!/usr/bin/env python3
"""Lists the calls of a program that can be made to fail (tests/command/call_faults.h) and that no workload
came to: by disassembly, the places that call a wrapper, less those that a run counted.

    list_unreached.py PROGRAM FILE [--names REGEX]

FILE has a line for each place that was reached: "12ab", its offset as call_faults_offset gives it.
A wrapper that is jumped to instead of called has the place of its caller's caller; such places are
counted and not listed. Needs objdump and readelf."""

import argparse
import re
import subprocess
import sys

OWN_FILES = re.compile(r"^(test_.*|call_faults|skips|runtime.*|blas_standin|cublaslt.*|shim.*|"
                       r"nvml)\.c(pp)?$")
OWN_NAMES = re.compile(r"^(main|__wrap_|call_faults_|standin_|cuda|cu[A-Z]|cublas|_Z|_dl_|_start)")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(\w+)\s*(.*)$")
TARGET = re.compile(r"<__wrap_(\w+)>")


def read(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")


def find_own_functions(program):
    """Local functions of the files of the tests."""
    own, file = set(), ""
    for line in read("readelf", "-sW", program):
        words = line.split()
        if len(words) < 8 or words[4] != "LOCAL":
            continue
        if words[3] == "FILE":
            file = words[7]
        elif words[3] == "FUNC" and OWN_FILES.match(file):
            own.add((int(words[1], 16), words[7]))
    return own


def find_calls(program, names):
    """[(offset, function, wrapped)] of all calls in the product, and how many wrappers are jumped
    to."""
    own = find_own_functions(program)
    calls, jumps, pending = [], 0, None
    function, is_own = "", True
    for line in read("objdump", "-d", "--no-show-raw-insn", program):
        start = FUNCTION.match(line)
        if start:
            function = start.group(1)
            is_own = bool(OWN_NAMES.match(function)) or (int(line.split()[0], 16), function) in own
            continue
        instruction = INSTRUCTION.match(line)
        if not instruction:
            continue
        if pending:
            calls.append((int(instruction.group(1), 16) - 1, *pending))
            pending = None
        wrapped = TARGET.search(instruction.group(3))
        if is_own or not wrapped or not names.search(wrapped.group(1)):
            continue
        if instruction.group(2).startswith("call"):
            pending = (function, wrapped.group(1))
        else:
            jumps += 1
    return calls, jumps


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("file")
    parser.add_argument("--names", default=".")
    arguments = parser.parse_args()
    with open(arguments.file, encoding="ascii") as file:
        reached = {int(line, 16) for line in file if line.strip()}
    calls, jumps = find_calls(arguments.program, re.compile(arguments.names))
    if not calls:
        sys.exit("list_unreached: no call was found: is this such a program?")
    missing = [call for call in calls if call[0] not in reached]
    for offset, function, wrapped in missing:
        print(f"not reached: 0x{offset:x} {wrapped} in {function}")
    print(f"{len(calls)} places call what can fail, {len(calls) - len(missing)} were reached, "
          f"{len(missing)} by no workload; {jumps} more jump there")


if __name__ == "__main__":
    main()
