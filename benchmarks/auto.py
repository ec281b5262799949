#!/usr/bin/env python3
"""Is `auto` as fast as the best fixed policy? Twenty cases of 124M: two types, two row lengths, five
pairs of budgets. In each case every fixed policy that fits and `auto` run in turn, round by round,
because a machine's speed moves within seconds; their step times are compared inside a round, and the
median over the rounds counts. Where `auto` chose the very plan of a fixed policy there is nothing to
compare, and only the noise of two runs of one plan would be: such a case counts as even with that
policy. Else `auto` may be 3 % behind, beyond the noise of equal runs: by how much the rounds of the
two differ. A case whose noise is 5 % or more is excluded, and counted as that. `auto` must also run
whatever a fixed policy runs; how long its answer takes is printed. Run `sluice bench --disk-dir DIR`
before."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

import steps

CLOSE, NOISE, FAR = 1.03, 0.05, 1.2
BUDGETS = (
    ("no limit", []),
    ("device 1G", ["--device-memory", "1G"]),
    ("device 700M", ["--device-memory", "700M"]),
    ("device 1200M, host 1200M", ["--device-memory", "1200M", "--host-memory", "1200M"]),
    ("device 700M, host 1200M", ["--device-memory", "700M", "--host-memory", "1200M"]),
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
    parser.add_argument("--machine", help="machine profile (else the one that is found by itself)")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--first", type=int, default=1, help="the case to begin with")
    parser.add_argument("--json", help="file for everything measured")
    return parser.parse_args()


def draw(binary, words):
    """What a plan is made of, if it fits; anything else that is wrong ends the script."""
    done = subprocess.run([binary, "plan", "--json", *words], capture_output=True, text=True)
    if done.returncode not in (0, 69):
        raise SystemExit(done.stderr.strip())
    if done.returncode != 0:
        return None
    plan = json.loads(done.stdout)
    plan.pop("auto", None)  # what else it thought of
    for tier in plan["tiers"].values():  # what was free just then, where no budget was given
        del tier["budget_bytes"]
    return plan


def run_case(options, common, data, directory):
    """By policy, the medians of each round; the policies whose plan `auto` has, too; the greatest
    share of others; and the seconds of auto's answer."""
    rest = ["--disk-dir", options.disk_dir, *(["--machine", options.machine] if options.machine else [])]
    words = {name: [*common, *rule, *rest] for name, rule in POLICIES}
    plans = {name: draw(options.binary, one) for name, one in words.items() if name != "auto"}
    started = time.monotonic()
    plans["auto"] = draw(options.binary, words["auto"])
    seconds = time.monotonic() - started
    plans = {name: one for name, one in plans.items() if one}
    if plans and "auto" not in plans:
        return plans, set(), 0.0, seconds
    same = {name for name in plans if name != "auto" and plans[name] == plans["auto"]}
    found, others = {name: [] for name in plans if name != "auto" or not same}, 0.0
    for _ in range(options.rounds):
        for name in found:
            result = steps.train(options.binary, words[name], data, directory, options.steps, 2)
            found[name].append(result["median"])
            others = max(others, result["others"])
        least = min(times[0] for times in found.values())
        found = {name: times for name, times in found.items()  # who is far behind is not the best
                 if name in {"auto", *same} or times[0] < FAR * least}
    return found, same, others, seconds


def spread(times):
    return (max(times) - min(times)) / statistics.median(times)


def main():
    options = parse_options()
    rows, close, excluded, refused, end = [], 0, 0, 0, time.monotonic() + 60 * options.minutes
    print(f"{'case':36} {'auto':>8} {'best':>8} {'ratio':>6} {'noise':>6} {'answer':>7}  best fixed policy")
    with tempfile.TemporaryDirectory(prefix="sluice-auto-") as directory:
        data = steps.write_tokens(directory)
        for case, common in list_cases()[options.first - 1:]:
            if time.monotonic() > end:
                print(f"{case:36} left out for time")
                continue
            found, same, others, seconds = run_case(options, common, data, directory)
            fixed = [name for name in found if name != "auto"]
            if not fixed:
                print(f"{case:36} only auto fits, answer in {seconds:.1f} s", flush=True)
                continue
            if "auto" not in found and not same:
                refused += 1
                print(f"{case:36} auto REFUSES what {', '.join(fixed)} can run", flush=True)
                continue
            best = min(fixed, key=lambda name: statistics.median(found[name]))
            if same:
                found["auto"] = found[next(name for name in fixed if name in same)]
            ratio = statistics.median(a / b for a, b in zip(found["auto"], found[best]))
            noise = max(spread(found["auto"]), spread(found[best]))
            excluded += noise >= NOISE
            close += noise < NOISE and ratio <= CLOSE + noise
            rows.append({"case": case, "ratio": ratio, "best": best, "others": others, "noise": noise,
                         "answer_s": seconds, "same": sorted(same), "ms": found})
            print(f"{case:36} {statistics.median(found['auto']):6.0f}ms "
                  f"{statistics.median(found[best]):6.0f}ms {ratio:6.3f} {100 * noise:5.1f}% "
                  f"{seconds:6.1f}s  {best}"
                  + (f"; auto's plan is that of {', '.join(sorted(same))}" if same else "")
                  + ("; excluded" if noise >= NOISE else ""), flush=True)
    print(f"{close} of {len(rows) - excluded} at most {100 * (CLOSE - 1):.0f} % beyond the noise behind the "
          f"best fixed policy; {excluded} excluded as noisy; {refused} refused")
    if any(row["others"] > steps.OTHERS_LIMIT for row in rows):
        print("other work disturbed some cases: their ratios prove nothing")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"cases": rows, "options": vars(options)}, file, indent=1)
    return 0 if rows and not refused else 1


if __name__ == "__main__":
    sys.exit(main())
