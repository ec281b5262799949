#!/usr/bin/env python3
"""What it costs to train with states away from the device: everything resident, the optimizer on the
host, everything on the host, and, with --disk-dir, the optimizer on a drive.

Runs `sluice train` of one model and batch in each of these ways, --rounds times in turn. Reported:
tokens/s, the ratio to resident, and the ratio to the least time that the machine's roofs allow
(gpu_limits.py; roofs from --bench, measured by `sluice bench --json` in the same session). Fails if a
loss differs in a single bit. Works with --device cpu too."""

import json
import statistics
import sys
import time

import gpu_common
import gpu_limits

WORDS = {
    "resident": ["--policy", "device"],
    "optimizer": ["--policy", "static", "--offload-optimizer", "1"],
    "host": ["--policy", "host"],
    "nvme": ["--policy", "nvme"],
}


def find_words(options, place):
    words = [*WORDS[place], "--recompute", options.recompute]
    if options.machine:
        words += ["--machine", options.machine]
    if place == "nvme":
        words += ["--disk-dir", options.disk_dir]
    return words


def has_roofs(place, roofs):
    needed = {"resident": ["flops"], "nvme": ["flops", "h2d", "d2h", "memory", "read", "write"]}
    return all(roofs.get(name) for name in needed.get(place, ["flops", "h2d", "d2h", "memory"]))


def find_limit(options, model, place, roofs):
    if not has_roofs(place, roofs):
        return None
    shape = gpu_limits.SHAPES[model]
    flops = gpu_limits.count_step_flops(*shape, options.batch, options.seq)
    parts, least = gpu_limits.step_seconds(place, gpu_limits.count_parameters(*shape), flops, roofs,
                                           options.recompute == "full")
    return {"seconds": least, "parts": parts}


def summarise(options, model, rounds, roofs):
    summary = {}
    for place in gpu_limits.PLACES:
        good = [one for one in rounds if one.get(place, {}).get("step_seconds")]
        if not good:
            continue
        seconds = statistics.median(one[place]["step_seconds"] for one in good)
        ratios = [one["resident"]["step_seconds"] / one[place]["step_seconds"] for one in good
                  if one.get("resident", {}).get("step_seconds")]
        limit = find_limit(options, model, place, roofs)
        summary[place] = {"tokens_per_s": options.batch * options.seq / seconds,
                          "step_seconds": seconds, "limit": limit,
                          "to_resident": statistics.median(ratios) if ratios else None,
                          "to_limit": limit["seconds"] / seconds if limit else None}
    return summary


def show(ratio):
    return "     -" if ratio is None else f"{ratio:6.3f}"


def print_summary(summary):
    print(f"  {'':10s} {'tokens/s':>12s} {'step':>10s} {'to resident':>12s} {'to limit':>9s}")
    for place, found in summary.items():
        print(f"  {place:10s} {found['tokens_per_s']:12.0f} {found['step_seconds'] * 1e3:8.1f}ms "
              f"{show(found['to_resident']):>12s} {show(found['to_limit']):>9s}", flush=True)


def collect_losses(rounds):
    return {tuple(run["losses"]) for one in rounds for run in one.values() if "losses" in run}


def run_models(options, roofs, result, _directory, tokens):
    deadline = time.monotonic() + options.seconds
    for model in options.models:
        rounds = []
        print(f"{model}, {options.batch} rows of {options.seq}, {options.precision}, recompute "
              f"{options.recompute}", flush=True)
        for _ in range(options.rounds):
            rounds.append({})
            for place in gpu_limits.PLACES:
                if place == "nvme" and not options.disk_dir:
                    continue
                if time.monotonic() > deadline:
                    rounds[-1][place] = {"failed": "no time was left"}
                    continue
                rounds[-1][place] = gpu_common.attempt(gpu_common.time_sluice, options, model,
                                                       find_words(options, place), tokens)
                result["models"][model] = {
                    "rounds": rounds, "summary": summarise(options, model, rounds, roofs),
                    "losses_are_the_same": len(collect_losses(rounds)) == 1}
                gpu_common.keep(options, result)
        print_summary(result["models"][model]["summary"])
        same = result["models"][model]["losses_are_the_same"]
        print("  losses are the same" if same else "  LOSSES DIFFER", flush=True)


def parse():
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, ["gpt2-xl"], 16, 1024, 7)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--recompute", default="none", help="the same for all places (none)")
    parser.add_argument("--disk-dir", help="a directory on a drive (else nvme is left out)")
    parser.add_argument("--bench", metavar="FILE", help="of `sluice bench --json`")
    parser.add_argument("--machine", metavar="FILE", help="the profile to plan with")
    parser.add_argument("--seconds", type=float, default=600, help="no run starts later (600)")
    return parser.parse_args()


def main():
    options = parse()
    roofs = {}
    if options.bench:
        with open(options.bench) as file:
            roofs = gpu_limits.read_roofs(json.load(file), options.precision)
    result = {"options": vars(options), "roofs": roofs, "models": {}}
    gpu_common.with_tokens(run_models, options, roofs, result)
    good = [one["losses_are_the_same"] and "resident" in one["summary"]
            for one in result["models"].values()]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
