"""Text that finds faults of a tokenizer: many scripts, emoji, control characters, spaces of every kind,
contractions, line ends of both kinds, code points that no Unicode has assigned. From a seed alone."""
import random

RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1680, 0x1680), (0x180E, 0x180E), (0x1C80, 0x1C8A),
    (0x2000, 0x206F), (0x2160, 0x2188), (0x3000, 0x30FF), (0x4E00, 0x5000), (0xA7C0, 0xA7DC),
    (0xAC00, 0xAE00), (0xE000, 0xE0FF), (0xFFF0, 0xFFFF), (0x10000, 0x1FFFF), (0x1F300, 0x1F6FF),
    (0x30000, 0x323AF), (0x10FFF0, 0x10FFFF), (0x00, 0x1F), (0x80, 0x9F), (0x660, 0x669),
]
SPACES = [0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20, 0x20, 0x20, 0x85, 0xA0, 0x180E, 0x2028, 0x3000]
WORDS = ("the of and don't we're I'll they've it's he'd 'm's ''s 'S I'LL 2024 3.14 foo_bar() {} "
         "<|endoftext|> na\u00efve Stra\u00dfe \u65e5\u672c\u8a9e \u043f\u0440\u0438\u0432\u0435\u0442").split(" ")


def is_whole(code):
    return not 0xD800 <= code < 0xE000


def draw_item(rng):
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(WORDS)
    if kind < 0.8:
        first, last = rng.choice(RANGES)
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 6)))
    if kind < 0.9:
        return "".join(chr(rng.choice(SPACES)) for _ in range(rng.randint(1, 5)))
    codes = [rng.randint(0, 0x10FFFF) for _ in range(3)]
    return "".join(chr(code) for code in codes if is_whole(code))


def draw_line(rng):
    ends = [" ", " ", "", " \t", "\r\n"]
    return "".join(draw_item(rng) + rng.choice(ends) for _ in range(rng.randint(1, 25)))


def make_text(seed, line_count):
    rng = random.Random(seed)
    return "\n".join(draw_line(rng) for _ in range(line_count)) + "\n"
