#!/usr/bin/env python3
"""Writes src/text/unicode_stand_ins.h: of each code point whose general category in Unicode 14, which the
oldest PCRE2 here knows, is not the one that the tokenizers library sees, an older code point that has
that category and is as many bytes long; and of Unicode 14 the code points that the library's normalizer,
which is of Unicode 9, does not move or join. The library itself is asked.

usage: make_stand_ins.py > src/text/unicode_stand_ins.h     (Python 3.11, whose Unicode is 14; tokenizers)
"""
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers
from tokenizers.pre_tokenizers import Split

CODE_POINTS = [code for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
HEAD = """/* Code points that a later Unicode than 14 has, or has otherwise, and what stands for them. Made by
 * scripts/make_stand_ins.py from tokenizers %s; never edited by hand. */
#ifndef SL_TEXT_UNICODE_STAND_INS_H
#define SL_TEXT_UNICODE_STAND_INS_H

#include <stdint.h>

/* The first and the last code point of each range, in order, and the older code point of the same
 * general category (and script, of Han) and length; unassigned ones have an unassigned one. */
"""


def find(pattern):
    """The code points that match."""
    text = "".join(map(chr, CODE_POINTS))
    left = Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(text)
    return set(CODE_POINTS).difference(*(map(ord, piece) for piece, _ in left))


def length(code):
    return len(chr(code).encode())


def choose(codes, kinds):
    """Of each kind and length the first code point that any Unicode since 14 has so."""
    chosen = {("Cn", False, 2): 0x378, ("Cn", False, 3): 0xFFFF, ("Cn", False, 4): 0x10FFFF}
    for code in codes:
        if unicodedata.category(chr(code)) == kinds[code][0]:
            chosen.setdefault((*kinds[code], length(code)), code)
    return chosen


def find_ranges(kinds):
    chosen, ranges = choose(CODE_POINTS, kinds), []
    for code in CODE_POINTS:
        if kinds[code][0] != "Cn" and unicodedata.category(chr(code)) == kinds[code][0]:
            continue
        stand_in = chosen[(*kinds[code], length(code))]
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == stand_in:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, stand_in])
    return ranges


def find_fixed():
    """Code points that the library's normalizer takes for characters of their own."""
    ours, fixed = normalizers.NFC().normalize_str, set()
    for code in CODE_POINTS:
        char, decomposed = chr(code), unicodedata.normalize("NFD", chr(code))
        frames = ["a\u0301{}", "a{}\u0334", "a\u0345{}"] if unicodedata.combining(char) else []
        texts = [frame.format(char) for frame in frames]
        if decomposed != char:
            texts += [char, decomposed]
        if any(ours(text) != unicodedata.normalize("NFC", text) for text in texts):
            fixed.update({code, ord(decomposed[-1])})
    ranges = []
    for code in sorted(fixed):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def print_table(name, width, rows):
    print(f"static const uint32_t unicode_{name}[][{width}] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(f"0x{code:x}" for code in row) + "},"
        if len(line) + len(text) > 100:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")


def main():
    assert unicodedata.unidata_version == "14.0.0"
    kinds = dict.fromkeys(CODE_POINTS, "Cn")
    for category in CATEGORIES:
        for code in find(rf"\p{{{category}}}"):
            kinds[code] = category
    han = find(r"\p{Han}")
    kinds = {code: (kind, code in han) for code, kind in kinds.items()}
    print(HEAD % tokenizers.__version__, end="")
    print("/* clang-format off */")
    print_table("stand_ins", 3, find_ranges(kinds))
    print("\n/* Marks of Unicode 10 to 14 that the normalizer of tokenizers, of Unicode 9, leaves in place. */")
    print_table("fixed_marks", 2, find_fixed())
    print("/* clang-format on */\n\n#endif")


main()
