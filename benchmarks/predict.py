#!/usr/bin/env python3
"""Predicted against measured step times: for each case the step time that `sluice plan` predicts and
the median that `sluice train` takes, on random tokens. Run `sluice bench --disk-dir DIR` before, or
name its profile with --machine. What counts is how many cases are within 15 %. Where a machine's
speed moves within minutes (shared ones do), `--profile-each` measures a profile before each case:
then the ratio tells of the prediction, not of the hour."""

import argparse
import json
import os
import sys
import tempfile

import steps

CLOSE = 0.15
COMMON = ["--model", "gpt2", "--micro-batch", "2", "--recompute", "none"]


def list_cases():
    """Name and options of twenty cases: 124M in two types, four policies, rows of 64 to 256."""
    cases = []
    for precision in ("fp32", "bf16"):
        for name, seq, words in (
                ("device", 64, []), ("device", 128, []), ("device", 256, []),
                ("host", 64, []), ("host 700M", 256, ["--device-memory", "700M"]),
                ("static moments", 64, ["--offload-optimizer", "1"]),
                ("static moments", 256, ["--offload-optimizer", "1"]),
                ("static halves", 128, ["--offload-optimizer", "0.5", "--offload-grads", "0.5"]),
                ("nvme", 64, []), ("nvme", 256, [])):
            policy = name.split()[0]
            options = [*COMMON, "--precision", precision, "--policy", policy, "--seq", str(seq)]
            cases.append((f"{precision} {name} T={seq}", options + words))
    return cases


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="build/sluice")
    parser.add_argument("--disk-dir", help="of the disk tier (else cases with one are left out)")
    parser.add_argument("--machine", help="machine profile (else the one that is found by itself)")
    parser.add_argument("--profile-each", action="store_true",
                        help="measure a new profile before each case, a minute each")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name has this part")
    parser.add_argument("--json", help="file for everything measured")
    return parser.parse_args()


def run_case(options, words, data, directory):
    words = list(words)
    if "nvme" in words:
        words += ["--disk-dir", options.disk_dir]
    machine = options.machine
    if options.profile_each:
        machine = os.path.join(directory, "machine.json")
        steps.call([options.binary, "bench", "--quiet", "--output", machine,
                    *(["--disk-dir", options.disk_dir] if options.disk_dir else [])])
    if machine:
        words += ["--machine", machine]
    planned = steps.plan(options.binary, words)
    measured = steps.train(options.binary, words, data, directory, options.steps, 2)
    return {"predicted_ms": planned["predicted_step_ms"], "median_ms": measured["median"],
            "least_ms": measured["least"], "others": measured["others"], "plan": planned,
            "last_step": measured["last"]}


def main():
    options = parse_options()
    rows, close = [], 0
    print(f"{'case':28} {'predicted':>10} {'measured':>10} {'ratio':>6} {'least':>10} {'others':>7}")
    with tempfile.TemporaryDirectory(prefix="sluice-predict-") as directory:
        data = steps.write_tokens(directory)
        for name, words in list_cases():
            if options.only not in name or ("nvme" in words and not options.disk_dir):
                continue
            row = run_case(options, words, data, directory)
            ratio = row["predicted_ms"] / row["median_ms"]
            close += abs(ratio - 1) <= CLOSE
            rows.append({"case": name, "ratio": ratio, **row})
            print(f"{name:28} {row['predicted_ms']:8.0f}ms {row['median_ms']:8.0f}ms {ratio:6.2f} "
                  f"{row['least_ms']:8.0f}ms {100 * row['others']:6.0f}%", flush=True)
    print(f"{close} of {len(rows)} within {100 * CLOSE:.0f} %")
    if any(row["others"] > steps.OTHERS_LIMIT for row in rows):
        print("other work disturbed some cases: their ratios prove nothing")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"cases": rows, "processors": os.cpu_count()}, file, indent=1)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
