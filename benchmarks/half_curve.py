#!/usr/bin/env python3
"""The loss of a training run in half precision beside the same run in fp32.

Trains the same small GPT-2 on the same text from the same seed in fp32, twice with another seed of
the data order, and in half precision; prints the smoothed curves. What another order of the data
changes is the noise; half precision has to stay within it. Exit 1 if the mean distance of the
smoothed half-precision curve from fp32's exceeds that of the reordered runs.

  half_curve.py [--precision bf16] [--steps 300] FILE...
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

WINDOW = 20  # steps that are averaged


def losses_of(options, directory, precision, seed, init):
    log = os.path.join(directory, f"{precision}-{seed}.json")
    command = [options.sluice, "train", "--data", *options.files, "--layers", "4", "--width", "256",
               "--heads", "4", "--context", "128", "--micro-batch", "8", "--steps",
               str(options.steps), "--lr", "1e-3", "--precision", precision, "--seed", str(seed),
               "--quiet", "--log-json", log, "--init", init]
    subprocess.run(command, check=True)
    with open(log) as file:
        events = [json.loads(line) for line in file]
    return [event["loss"] for event in events if event["event"] == "step"]


def smooth(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b)) / len(a)


def make_start(options, directory):
    """A checkpoint of step 0, so that all runs start from the same weights."""
    start = os.path.join(directory, "start")
    subprocess.run([options.sluice, "train", "--data", *options.files, "--layers", "4", "--width",
                    "256", "--heads", "4", "--context", "128", "--steps", "0", "--save", start,
                    "--quiet"], check=True)
    return start


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        start = make_start(options, directory)
        full = smooth(losses_of(options, directory, "fp32", 1, start))
        others = [smooth(losses_of(options, directory, "fp32", seed, start)) for seed in (2, 3)]
        half = smooth(losses_of(options, directory, options.precision, 1, start))
    print(f"{'step':>5s} {'fp32':>8s} {options.precision:>8s} {'seed 2':>8s} {'seed 3':>8s}")
    for i, row in enumerate(zip(full, half, *others)):
        print(f"{(i + 1) * WINDOW:5d} " + " ".join(f"{value:8.4f}" for value in row))
    noise = sum(distance(full, other) for other in others) / len(others)
    off = distance(full, half)
    print(f"mean distance from fp32: {options.precision} {off:.4f}, another data order {noise:.4f}")
    return 0 if off <= noise else 1


if __name__ == "__main__":
    sys.exit(main())
