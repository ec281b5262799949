#!/usr/bin/env python3
"""Losses of training runs that differ in some options, beside each other.

Every --run is NAME=OPTIONS of `sluice train`. All runs start from the same weights and read the same
text in the same order; the first run is the reference. It runs again with --seeds other orders of the
data: what another order changes is the noise. Printed are the smoothed curves, and of each run the mean
loss of the last 50 steps, the loss of a fixed evaluation, and the mean distance of its smoothed curve
from the reference's; with --eval-every also the evaluations on the way. --check fails where that
distance exceeds the noise.

  curves.py --check --run fp32= --run "bf16=--precision bf16" FILE...
  curves.py --steps 1000 --run "adamw=--lr 2e-3" --run "muon=--optimizer muon --lr 0.02" FILE...
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

WINDOW = 20  # steps that are averaged
LAST = 50    # steps whose mean loss is printed


def model_options(options):
    return ["--data", *options.files, *shlex.split(options.model), "--split", "98,2,0"]


def run_losses(options, directory, name, words, seed, start):
    """The loss of each step, and the evaluations."""
    log = os.path.join(directory, "log.jsonl")
    subprocess.run([options.sluice, "train", *model_options(options), "--steps", str(options.steps),
                    "--seed", str(seed), "--eval-every", str(options.eval_every), "--eval-iters",
                    str(options.eval_iters), "--quiet", "--log-json", log, "--init", start,
                    *shlex.split(words)], check=True)
    with open(log) as file:
        events = [json.loads(line) for line in file]
    os.unlink(log)
    losses = [event["loss"] for event in events if event["event"] == "step"]
    evaluations = [[event["step"], event["loss"]] for event in events if event["event"] == "eval"]
    seconds = [event["step_ms"] / 1000 for event in events if event["event"] == "step"]
    print(f"{name}: {sum(losses[-LAST:]) / len(losses[-LAST:]):.4f} after {len(losses)} steps, "
          f"evaluation {evaluations[-1][1]:.4f}, {sum(seconds):.0f} s", flush=True)
    return {"name": name, "options": words, "seed": seed, "losses": losses,
            "evaluations": evaluations, "seconds": sum(seconds)}


def smooth(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def distance(run, reference):
    a, b = smooth(run["losses"]), smooth(reference["losses"])
    return sum(abs(x - y) for x, y in zip(a, b)) / len(a)


def make_start(options, directory):
    """A checkpoint of step 0, so that all runs start from the same weights."""
    start = os.path.join(directory, "start")
    subprocess.run([options.sluice, "train", *model_options(options), "--steps", "0", "--save",
                    start, "--eval-iters", "1", "--quiet"], check=True)
    return start


def print_curves(runs):
    names = [run["name"] for run in runs]
    width = max(9, *(len(name) + 1 for name in names))
    print(f"{'step':>6s}" + "".join(f"{name:>{width}s}" for name in names))
    for i, row in enumerate(zip(*(smooth(run["losses"]) for run in runs))):
        print(f"{(i + 1) * WINDOW:6d}" + "".join(f"{value:{width}.4f}" for value in row))
    print("evaluations")
    for row in zip(*(run["evaluations"] for run in runs)):
        print(f"{row[0][0]:6d}" + "".join(f"{loss:{width}.4f}" for _, loss in row))


def write_json(options, runs):
    """After each run, so that a long list that is stopped is not lost."""
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"model": options.model, "steps": options.steps, "runs": runs}, file)


def parse_options():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="text")
    parser.add_argument("--run", action="append", required=True, metavar="NAME=OPTIONS")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2, help="other orders of the data (2)")
    parser.add_argument("--model", metavar="OPTIONS", help="of all runs: model and batch",
                        default="--layers 4 --width 256 --heads 4 --context 128 --micro-batch 8 "
                                "--lr 1e-3")
    parser.add_argument("--eval-iters", type=int, default=40)
    parser.add_argument("--eval-every", type=int, default=0, metavar="STEPS",
                        help="evaluate on the way, too (0: at the end alone)")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write everything measured here")
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"))
    return parser.parse_args()


def main():
    options = parse_options()
    runs, others = [], []
    with tempfile.TemporaryDirectory() as directory:
        start = make_start(options, directory)
        for text in options.run:
            name, _, words = text.partition("=")
            runs.append(run_losses(options, directory, name, words, 1, start))
            write_json(options, runs)
        for seed in range(2, 2 + options.seeds):
            others.append(run_losses(options, directory, f"seed {seed}", runs[0]["options"], seed,
                                     start))
            write_json(options, runs + others)
    print_curves(runs + others)
    noise = sum(distance(other, runs[0]) for other in others) / max(1, len(others))
    away = [distance(run, runs[0]) for run in runs[1:]]
    for run, far in zip(runs[1:], away):
        print(f"mean distance from {runs[0]['name']}: {run['name']} {far:.4f}, "
              f"another order of the data {noise:.4f}")
    return 1 if options.check and any(far > noise for far in away) else 0


if __name__ == "__main__":
    sys.exit(main())
