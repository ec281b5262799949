#!/usr/bin/env python3
"""`sluice bench` beside programs of others: its disk rows beside fio, its rows named after STREAM beside
stream_like.c, which is compiled with the system's compiler. Each round measures one after the other, the order
changing, so that a machine that changes its speed does so under both; reported are the medians of the ratios of
neighbours, and how far single ratios lie apart. fio runs on a file of the same directory, as large as the store of
the bench, written before with random bytes; same block (1 MiB), depth (32) and engine (io_uring, registered, direct).
The bench's roof of the disk, plain calls from ordinary pages, stands beside fio with ordinary pages; its store, which
has huge ones and checksums, beside fio with huge pages where some are set aside.

usage: bench_pair.py --disk-dir DIR [--sluice build/sluice] [--rounds 7] [--json FILE]
"""
import argparse
import glob
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
READ, WRITE = "read 1 MiB, the depth of a lane", "write 1 MiB, the depth of a lane"
DISK = {"read": (READ, "roof"), "write": (WRITE, "roof"), "store read": (READ, "median"),
        "store write": (WRITE, "median")}
MEMORY = {"scale": ("scale, as STREAM counts", "median"), "triad": ("triad, as STREAM counts", "median")}
WITHIN = {**dict.fromkeys(DISK, 0.10), **dict.fromkeys(MEMORY, 0.05)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--disk-dir", required=True)
    parser.add_argument("--mib", type=int, default=1024, help="of fio's file (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="everything measured")
    return parser.parse_args()


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def bench(options, figure, names):
    with tempfile.TemporaryDirectory() as scratch:
        said = json.loads(run([options.sluice, "bench", "--only", figure, "--json", "--quiet", "--threads",
                               str(options.threads), "--disk-dir", options.disk_dir, "--output",
                               os.path.join(scratch, "profile")]))
    rows = {row["name"]: row for row in said["rows"]}
    return {key: rows[name][rate] for key, (name, rate) in names.items()}, said


def find_huge_pages():
    """fio's memory of pages as large as the store's, where some are set aside (sysctl vm.nr_hugepages=32)."""
    with open("/proc/meminfo", encoding="ascii") as file:
        words = dict(line.split(":") for line in file)
    free = int(words["HugePages_Free"]) * int(words["Hugepagesize"].split()[0]) * 1024
    return ["--mem=shmhuge"] if free >= 40 * MIB else []


def fio(options, path):
    rates = {}
    for key in DISK:
        kind = key.split()[-1]
        text = run(["fio", "--output-format=json", f"--name={kind}", f"--rw={kind}", f"--filename={path}",
                    "--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1", "--direct=1", "--bs=1M",
                    "--iodepth=32", "--overwrite=1", "--thread", f"--size={options.mib * MIB}",
                    *(find_huge_pages() if "store" in key else [])])
        rates[key] = json.loads(text[text.index("{"):])["jobs"][0][kind]["bw_bytes"]
    return rates


def find_array_mib():
    """Three arrays that together are four times the caches, as STREAM's rules ask."""
    sizes = [64]
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with open(path, encoding="ascii") as file:
            sizes.append(4 * int(file.read().strip().rstrip("K")) // 1024 // 3)
    return max(sizes)


def stream(options, program):
    said = json.loads(run([program, str(find_array_mib()), "9"], env={**os.environ, "OMP_NUM_THREADS": str(options.threads),
                                                     "OMP_PROC_BIND": "true"}))
    return {key: said[key] for key in MEMORY}


def fill(path, mib):
    with open(path, "wb") as file:
        for _ in range(0, mib, 16):
            file.write(os.urandom(16 * MIB))
        file.flush()
        os.fsync(file.fileno())


def alternate(options, figure, names, other):
    rounds, said = [], {}
    for index in range(options.rounds):
        pair = {"load": os.getloadavg()[0]}
        for who in ("sluice", "other") if index % 2 == 0 else ("other", "sluice"):
            if who == "sluice":
                pair[who], said = bench(options, figure, names)
            else:
                pair[who] = other()
        rounds.append(pair)
    return rounds, said


def report(rounds, names, who):
    found = {}
    for key in names:
        ratios = [pair["sluice"][key] / pair["other"][key] for pair in rounds]
        middle = statistics.median(ratios)
        found[key] = {"ratio": middle, "least": min(ratios), "largest": max(ratios),
                      "sluice": statistics.median(pair["sluice"][key] for pair in rounds),
                      "other": statistics.median(pair["other"][key] for pair in rounds),
                      "holds": abs(middle - 1) <= WITHIN[key]}
        print(f"{key:11} sluice {found[key]['sluice'] * 1e-9:7.2f} GB/s, {who} {found[key]['other'] * 1e-9:7.2f} GB/s, "
              f"ratio {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}), within {WITHIN[key]:.0%}: "
              f"{'yes' if found[key]['holds'] else 'no'}", flush=True)
    return found


def main():
    options = parse()
    os.makedirs(options.disk_dir, mode=0o700, exist_ok=True)
    path = os.path.join(options.disk_dir, f"bench-pair-{os.getpid()}")
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, "stream_like")
        run(["cc", "-O3", "-fopenmp", os.path.join(os.path.dirname(os.path.abspath(__file__)), "stream_like.c"),
             "-o", program])
        memory, said = alternate(options, "memory", MEMORY, lambda: stream(options, program))
    try:
        fill(path, options.mib)
        disk, _ = alternate(options, "disk", DISK, lambda: fio(options, path))
    finally:
        if os.path.exists(path):
            os.remove(path)
    found = {**report(memory, MEMORY, "STREAM-like"), **report(disk, DISK, "fio")}
    print(f"load {min(p['load'] for p in memory + disk):.1f} to {max(p['load'] for p in memory + disk):.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cpu": said["cpu"],
                       "version": said["version"], "kernel": platform.release(), "cores": os.cpu_count(),
                       "fio": run(["fio", "--version"]).strip(), "fio_memory": find_huge_pages(),
                       "array_mib": find_array_mib(), "rounds": options.rounds, "found": found,
                       "memory": memory, "disk": disk}, file, indent=1)


if __name__ == "__main__":
    main()
