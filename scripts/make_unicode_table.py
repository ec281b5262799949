#!/usr/bin/env python3
"""Writes src/text/unicode_table.h: which code points GPT-2's pattern counts as letters, numbers and
spaces, as the tokenizers library sees them. The library itself is asked, one code point at a time:
behind a letter, a digit or a mark, does it go on with the same word?

usage: make_unicode_table.py > src/text/unicode_table.h     (needs the Python package tokenizers)
"""
import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

SPLIT = ByteLevel(add_prefix_space=False).pre_tokenize_str
CODE_POINTS = 0x110000
HEAD = """/* Letters, numbers and spaces of Unicode, as GPT-2's pattern sees them. Made by
 * scripts/make_unicode_table.py from tokenizers %s; never edited by hand. */
#ifndef SL_TEXT_UNICODE_TABLE_H
#define SL_TEXT_UNICODE_TABLE_H

#include <stdint.h>

/* The first and the last code point of each range, in order. */
"""


def goes_on(before, char):
    return len(SPLIT(before + char)) == 1


def class_of(code):
    if 0xD800 <= code < 0xE000:
        return "other"
    char = chr(code)
    if goes_on("a", char):
        return "letter"
    if goes_on("1", char):
        return "number"
    return "other" if goes_on("!", char) else "space"


def find_ranges(classes, name):
    ranges, first = [], None
    for code in range(CODE_POINTS + 1):
        inside = code < CODE_POINTS and classes[code] == name
        if inside and first is None:
            first = code
        if not inside and first is not None:
            ranges.append((first, code - 1))
            first = None
    return ranges


def print_ranges(name, ranges):
    print(f"static const uint32_t unicode_{name}s[][2] = {{")
    line = "   "
    for first, last in ranges:
        text = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line) + len(text) > 100:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};\n")


def main():
    classes = [class_of(code) for code in range(CODE_POINTS)]
    print(HEAD % tokenizers.__version__, end="")
    print("/* clang-format off */")
    for name in ("letter", "number", "space"):
        print_ranges(name, find_ranges(classes, name))
    print("/* clang-format on */\n")
    print("#endif")


main()
