#!/usr/bin/env python3
"""What `sluice plan` says a run takes on the GPU beside what the driver counts while it runs.

Planned: the peak of the device tier, and what the context took when it was made, as `plan` prints it.
Counted: the memory of the GPU in use (nvidia-smi), less what was in use before. Memory that is taken after
the context was made (code of kernels, cuBLASLt's handle, events, streams) is counted but not planned; a
plan leaves 256 MiB free for it. So the count may exceed the planned bytes by up to 256 MiB, and both bounds
have a slack for rounding (--within). With --device cpu, or where no driver tells, the
measured peaks of the run's own log are compared instead, which must be the planned ones to the byte."""

import json
import os
import sys

import gpu_common
import steps

PLACES = (
    ("device", ["--policy", "device"]),
    ("optimizer on the host", ["--policy", "static", "--offload-optimizer", "1", "--adam", "host"]),
    ("host", ["--policy", "host", "--adam", "host"]),
)
MIB = 2 ** 20
RESERVE_BYTES = 256 * MIB  # left free by a plan (src/search/search.h)


def read_end(path):
    with open(path) as file:
        return [json.loads(line) for line in file][-1]


def measure(options, model, words, directory, tokens):
    common = gpu_common.train_words(options, model, words)
    planned = gpu_common.plan(options, model, words)
    if not planned:
        raise SystemExit("it does not fit")
    log = os.path.join(directory, "log.json")
    if os.path.exists(log):
        os.unlink(log)
    with gpu_common.MemoryWatch() as watch:
        steps.call([options.sluice, "train", *common, "--data", tokens, "--steps",
                    str(options.steps), "--quiet", "--log-json", log])
    device = read_end(log)["tiers"]["device"]
    return {"planned_bytes": planned["tiers"]["device"]["peak_bytes"],
            "overhead_bytes": planned.get("device_overhead_bytes", 0),
            "measured_bytes": device["measured_peak_bytes"], "counted_bytes": watch.most}


def judge(options, found):
    """What is compared, and whether it is near enough."""
    if options.device == "cpu" or found["counted_bytes"] is None:
        found["apart_bytes"] = found["measured_bytes"] - found["planned_bytes"]
        found["passed"] = found["apart_bytes"] == 0
        found["by"] = "the run's own log"
    else:
        whole = found["planned_bytes"] + found["overhead_bytes"]
        found["apart_bytes"] = found["counted_bytes"] - whole
        slack = options.within * MIB
        found["passed"] = (-slack <= found["apart_bytes"] <= RESERVE_BYTES + slack and
                           found["measured_bytes"] == found["planned_bytes"])
        found["by"] = "nvidia-smi"


def run(options, result, directory, tokens):
    for model in options.models:
        for name, words in PLACES:
            found = gpu_common.attempt(measure, options, model, words, directory, tokens)
            if "failed" not in found:
                judge(options, found)
                print(f"  {model}, {name}: planned {found['planned_bytes'] / MIB:.1f} MiB + "
                      f"{found['overhead_bytes'] / MIB:.1f}, {found['by']} is "
                      f"{found['apart_bytes'] / MIB:+.1f} MiB from that: "
                      f"{'ok' if found['passed'] else 'FAILED'}", flush=True)
            result["runs"].append({"model": model, "place": name, **found})
            gpu_common.keep(options, result)


def parse(words=None):
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, ["gpt2"], 4, 1024, 12)
    parser.add_argument("--within", type=float, default=8, metavar="MIB",
                        help="two counts of whole MiB, and allocations in pages of 2 MiB (8)")
    return parser.parse_args(words)


def main():
    options = parse()
    result = {"options": vars(options), "runs": []}
    gpu_common.with_tokens(run, options, result)
    return 0 if all(one.get("passed") for one in result["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
