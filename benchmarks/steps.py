"""What predict.py and policies.py share: random tokens, `sluice plan` and `sluice train` of the same
options, and how much of the processors other work took meanwhile. Standard library only."""

import array
import json
import os
import random
import resource
import statistics
import subprocess

TOKEN_COUNT = 1 << 20
VOCAB = 50257
OTHERS_LIMIT = 0.05


def write_tokens(directory):
    """Random token ids as uint16 without header, as nanoGPT has them; never text, never zeros."""
    path = os.path.join(directory, "tokens.bin")
    draw = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (draw.randrange(1, VOCAB) for _ in range(TOKEN_COUNT))).tofile(file)
    return path


def read_ticks():
    """Ticks of all processors that somebody used, of this process's children that have ended, and
    of stolen time."""
    with open("/proc/stat") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = (usage.ru_utime + usage.ru_stime) * os.sysconf("SC_CLK_TCK")
    busy = sum(fields[:3]) + sum(fields[5:8])
    return sum(fields[:8]), busy, own


def call(words):
    """Runs a command; returns what it printed and the share of the processors that others took."""
    before = read_ticks()
    done = subprocess.run(words, capture_output=True, text=True)
    total, busy, own = (b - a for a, b in zip(before, read_ticks()))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr.strip()}")
    return done.stdout, max(0.0, busy - own) / max(total, 1)


def plan(binary, options):
    return json.loads(call([binary, "plan", "--json", *options])[0])


def train(binary, options, data, directory, steps, skipped):
    """Median and least step_ms of the steps after the first `skipped`, stalls of the last one, and
    the others' share."""
    log = os.path.join(directory, "log.json")
    if os.path.exists(log):
        os.unlink(log)
    others = call([binary, "train", *options, "--data", data, "--steps", str(steps), "--quiet",
                   "--log-json", log])[1]
    with open(log) as file:
        events = [json.loads(line) for line in file]
    reports = [event for event in events if "step_ms" in event]
    times = [event["step_ms"] for event in reports][skipped:]
    return {"median": statistics.median(times), "least": min(times), "last": reports[-1],
            "others": others}
