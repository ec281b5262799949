#!/usr/bin/env python3
"""Step time by policy, as ratios to everything on the device. Rounds go through all policies in turn,
because a machine's speed moves within seconds; a ratio is made inside a round, and their median
counts. Losses are compared too: a policy never changes them."""

import argparse
import json
import statistics
import sys
import tempfile

import steps

POLICIES = (
    ("device", ["--policy", "device"]),
    ("host", ["--policy", "host"]),
    ("static, moments on the host", ["--policy", "static", "--offload-optimizer", "1"]),
    ("static, all on the host", ["--policy", "static", "--offload-optimizer", "1",
                                 "--offload-grads", "1", "--offload-params", "1"]),
    ("nvme", ["--policy", "nvme"]),
    ("auto", ["--policy", "auto"]),
)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="build/sluice")
    parser.add_argument("--disk-dir", help="of the disk tier (else nvme is left out)")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--micro-batch", default="4")
    parser.add_argument("--seq", default="64")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sluice-option", action="append", default=[],
                        help="one more word of the command line, any number of times")
    parser.add_argument("--json", help="file for everything measured")
    return parser.parse_args()


def run_round(options, common, data, directory):
    found = {}
    for name, words in POLICIES:
        words = [*common, *words]
        if "nvme" in words and not options.disk_dir:
            continue
        if options.disk_dir and ("nvme" in words or "auto" in words):
            words += ["--disk-dir", options.disk_dir]
        found[name] = steps.train(options.binary, words, data, directory, options.steps, 2)
    return found


def main():
    options = parse_options()
    common = ["--model", options.model, "--precision", options.precision, "--micro-batch",
              options.micro_batch, "--seq", options.seq, *options.sluice_option]
    with tempfile.TemporaryDirectory(prefix="sluice-policies-") as directory:
        data = steps.write_tokens(directory)
        rounds = [run_round(options, common, data, directory) for _ in range(options.rounds)]
    losses = {one["last"]["loss"] for found in rounds for one in found.values()}
    print(f"{'policy':28} {'step':>10} {'to device':>10} {'others':>7}")
    for name in rounds[0]:
        step = statistics.median(found[name]["median"] for found in rounds)
        ratio = statistics.median(found[name]["median"] / found["device"]["median"]
                                  for found in rounds)
        others = max(found[name]["others"] for found in rounds)
        print(f"{name:28} {step:8.0f}ms {ratio:10.3f} {100 * others:6.0f}%")
    print("losses are the same" if len(losses) == 1 else f"LOSSES DIFFER: {sorted(losses)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "rounds": rounds}, file, indent=1)
    return 0 if len(losses) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
