#!/usr/bin/env python3
"""Event files of --tensorboard, read by TensorBoard's own reader.

A run is saved, goes back to an older checkpoint and goes on. TensorBoard has to show each step once,
with the values that the JSON log has of it last; evaluations; what each tag means; and of a run anew
in the same directory nothing of the one before.

usage: compare_tensorboard.py --sluice PATH
"""
import argparse
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
MODEL = ("--layers 2 --width 32 --heads 2 --context 32 --micro-batch 2 --data text --quiet "
         "--lr-schedule constant --eval-data text --eval-every 2 --eval-iters 1").split()
PAIRS = {"train/loss": "loss", "train/lr": "lr", "train/grad_norm": "grad_norm",
         "train/loss_scale": "loss_scale", "speed/tokens_per_s": "tokens_per_s",
         "time/step_ms": "step_ms", "time/forward_ms": "forward_ms",
         "time/backward_ms": "backward_ms", "time/update_ms": "update_ms",
         "memory/device_bytes": "device_bytes", "stall/host_ms": ("stall_ms", "host")}

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    print(f"skipped: {sys.executable} has no tensorboard ({error})")
    sys.exit(SKIPPED)


def read_board(directory):
    """Scalars by tag, as (step, value) in the order of TensorBoard."""
    reader = event_accumulator.EventAccumulator(
        directory, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    tags = reader.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}, reader


def read_log(path, kind):
    """The last record of each step."""
    with open(path, encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return {event["step"]: event for event in events if event["event"] == kind}


def to_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def find_value(event, name):
    for key in name if isinstance(name, tuple) else (name,):
        event = event[key]
    return event


def compare(board, log, steps):
    """Complains about what differs."""
    for tag, name in PAIRS.items():
        shown = board[tag]
        assert [step for step, _ in shown] == steps, f"{tag}: steps {shown}"
        for step, value in shown:
            wanted = find_value(log[step], name)
            # times are logged with six digits
            assert math.isclose(value, to_float32(wanted), rel_tol=1e-5, abs_tol=1e-9), \
                f"{tag} of step {step}: {value}, logged {wanted}"


def check_run(sluice):
    def train(*options):
        subprocess.run([sluice, "train", *options], check=True)
    train(*MODEL, *"--steps 6 --save saved --save-every 2 --tensorboard board --log-json log".split())
    shutil.rmtree("saved/step-00000006")
    train(*"--resume --save saved --steps 8 --quiet".split())
    board, reader = read_board("board")
    compare(board, read_log("log", "step"), list(range(1, 9)))
    evaluations = read_log("log", "eval")
    for name in ("loss", "perplexity"):
        shown = board[f"eval/{name}"]
        assert [step for step, _ in shown] == [2, 4, 6, 8], shown
        for step, value in shown:
            assert math.isclose(value, to_float32(evaluations[step][name]), rel_tol=1e-6)
    assert "train/epoch" not in board or not any(math.isnan(v) for _, v in board["train/epoch"])
    assert reader.SummaryMetadata("train/loss").summary_description.startswith("mean over")
    print(f"{len(board)} tags over steps 1 to 8, of two files; each step once, as logged last")
    train(*MODEL, *"--steps 3 --tensorboard board --log-json log".split())
    board, _ = read_board("board")
    compare(board, read_log("log", "step"), [1, 2, 3])
    print("a run anew in the same directory: steps 1 to 3, its own")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sluice", required=True)
    options = parser.parse_args()
    sluice = os.path.abspath(options.sluice)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        with open("text", "w", encoding="utf-8") as file:
            file.write("the lock of a gate rises and falls\n" * 300)
        check_run(sluice)
        os.chdir("/")


if __name__ == "__main__":
    main()
