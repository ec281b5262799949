#!/usr/bin/env python3
"""Trains a GPT-2 that fits neither the device budget nor the host budget, and shows what it took.

Runs `sluice train` on one repeated row with the states on disk, samples the process while it runs,
and prints per step: loss, seconds, bytes of each lane, and at the end the resident set's high-water
mark plus huge pages beside the budgets. Exit 1 if a loss is not finite or does not fall, or if
memory goes beyond --limit. With --ranks, `sluice launch` starts as many; the proportional set size of
each rank is sampled from its start on, and may be 200 MiB more than its plan says, arenas and
windows together; measured peaks have to be the planned ones to the byte.

  beyond_memory.py --disk-dir DIR                      gpt2-xl, 3 GiB + 3 GiB, bf16, three steps
  beyond_memory.py --disk-dir DIR --ranks 2 --steps 2 --seq 128 --host-memory 2G --option=--zero --option=3
  beyond_memory.py --disk-dir DIR --model gpt2 --device-memory 600M --host-memory 300M --limit 1100M
"""

import argparse
import array
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time

SPARE = 200 * 2 ** 20  # of a rank, beside what it plans: code, libraries, tables of plans
UNITS = {"K": 2 ** 10, "M": 2 ** 20, "G": 2 ** 30, "T": 2 ** 40, "": 1}
VOCAB = 50257


def parse_size(text):
    number, unit = re.fullmatch(r"([0-9.]+)([KMGT]?)", text).groups()
    return int(float(number) * UNITS[unit])


def write_row(path, seq):
    values = random.Random(7)
    with open(path, "wb") as file:
        array.array("H", (values.randrange(VOCAB) for _ in range(seq + 1))).tofile(file)


def sample_memory(pid):
    """High-water mark of the resident set plus huge pages of hugetlbfs, in bytes; 0 when gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return 0
    return sum(int(fields[name].split()[0]) * 1024
               for name in ("VmHWM", "HugetlbPages") if name in fields)


def find_ranks(launcher):
    """The launcher's children."""
    try:
        with open(f"/proc/{launcher}/task/{launcher}/children") as file:
            return file.read().split()
    except OSError:
        return []


def sample_ranks(launcher):
    """The largest proportional set size of a rank, in bytes."""
    most = 0
    for rank in find_ranks(launcher):
        try:
            with open(f"/proc/{rank}/smaps_rollup") as file:
                most = max(most, int(re.search(r"^Pss: *([0-9]+)", file.read(), re.M)[1]) * 1024)
        except (OSError, TypeError):  # it has ended
            pass
    return most


def command_of(options, tokens, log):
    launch = ["launch", "-n", str(options.ranks), "--"] if options.ranks > 1 else []
    command = [options.sluice, *launch, "train", "--data", tokens, "--data-order", "sequential",
               "--device", "cpu", "--precision", options.precision, "--micro-batch", "1",
               "--seq", str(options.seq), "--steps", str(options.steps), "--warmup", "0",
               "--lr-schedule", "constant", "--lr", options.lr, "--recompute", "full", "--clip", "1",
               "--device-memory", options.device_memory, "--host-memory", options.host_memory,
               "--policy", options.policy, "--disk-dir", options.disk_dir, "--quiet",
               "--log-json", log]
    if options.policy == "nvme":
        command += ["--nvme-params", options.nvme_params, "--nvme-grads", options.nvme_grads]
    shape = options.shape.split(",") if options.shape else None
    if shape:
        for name, value in zip(("--layers", "--width", "--heads"), shape):
            command += [name, value]
        return command + ["--vocab", str(VOCAB), *options.option]
    return command + ["--model", options.model, *options.option]


def run(options, tokens, log):
    process = subprocess.Popen(command_of(options, tokens, log))
    peak = 0
    while process.poll() is None:
        sample = sample_ranks if options.ranks > 1 else sample_memory
        peak = max(peak, sample(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    with open(log) as file:
        return peak, [json.loads(line) for line in file]


def gib(count):
    return f"{count / 2 ** 30:.2f}"


def print_steps(steps):
    print(f"{'step':>4s} {'loss':>9s} {'norm':>9s} {'seconds':>8s} {'tok/s':>7s} {'h2d':>7s} "
          f"{'d2h':>7s} {'read':>7s} {'written':>7s}  GiB; stalls in s")
    for step in steps:
        stalls = " ".join(f"{name} {ms / 1e3:.1f}" for name, ms in step["stall_ms"].items() if ms)
        print(f"{step['step']:4d} {step['loss']:9.4f} {step['grad_norm']:9.3f} "
              f"{step['step_ms'] / 1e3:8.2f} {step['tokens_per_s']:7.1f} {gib(step['h2d_bytes']):>7s} "
              f"{gib(step['d2h_bytes']):>7s} {gib(step['disk_read_bytes']):>7s} "
              f"{gib(step['disk_written_bytes']):>7s}  {stalls}")


def report_ranks(peak, events):
    """Whether all ranks kept to their plan."""
    plan, tiers = events[0]["plan"], events[-1]["tiers"]
    planned = sum(tiers[tier]["planned_peak_bytes"] for tier in ("device", "host")) + plan["window_bytes"]
    print(f"proportional set of a rank, at most: {gib(peak)} GiB; arenas and windows as planned: "
          f"{gib(planned)} GiB ({(peak - planned) / 2 ** 20:+.1f} MiB)")
    return peak <= planned + SPARE and all(
        of_tier["planned_peak_bytes"] == of_tier["measured_peak_bytes"] for of_tier in tiers.values())


def report(options, peak, events):
    steps = [event for event in events if event["event"] == "step"]
    end = events[-1]
    print_steps(steps)
    for tier, bytes_of in end["tiers"].items():
        print(f"{tier:>7s}: planned {gib(bytes_of['planned_peak_bytes'])} GiB, measured "
              f"{gib(bytes_of['measured_peak_bytes'])} GiB")
    is_kept = peak <= parse_size(options.limit)
    if options.ranks > 1:
        is_kept = report_ranks(peak, events)
    else:
        print(f"resident, high-water mark plus huge pages: {gib(peak)} GiB, limit "
              f"{gib(parse_size(options.limit))} GiB")
    losses = [step["loss"] for step in steps]
    good = all(loss is not None and math.isfinite(loss) for loss in losses)
    good = good and (len(losses) < 2 or losses[-1] < losses[0]) and is_kept
    return 0 if good else 1


def parse():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk-dir", required=True)
    parser.add_argument("--model", default="gpt2-xl")
    parser.add_argument("--shape", help="layers,width,heads instead of a model")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--lr", default="1e-4")
    parser.add_argument("--policy", default="nvme")
    parser.add_argument("--nvme-params", default="1")
    parser.add_argument("--nvme-grads", default="1")
    parser.add_argument("--device-memory", default="3G")
    parser.add_argument("--host-memory", default="3G")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--limit", default="7G", help="resident set of one process (7G)")
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"))
    parser.add_argument("--option", action="append", default=[], metavar="WORD",
                        help="one more word of the command")
    return parser.parse_args()


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as directory:
        tokens = os.path.join(directory, "row.bin")
        write_row(tokens, options.seq)
        peak, events = run(options, tokens, os.path.join(directory, "log.json"))
    return report(options, peak, events)


if __name__ == "__main__":
    sys.exit(main())
