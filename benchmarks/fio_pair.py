#!/usr/bin/env python3
"""The disk store beside fio: same directory, block size (1 MiB), depth and number of threads (one a
lane), both through io_uring with registered buffers, direct, on space that was written before. They
run in turn, so a disk that changes its speed does so under both. Reported per case: the medians, and
the median of the ratios of neighbours. The engine's memory has huge pages and fio's small ones, of which
a transfer of 1 MiB may be more pieces than the drive takes at once; --pages small gives the store such too.

usage: fio_pair.py --bench build/store_bench --directory DIR [--json FILE]
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bench", required=True, help="the store_bench program")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--mib", type=int, default=2048, help="size of the space (%(default)s)")
    parser.add_argument("--call-mib", type=int, default=128, help="one call (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depths", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--modes", nargs="+", default=["read", "write", "mixed"])
    parser.add_argument("--transport", choices=["uring", "threads"], default="uring")
    parser.add_argument("--pages", choices=["huge", "small"], default="huge",
                        help="of the store's memory (%(default)s)")
    parser.add_argument("--json", help="everything measured")
    return parser.parse_args()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def fio(options, path, mode, depth, seconds):
    """Bytes a second of reads and of writes."""
    half = options.mib // 2 * MIB
    command = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--bs=1M",
               f"--filename={path}", f"--iodepth={depth}", "--fixedbufs=1", "--registerfiles=1",
               "--time_based", f"--runtime={seconds}", "--overwrite=1", "--refill_buffers=0",
               f"--size={half}", "--randrepeat=0", "--group_reporting=0"]
    for kind, offset in (("read", half), ("write", 0)):
        if mode in (kind, "mixed"):
            command += [f"--name={kind}", f"--rw={kind}", f"--offset={offset}"]
    text = run(command)
    jobs = json.loads(text[text.index("{"):])["jobs"]
    return {kind: sum(job[kind]["bw_bytes"] for job in jobs) for kind in ("read", "write")}


def store(options, mode, depth):
    text = run([options.bench, options.directory, mode, str(depth), str(options.mib),
                str(options.call_mib), str(options.seconds), options.transport, options.pages])
    said = json.loads(text)
    said["read"], said["write"] = said["read_bytes_per_s"], said["write_bytes_per_s"]
    return said


def fill(path, mib):
    """fio's file, written once with random bytes."""
    block = os.urandom(16 * MIB)
    with open(path, "wb") as file:
        for _ in range(0, mib, 16):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def total(rates):
    return rates["read"] + rates["write"]


def measure(options, path, mode, depth):
    pairs = []
    for i in range(options.rounds):
        runs = {}
        for who in ("store", "fio") if i % 2 == 0 else ("fio", "store"):
            runs[who] = (store(options, mode, depth) if who == "store"
                         else fio(options, path, mode, depth, options.seconds))
        pairs.append(runs)
    ratios = [total(p["store"]) / total(p["fio"]) for p in pairs]
    case = {
        "mode": mode, "depth": depth, "pairs": pairs, "ratio": statistics.median(ratios),
        "store_bytes_per_s": statistics.median(total(p["store"]) for p in pairs),
        "fio_bytes_per_s": statistics.median(total(p["fio"]) for p in pairs)}
    print(f"{mode:6} depth {depth:3}: store {case['store_bytes_per_s'] * 1e-9:6.2f} GB/s, "
          f"fio {case['fio_bytes_per_s'] * 1e-9:6.2f} GB/s, ratio {case['ratio']:.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    return case


def main():
    options = parse()
    path = os.path.join(options.directory, f"fio-pair-{os.getpid()}")
    try:
        fill(path, options.mib)
        cases = [measure(options, path, mode, depth)
                 for mode in options.modes for depth in options.depths]
    finally:
        if os.path.exists(path):
            os.remove(path)
    last = cases[-1]["pairs"][-1]["store"]
    checksum = last["checksum_bytes_per_s"]
    print(f"checksum {checksum * 1e-9:.1f} GB/s on one thread; {last['description']}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "machine": platform.platform(),
                       "fio": run(["fio", "--version"]).strip(), "cases": cases}, file, indent=1)


if __name__ == "__main__":
    main()
