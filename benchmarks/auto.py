#!/usr/bin/env python3
"""Is `auto` as fast as the best fixed policy? Twenty cases of 124M: two types, two row lengths, five
pairs of budgets. In each case every fixed policy that fits and `auto` run in turn, round by round,
because a machine's speed moves within seconds; their step times are compared inside a round, and the
median over the rounds counts. Run `sluice bench --disk-dir DIR` before."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

import steps

CLOSE = 1.05
BUDGETS = (
    ("no limit", []),
    ("device 1G", ["--device-memory", "1G"]),
    ("device 700M", ["--device-memory", "700M"]),
    ("device 1200M, host 1200M", ["--device-memory", "1200M", "--host-memory", "1200M"]),
    ("device 700M, host 700M", ["--device-memory", "700M", "--host-memory", "700M"]),
)
POLICIES = (
    ("device", ["--policy", "device"]),
    ("host", ["--policy", "host"]),
    ("static moments", ["--policy", "static", "--offload-optimizer", "1"]),
    ("static half", ["--policy", "static", "--offload-optimizer", "0.5"]),
    ("nvme", ["--policy", "nvme"]),
    ("auto", ["--policy", "auto"]),
)


def list_cases():
    return [(f"{precision} T={seq} {name}",
             ["--model", "gpt2", "--precision", precision, "--micro-batch", "2", "--seq", seq, *words])
            for precision in ("fp32", "bf16") for seq in ("64", "192") for name, words in BUDGETS]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="build/sluice")
    parser.add_argument("--disk-dir", required=True, help="of the disk tier")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name has this part")
    parser.add_argument("--json", help="file for everything measured")
    return parser.parse_args()


def fits(binary, words):
    """Whether a plan fits; anything else that is wrong ends the script."""
    done = subprocess.run([binary, "plan", "--json", *words], capture_output=True, text=True)
    if done.returncode not in (0, 69):
        raise SystemExit(done.stderr.strip())
    return done.returncode == 0


def run_case(options, common, data, directory):
    """By policy, the medians of each round; and the greatest share of others."""
    words = {name: [*common, *rule, "--disk-dir", options.disk_dir] for name, rule in POLICIES}
    words = {name: one for name, one in words.items() if fits(options.binary, one)}
    found, others = {name: [] for name in words}, 0.0
    for _ in range(options.rounds):
        for name, one in words.items():
            result = steps.train(options.binary, one, data, directory, options.steps, 2)
            found[name].append(result["median"])
            others = max(others, result["others"])
    return found, others


def main():
    options = parse_options()
    rows, close = [], 0
    print(f"{'case':36} {'auto':>8} {'best':>8} {'ratio':>6} {'others':>7}  best fixed policy")
    with tempfile.TemporaryDirectory(prefix="sluice-auto-") as directory:
        data = steps.write_tokens(directory)
        for case, common in list_cases():
            if options.only not in case:
                continue
            found, others = run_case(options, common, data, directory)
            fixed = [name for name in found if name != "auto"]
            best = min(fixed, key=lambda name: statistics.median(found[name]))
            ratio = statistics.median(a / b for a, b in zip(found["auto"], found[best]))
            close += ratio <= CLOSE
            rows.append({"case": case, "ratio": ratio, "best": best, "others": others, "ms": found})
            print(f"{case:36} {statistics.median(found['auto']):6.0f}ms "
                  f"{statistics.median(found[best]):6.0f}ms {ratio:6.3f} {100 * others:6.0f}%  {best}",
                  flush=True)
    print(f"{close} of {len(rows)} at most {100 * (CLOSE - 1):.0f} % behind the best fixed policy")
    if any(row["others"] > steps.OTHERS_LIMIT for row in rows):
        print("other work disturbed some cases: their ratios prove nothing")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"cases": rows, "options": vars(options)}, file, indent=1)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
