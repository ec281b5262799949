#!/usr/bin/env python3
"""What it costs to train with states away from the device: everything resident, the optimizer on the
host, everything on the host, and, with --disk-dir, the optimizer on a drive. Away from the device AdamW
runs on the host, so parameters go up and gradients come down in every step.

Runs `sluice train` of each model in each of these ways: first all but the drive, --rounds times in turn,
then three steps with a timeline of each, then the drive with a host budget that holds parameters,
gradients and little else (5 bytes a parameter and 256 MiB), so that it is used. A device with enough room
would keep all parameters in `host` and `nvme`, and nothing would be prefetched. So the device budget of
these two holds the activations and half of the parameters. If --batch rows do not fit beside the resident
states, the rows are halved until they do; if not even one row fits, the resident run is left out.

Reported, all for the tokens of a step that are stated:

- tokens/s, MFU, the ratio to resident, and the ratio to the least time that the machine's roofs allow
  (gpu_limits.py; roofs from --bench, measured by `sluice bench --json` in the same session), once with
  the roof of products and once with products as fast as the resident run's, which leaves what
  offloading adds;
- each lane's busy part of a step, and its rate while busy as a share of its roof.

Runs that did not take place, and figures that need --bench, are named. Fails if a loss differs in a single
bit, or if a lane that a run has to measure (LANES) moved nothing. Works with --device cpu too."""

import json
import os
import statistics
import sys
import time

import gpu_common
import gpu_limits

WORDS = {
    "resident": ["--policy", "device"],
    "optimizer": ["--policy", "static", "--offload-optimizer", "1", "--adam", "host"],
    "host": ["--policy", "host", "--adam", "host"],
    "nvme": ["--policy", "nvme", "--adam", "host"],
}
LANES = {"resident": (), "optimizer": ("h2d", "d2h", "host"), "host": ("h2d", "d2h", "host"),
         "nvme": ("h2d", "d2h", "host", "read", "write")}  # that a way is there to measure
SQUEEZED = ("host", "nvme")
TRACED_STEPS, TRACED_STEP = 3, 2  # the one with a step on either side
DISK_GUESS = {"read": 2e9, "write": 1e9}  # bytes/s where --bench does not say
ADAM_BYTES = 28  # a parameter, read and written by AdamW on the host
ROOFS = {"h2d": "h2d", "d2h": "d2h", "host": "memory", "read": "read", "write": "write"}


# ---- what is run ----


def find_words(options, model):
    """The options of every place. nvme has the same device budget as host."""
    # A constant rate: the first losses do not depend on how many steps follow.
    common = ["--recompute", options.recompute, "--lr-schedule", "constant"]
    if options.machine and os.path.exists(options.machine):
        common += ["--machine", options.machine]
    squeezed = gpu_common.squeeze(options, model, [*WORDS["host"], *common])
    host_bytes = 5 * gpu_limits.count_parameters(*gpu_limits.SHAPES[model]) + 2 ** 28
    words = {place: [*WORDS[place], *common] for place in options.places}
    for place in set(SQUEEZED) & set(words):
        words[place] += squeezed
    if "nvme" in words:
        words["nvme"] += ["--host-memory", str(host_bytes)]
        words["nvme"] += ["--disk-dir", options.disk_dir] if options.disk_dir else []
    return words


def prepare(options, model):
    """The options with the rows of this model, and the words of the places that are run."""
    recompute = ["--recompute", options.recompute]
    fitting = gpu_common.fit_rows(options, model, [*WORDS["resident"], *recompute])
    places = options.places
    if not fitting:
        fitting = gpu_common.fit_rows(options, model, [*WORDS["optimizer"], *recompute])
        places = [place for place in places if place != "resident"]
    if not fitting:
        return options, {}
    return fitting, find_words(gpu_common.copy_options(fitting, places=places), model)


# ---- lanes ----


def merge(spans):
    """Seconds that at least one of the spans covers."""
    covered, end = 0.0, float("-inf")
    for begun, ended in sorted(spans):
        covered += max(0.0, ended - max(begun, end))
        end = max(end, ended)
    return covered


def read_lanes(path, parameters):
    """Busy seconds and bytes of each lane in one step of a timeline."""
    with open(path) as file:
        events = json.load(file)
    names = {event["tid"]: event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    lanes = {}
    for event in events:
        if event.get("ph") != "X" or event["args"]["step"] != TRACED_STEP:
            continue
        lane = lanes.setdefault(names[event["tid"]], {"spans": [], "bytes": 0})
        lane["spans"].append((1e-6 * event["ts"], 1e-6 * (event["ts"] + event["dur"])))
        lane["bytes"] += event["args"].get("bytes", 0)
    if "host" in lanes:
        lanes["host"]["bytes"] = ADAM_BYTES * parameters
    return {name: {"busy_seconds": merge(lane["spans"]), "bytes": lane["bytes"]}
            for name, lane in lanes.items()}


def trace(options, model, words, directory, tokens):
    path = os.path.join(directory, "timeline.json")
    shorter = gpu_common.copy_options(options, steps=TRACED_STEPS)
    run = gpu_common.time_sluice(shorter, model, [*words, "--timeline", path], tokens)
    parameters = gpu_limits.count_parameters(*gpu_limits.SHAPES[model])
    run["lanes"] = read_lanes(path, parameters)
    os.unlink(path)
    return run


def rate_lanes(lanes, seconds, roofs):
    """Of a step's lanes: the part of a step that they were busy, and their rates beside the roofs."""
    rated = {}
    for name, lane in lanes.items():
        rated[name] = {"busy": lane["busy_seconds"] / seconds}
        roof = roofs.get(ROOFS.get(name))
        if roof and lane["busy_seconds"]:
            rated[name]["of_roof"] = lane["bytes"] / lane["busy_seconds"] / roof
    return rated


# ---- the report ----


def find_limit(options, model, place, roofs, flop_rate, moved):
    """The least seconds of a step with products at that rate, or None without a roof."""
    if not flop_rate or not all(roofs.get(ROOFS[lane]) for lane in LANES[place]):
        return None
    shape = gpu_limits.SHAPES[model]
    flops = gpu_limits.count_step_flops(*shape, options.batch, options.seq)
    parts, least = gpu_limits.step_seconds(place, gpu_limits.count_parameters(*shape), flops,
                                           {**roofs, "flops": flop_rate},
                                           options.recompute == "full", moved)
    return {"seconds": least, "parts": parts}


def find_resident_rate(options, model, seconds):
    flops = gpu_limits.count_step_flops(*gpu_limits.SHAPES[model], options.batch, options.seq)
    return flops * (8 / 6 if options.recompute == "full" else 1) / seconds if seconds else None


def summarise_place(options, model, rounds, place, machine):
    """Medians of one place; None where it never ran to its end."""
    good = [one for one in rounds if "step_seconds" in one.get(place, {})]
    if not good:
        return None
    seconds = statistics.median(one[place]["step_seconds"] for one in good)
    both = [one for one in good if "step_seconds" in one.get("resident", {})]
    ratios = [one["resident"]["step_seconds"] / one[place]["step_seconds"] for one in both]
    resident = statistics.median(one["resident"]["step_seconds"] for one in both) if both else None
    flops = gpu_limits.count_step_flops(*gpu_limits.SHAPES[model], options.batch, options.seq)
    stated = gpu_limits.find_stated_flops(machine["gpu"]) if options.precision == "bf16" else None
    roofs, moved = machine["roofs"], good[-1][place]["moved"]
    limit = find_limit(options, model, place, roofs, roofs.get("flops"), moved)
    own = find_limit(options, model, place, roofs, find_resident_rate(options, model, resident),
                     moved)
    return {"tokens_per_s": options.batch * options.seq / seconds, "step_seconds": seconds,
            "mfu": flops / seconds / stated if stated else None, "moved": moved, "limit": limit,
            "to_resident": statistics.median(ratios) if ratios else None,
            "to_limit": limit["seconds"] / seconds if limit else None,
            "to_own_limit": own["seconds"] / seconds if own else None}


def summarise(options, model, found, machine):
    rounds, summary = found["rounds"], {}
    for place in gpu_limits.PLACES:
        one = summarise_place(options, model, rounds, place, machine)
        if one:
            lanes = found["traced"].get(place, {}).get("lanes", {})
            summary[place] = {**one, "lanes": rate_lanes(lanes, one["step_seconds"],
                                                         machine["roofs"])}
    return summary


def are_losses_the_same(found):
    """Runs may differ in their steps; what two have in common must be the same bits."""
    losses = [run["losses"] for one in (*found["rounds"], found["traced"]) for run in one.values()
              if "losses" in run]
    longest = max(losses, key=len, default=[])
    return bool(losses) and all(longest[:len(one)] == one for one in losses)


def say(model, kind, place, summary):
    one = summary.get(place)
    if not one:
        return
    show = [f"{name.replace('_', ' ')} {one[name]:.3f}" for name in
            ("mfu", "to_resident", "to_limit", "to_own_limit") if one[name] is not None]
    if kind == "trace":
        show = [f"{name} busy {lane['busy']:.2f}" + (f" at {lane['of_roof']:.2f} of its roof"
                                                    if "of_roof" in lane else "")
                for name, lane in one["lanes"].items()]
    print(f"  {model:8s} {place:10s} {one['tokens_per_s']:9.0f} tokens/s "
          f"{one['step_seconds'] * 1e3:8.1f} ms  {', '.join(show)}", flush=True)


# ---- runs, the most telling first ----


def list_runs(options):
    places = [place for place in options.places if place != "nvme"]
    for index in range(options.rounds):
        yield from (("time", model, place, index) for model in options.models for place in places)
    yield from (("trace", model, place, 0) for model in options.models for place in places
                if place != "resident")
    if "nvme" in options.places:
        for model in options.models:
            yield from ((kind, model, "nvme", 0) for kind in ("time", "trace"))


def find_excuse(options, run, words, roofs, left):
    """Why a run is not even begun; None if it is."""
    kind, model, place, _ = run
    if left <= 0:
        return "not run: no time was left"
    if place not in words:
        return "not run: one row does not fit"
    if place != "nvme":
        return None
    if not options.disk_dir:
        return "not run: there is no --disk-dir"
    rates = {name: roofs.get(name) or guess for name, guess in DISK_GUESS.items()}
    size = 12 * gpu_limits.count_parameters(*gpu_limits.SHAPES[model])
    steps_count = options.nvme_steps if kind == "time" else TRACED_STEPS
    needed = size / rates["write"] + steps_count * sum(size / rate for rate in rates.values())
    return f"not run: the disk takes {needed:.0f} s, {left:.0f} were left" if needed > left else None


def do_run(options, run, words, directory, tokens):
    kind, model, place, _ = run
    if kind == "trace":
        done = trace(options, model, words, directory, tokens)
    else:
        if place == "nvme":
            options = gpu_common.copy_options(options, steps=min(options.steps, options.nvme_steps))
        done = gpu_common.time_sluice(options, model, words, tokens)
    gpu_common.check_lanes(LANES[place], gpu_common.read_moved(done["moved"]))
    if kind == "trace":
        gpu_common.check_lanes(LANES[place], {"host": 0, **{
            lane: one["busy_seconds"] for lane, one in done["lanes"].items()}})
    return done


def run_all(options, machine, result, directory, tokens):
    deadline, prepared = time.monotonic() + options.seconds, {}
    for model in options.models:
        prepared[model] = prepare(options, model)
        rounds = [{place: {"failed": "not run"} for place in options.places}
                  for _ in range(options.rounds)]
        rows = prepared[model][0].batch
        result["models"][model] = {"rows": rows, "rounds": rounds, "traced": {}, "summary": {}}
        print(f"{model}: {rows} rows of {options.seq}, {options.precision}, recompute "
              f"{options.recompute}", flush=True)
    for run in list_runs(options):
        kind, model, place, index = run
        found, (fitting, words) = result["models"][model], prepared[model]
        excuse = find_excuse(options, run, words, machine["roofs"], deadline - time.monotonic())
        one = {"failed": excuse} if excuse else gpu_common.attempt(do_run, fitting, run, words[place],
                                                                   directory, tokens)
        (found["traced"] if kind == "trace" else found["rounds"][index])[place] = one
        found["summary"] = summarise(fitting, model, found, machine)
        found["losses_are_the_same"] = are_losses_the_same(found)
        gpu_common.keep(options, result)
        if "failed" in one:
            print(f"  {model:8s} {place:10s} {kind}: {one['failed'][:120]}", flush=True)
        else:
            say(model, kind, place, found["summary"])


def passed(found):
    """Whether runs of a model took place, none of them failed, and all have the same losses."""
    runs = [run for one in (*found["rounds"], found["traced"]) for run in one.values()]
    return found.get("losses_are_the_same") and all(
        run.get("failed", "not run").startswith("not run") for run in runs)


def find_missing(options, report, roofs):
    """What the figures lack, in words."""
    missing = [report["missing"]] if "missing" in report else []
    lacking = [name for name in ("flops", "h2d", "d2h", "memory") if not roofs.get(name)]
    if lacking:
        missing.append(f"no roof of {', '.join(lacking)}: no ratio to what needs it")
    if not options.machine or not os.path.exists(options.machine):
        missing.append("no machine profile: planned with a guess of the machine")
    return missing


def parse(words=None):
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, ["gpt2", "gpt2-xl"], 16, 1024, 7)
    parser.add_argument("--places", nargs="+", choices=gpu_limits.PLACES,
                        default=list(gpu_limits.PLACES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--nvme-steps", type=int, default=4, help="of a run with the drive (4)")
    parser.add_argument("--recompute", default="none", help="the same for all places (none)")
    parser.add_argument("--disk-dir", help="a directory on a drive (else nvme is left out)")
    parser.add_argument("--bench", metavar="FILE", help="of `sluice bench --json`")
    parser.add_argument("--machine", metavar="FILE", help="the profile to plan with")
    parser.add_argument("--seconds", type=float, default=600, help="no run starts later (600)")
    return parser.parse_args(words)


def main():
    options = parse()
    report = gpu_common.read_bench(options)
    machine = {"gpu": report.get("gpu"), "roofs": gpu_limits.read_roofs(report, options.precision)}
    result = {"options": vars(options), **machine, "models": {},
              "missing": find_missing(options, report, machine["roofs"])}
    for line in result["missing"]:
        print(f"  {line}", flush=True)
    gpu_common.with_tokens(run_all, options, machine, result)
    good = [passed(one) for one in result["models"].values()]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
