#!/usr/bin/env python3
"""Starts the run of tiny.json in this folder, or goes on with it, and records what it cost.

usage: run.py SLUICE [ARGUMENT...]    runs SLUICE train --config tiny.json ARGUMENT...

Ctrl-C stops the run as it stops sluice: the step is finished and saved. Each start adds a line to
pieces.jsonl: when it began, seconds, processor seconds, greatest memory of the process, exit code."""

import json
import os
import signal
import subprocess
import sys
import time


def main():
    began = time.time()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job begins with it ignored
    with open("run.log", "ab") as log:
        process = subprocess.Popen(
            [sys.argv[1], "train", "--config", "tiny.json", *sys.argv[2:]], stdout=log, stderr=log
        )
    with open("pid", "w", encoding="utf-8") as file:
        file.write(str(process.pid))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process group's: sluice has it too
    _, status, usage = os.wait4(process.pid, 0)
    os.unlink("pid")
    piece = {
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)),
        "seconds": round(time.time() - began, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_resident_bytes": 1024 * usage.ru_maxrss,
        "exit_code": os.waitstatus_to_exitcode(status),
    }
    with open("pieces.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(piece) + "\n")
    return piece["exit_code"]


if __name__ == "__main__":
    sys.exit(main())
