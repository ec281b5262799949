#!/usr/bin/env python3
"""Is the slowest resource the speed? 124M with its optimizer states on disk, against the bound that
follows from the same step resident and from the disk's rate, measured around it:

    bound = backward + max(forward + update, disk) + filling

Forward, backward and update are the medians of a resident run, read from its timeline; the update
counts with the computation because on the cpu device both use the same cores. `disk` is the bytes
that a step moved over what fio moves when it reads and writes at once, before and after the run. No
update precedes the norm of the whole gradient, so backward stands outside. Filling is the reading of
one chunk's two moments. Rounds go through both runs in turn."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import steps

MIB = 1 << 20
SKIPPED = 2  # steps before the first that counts
DEPTH = 32
ON_DISK = ["--policy", "static", "--nvme-optimizer", "1"]  # parameters and gradients on the device


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default="build/sluice")
    parser.add_argument("--disk-dir", required=True)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--host-memory", default="300M")
    parser.add_argument("--rows", nargs="+", default=["4x64", "4x1024"], help="micro-batch x row")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fio-seconds", type=float, default=3.0)
    parser.add_argument("--json", help="file for everything measured")
    return parser.parse_args()


def measure_disk(options):
    """Bytes a second that fio reads and writes together: blocks of 1 MiB, direct, written before."""
    path = os.path.join(options.disk_dir, f"at-limit-{os.getpid()}")
    command = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--bs=1M",
               f"--filename={path}", f"--iodepth={DEPTH}", "--fixedbufs=1", "--registerfiles=1",
               "--time_based", f"--runtime={options.fio_seconds}", "--overwrite=1", "--size=1G",
               "--name=read", "--rw=read", "--offset=1G", "--name=write", "--rw=write"]
    try:
        with open(path, "wb") as file:
            for _ in range(128):
                file.write(os.urandom(16 * MIB))
            file.flush()
            os.fsync(file.fileno())
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        os.remove(path)
    return sum(job[kind]["bw_bytes"] for job in json.loads(text[text.index("{"):])["jobs"]
               for kind in ("read", "write"))


def read_phases(path):
    """Milliseconds of the compute lane by step and phase; recomputation is part of backward."""
    with open(path) as file:
        events = json.load(file)
    found = {}
    for event in events:
        if event.get("cat") != "op":
            continue
        phase = event["args"]["phase"].replace("recompute", "backward")
        step = found.setdefault(event["args"]["step"], {"forward": 0, "backward": 0, "update": 0})
        step[phase] += 1e-3 * event["dur"]
    return [found[number] for number in sorted(found)][SKIPPED:]


def on_disk(options):
    return [*ON_DISK, "--disk-dir", options.disk_dir, "--host-memory", options.host_memory]


def run_round(options, common, data, directory):
    trace = os.path.join(directory, "trace.json")
    resident = steps.train(options.binary, [*common, "--policy", "device", "--timeline", trace], data,
                           directory, options.steps, SKIPPED)
    phases = read_phases(trace)
    before = measure_disk(options)
    disk = steps.train(options.binary, [*common, *on_disk(options)], data, directory, options.steps,
                       SKIPPED)
    rate = (before + measure_disk(options)) / 2
    split = {phase: statistics.median(step[phase] for step in phases) for phase in phases[0]}
    moved = disk["last"]["disk_read_bytes"] + disk["last"]["disk_written_bytes"]
    return {"split": split, "resident_ms": resident["median"], "disk_ms": disk["median"],
            "rate": rate, "moved": moved, "others": max(resident["others"], disk["others"])}


def bound_ms(one, filling_bytes):
    split, rate = one["split"], one["rate"]
    lanes = max(split["forward"] + split["update"], 1e3 * one["moved"] / rate)
    return split["backward"] + lanes + 1e3 * filling_bytes / rate


def main():
    options = parse_options()
    cases = []
    with tempfile.TemporaryDirectory(prefix="sluice-at-limit-") as directory:
        data = steps.write_tokens(directory)
        for rows in options.rows:
            batch, seq = rows.split("x")
            common = ["--model", options.model, "--precision", options.precision, "--micro-batch",
                      batch, "--seq", seq]
            planned = steps.plan(options.binary, [*common, *on_disk(options)])
            filling = 8 * planned["chunk_elements"]
            for _ in range(options.rounds):
                one = run_round(options, common, data, directory)
                one.update(rows=rows, bound_ms=bound_ms(one, filling))
                cases.append(one)
                split = ", ".join(f"{phase} {ms:.0f}" for phase, ms in one["split"].items())
                print(f"{rows}: resident {one['resident_ms']:.0f} ms ({split}); disk "
                      f"{one['moved'] * 1e-9:.2f} GB at {one['rate'] * 1e-9:.2f} GB/s; bound "
                      f"{one['bound_ms']:.0f}, measured {one['disk_ms']:.0f} ms: "
                      f"{one['disk_ms'] / one['bound_ms']:.3f} (others "
                      f"{100 * one['others']:.0f} %)", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "cases": cases}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
