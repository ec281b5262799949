#!/usr/bin/env python3
"""Sums over ranks of one machine, sluice beside Open MPI (or MPICH): fp32 all-reduces of the same sizes by
`sluice launch -n N -- bench --only comm` and by mpi_pair.c, which the MPI's compiler builds, in separate runs in
turn (A B, then B A). Reported are the medians of both, and the ratio of each pair: above 1 sluice is faster. The
time of a call is that of the slowest rank. Ranks beyond the cores share them; Open MPI is told so (--oversubscribe)
and then gives its core away while it waits; else it binds each rank to a core.

usage: mpi_pair.py [--sluice build/sluice] [--ranks 2 4] [--pairs 5] [--json FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from torch_pair import describe_machine, read_busy_seconds, read_commit

HERE = os.path.dirname(os.path.abspath(__file__))
MIB, ROUNDS, OTHERS_LIMIT = 1 << 20, 7, 0.03
SIZES = (16 * MIB, 64 * MIB)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sluice", default=os.path.join(HERE, "../build/sluice"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="(2 4)")
    parser.add_argument("--pairs", type=int, default=5, help="(5)")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--mpicc", default="mpicc")
    parser.add_argument("--json", metavar="FILE", help="everything measured")
    return parser.parse_args()


def run(command):
    """What the command prints, and the share of the processors that others took meanwhile."""
    busy, before = -read_busy_seconds(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    after = os.times()
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    own = after.children_user + after.children_system - before.children_user - before.children_system
    share = (busy + read_busy_seconds() - own) / (after.elapsed - before.elapsed) / os.cpu_count()
    return done.stdout, max(0.0, share)


def time_sluice(options, ranks):
    text, share = run([options.sluice, "launch", "-n", str(ranks), "--", "bench", "--only", "comm", "--json",
                       "--quiet"])
    rows = {row["name"]: row["seconds"] for row in json.loads(text)["rows"] if row["type"] == "fp32"}
    return {size: rows[f"all_reduce of {ranks} ranks, {size // MIB} MiB"] for size in SIZES}, share


def time_mpi(options, ranks, program, is_open_mpi):
    crowded = is_open_mpi and ranks > len(os.sched_getaffinity(0))
    words = ["--oversubscribe", "--bind-to", "none"] if crowded else []
    text, share = run([options.mpirun, *words, "-n", str(ranks), program, str(ROUNDS), *map(str, SIZES)])
    lines = [line.split() for line in text.splitlines()]
    return {size: statistics.median(float(seconds) for bytes_, seconds in lines if int(bytes_) == size)
            for size in SIZES}, share


def measure_pair(index, sides):
    """Each side's seconds by size; every other pair begins with the other side."""
    pair = {}
    for name in reversed(sides) if index % 2 else sides:
        seconds, share = sides[name]()
        pair[name] = {"seconds": seconds, "others_share": share}
    return pair


def print_size(ranks, size, pairs):
    ratios = [pair["mpi"]["seconds"][size] / pair["sluice"]["seconds"][size] for pair in pairs]
    marks = ["°" if max(side["others_share"] for side in pair.values()) > OTHERS_LIMIT else "" for pair in pairs]
    ours, theirs = (1e3 * statistics.median(pair[side]["seconds"][size] for pair in pairs)
                    for side in ("sluice", "mpi"))
    print(f"{ranks} ranks, {size // MIB:2} MiB: sluice {ours:7.2f} ms, MPI {theirs:7.2f} ms, ratio "
          f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}{m}' for r, m in zip(ratios, marks))})", flush=True)


def main():
    options = parse()
    version = run([options.mpirun, "--version"])[0].splitlines()[0]
    said = {"mpi": version, "rounds": ROUNDS, "commit": read_commit(), **describe_machine(), "ranks": {}}
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, "mpi_pair")
        run([options.mpicc, "-O2", "-o", program, os.path.join(HERE, "mpi_pair.c")])
        print(f"{version}; ° others took more than {OTHERS_LIMIT:.0%} of the processors")
        for ranks in options.ranks:
            sides = {"sluice": lambda: time_sluice(options, ranks),
                     "mpi": lambda: time_mpi(options, ranks, program, "Open MPI" in version)}
            pairs = [measure_pair(index, sides) for index in range(options.pairs)]
            for size in SIZES:
                print_size(ranks, size, pairs)
            said["ranks"][ranks] = pairs
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(said, file, indent=1)


if __name__ == "__main__":
    main()
