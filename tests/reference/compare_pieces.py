#!/usr/bin/env python3
"""Goes on from checkpoints of other programs, and compares the losses with what these went on with.

usage: compare_pieces.py --sluice PROGRAM [--python PYTHON] [--keep DIRECTORY]

For each layout of write_pieces.py: its library trains a tiny model for 2 steps of AdamW on the CPU, saves it, and
goes on for 3 steps. `sluice convert --format checkpoint` makes a checkpoint of that, whose tensors are compared
with the library's bit for bit, and `sluice train --resume` goes on from it. The first loss depends on the
weights, the later ones on the moments and the step too. `train --init` goes on from the weights alone: its
first loss is the same, its second one is not. Bound: 1e-6 of a loss; of the third, whose weights both sides
have updated twice, 1e-5.

--python names an interpreter that has megatron-core and deepspeed too; layouts whose library is not there are
left out, which is said. --keep keeps the checkpoints in a directory, and uses those that are there. Leaves
with 77 without torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LAYOUTS = ["fsdp-nested", "fsdp-flat", "fsdp-grid", "fsdp-accelerate", "core-own", "core-parallel", "core-stacked",
           "zero1", "zero2", "zero3"]
LIBRARIES = {"fsdp": "transformers", "core": "megatron.core", "zero": "deepspeed"}
LIMITS = (1e-6, 1e-6, 1e-5)
SEQ, BATCH, BEFORE = 16, 4, 2


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stderr}")


def train(program, directory, start, clip, log):
    run([program, "train", "--device", "cpu", "--precision", "fp32", "--data",
         os.path.join(directory, "tokens.bin"), "--data-order", "sequential", "--seq", str(SEQ), "--micro-batch",
         str(BATCH), "--accumulate", "1", "--lr", "0.01", "--lr-schedule", "constant", "--warmup", "0", "--beta2",
         "0.999", "--weight-decay", "0", "--clip", clip, "--log-json", log, "--quiet"] + start)
    with open(log, encoding="utf-8") as file:
        return np.array([record["loss"] for record in map(json.loads, file) if record["event"] == "step"])


def compare_tensors(directory, checkpoint):
    expected = load_file(os.path.join(directory, "expected.safetensors"))
    count = 0
    for file, ending in (("model", ""), ("moment1", ".exp_avg"), ("moment2", ".exp_avg_sq")):
        for name, values in load_file(os.path.join(checkpoint, f"{file}.safetensors")).items():
            theirs = expected[name.removeprefix("transformer.") + ending][:len(values)]
            if not np.array_equal(values, theirs):
                sys.exit(f"{checkpoint}: {name} of {file} differs")
            count += values.size
    return count


def compare(program, layout, directory, scratch):
    source = os.path.join(directory, "universal") if layout.startswith("zero") else directory
    made = os.path.join(scratch, layout)
    run([program, "convert", "--from", source, "--to", made, "--format", "checkpoint", "--heads", "2"]
        if layout.startswith("core") else
        [program, "convert", "--from", source, "--to", made, "--format", "checkpoint"])
    count = compare_tensors(directory, os.path.join(made, f"step-{BEFORE:08d}"))
    with open(os.path.join(directory, "losses.json"), encoding="utf-8") as file:
        theirs = np.array(json.load(file))
    clip = "1" if layout.startswith("zero") else "0"
    ours = train(program, directory, ["--resume", "--save", made, "--steps", str(BEFORE + len(theirs))], clip,
                 os.path.join(scratch, layout + ".log"))
    heads = ["--heads", "2"] if layout.startswith("core") else []
    weights = train(program, directory, ["--init", source, "--steps", "2"] + heads, clip,
                    os.path.join(scratch, layout + ".init"))
    errors = np.abs(ours / theirs - 1)
    print(f"{layout:16} {count} elements are the same; losses {theirs[0]:.4f} to {theirs[-1]:.4f} off by "
          f"{', '.join(f'{error:.1e}' for error in errors)}; from the weights alone by "
          f"{', '.join(f'{error:.1e}' for error in np.abs(weights / theirs[:2] - 1))}", flush=True)
    if len(ours) != len(theirs) or (errors > LIMITS[:len(errors)]).any():
        sys.exit("beyond the bound")
    if abs(weights[0] / theirs[0] - 1) > LIMITS[0] or abs(weights[1] / theirs[1] - 1) < 1e-4:
        sys.exit("--init is not the weights alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--keep")
    given = parser.parse_args()
    writer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "write_pieces.py")
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for layout in LAYOUTS:
            directory = os.path.join(given.keep or scratch, "of-" + layout)
            library = LIBRARIES[layout[:4]]
            has_library = subprocess.run([given.python, "-c", f"import torch, {library}"],
                                         capture_output=True).returncode == 0
            if not os.path.isdir(directory) and not has_library:
                print(f"{layout:16} left out: no {library}")
                continue
            if not os.path.isdir(directory):
                run([given.python, writer, layout, directory])
            compare(os.path.abspath(given.sluice), layout, os.path.abspath(directory), scratch)
            count += 1
    if count == 0:
        sys.exit(77)


if __name__ == "__main__":
    main()
