#!/usr/bin/env python3
"""Compares sluice's loss, logits and gradients of GPT-2 124M with PyTorch's in float64.

  compare_gpt2.py [--precision fp32|bf16|fp16] [--tool build/tests/dump_gradients]
                  [--batch 2 --seq 128] [--directory DIR]

Makes a model directory with random initial weights and random tokens (in --directory, else in a
temporary one), lets the tool compute one step, and prints the tensors that are farthest off beside
PyTorch's own run in that precision (all of the model in it, as ours). Errors are relative to the
norm of a tensor's gradient, to the loss, and to the largest logit, all against float64 from the same
weights, which are rounded to the precision first. Exit 1 beyond the bound, or twice PyTorch's own
error where that is more; exit 77 without torch. Takes about 6 GiB of memory.

The bound. fp32: 1e-5. Half precision: what is stored is rounded to nearest, off by u = 2^-9 (bf16)
or 2^-12 (fp16) of itself at most and independently. From the embedding to the loss and back a value
passes R = 2 * (9 * layers + 4) such roundings: per block two norms, qkv, attention, its projection
with the residual sum, c_fc, GELU, and c_proj with the residual sum, 8 in all, and one more for the
sums of the two ways on the way back; outside of blocks the embedding, ln_f, logits and their
gradient. Each adds its own relative error, and independent ones add in squares: u * sqrt(R). A
gradient is the product of a value from the way there and one from the way back, both inside that
count. Weights' gradients are sums in fp32 that are rounded once more.
"""

import argparse
import gc
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import gpt2
import make_reference
import tensor_file

LAYERS = gpt2.SHAPES["gpt2"].layers
ROUNDINGS = 2 * (9 * LAYERS + 4)
LIMITS = {"fp32": 1e-5, "bf16": 2 ** -9 * ROUNDINGS ** 0.5, "fp16": 2 ** -12 * ROUNDINGS ** 0.5}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LOSS_SCALE = {"fp32": 1.0, "bf16": 1.0, "fp16": 4096.0}  # as dump_gradients has it


def run_tool(tool, directory, precision):
    """The tool's file as arrays in memory; the file itself is removed."""
    tokens, out = (os.path.join(directory, name) for name in ("tokens.safetensors", "sluice.tmp"))
    if os.path.exists(out):
        os.remove(out)
    subprocess.run([tool, directory, tokens, out, precision], check=True)
    tensors = {name: np.array(values) for name, values in tensor_file.read(out).items()}
    os.remove(out)
    return tensors


def run_torch(directory, dtype, loss_scale=1.0):
    weights = {name.removeprefix(gpt2.PREFIX): values for name, values in
               tensor_file.read(os.path.join(directory, "model.safetensors")).items()}
    tokens = tensor_file.read(os.path.join(directory, "tokens.safetensors"))["tokens"]
    loss, logits, gradients = gpt2.gradients_of(weights, gpt2.SHAPES["gpt2"], tokens, dtype,
                                                loss_scale)
    gc.collect()
    return loss, logits.reshape(-1, logits.shape[-1]), gradients


def logits_error(computed, true):
    """Row by row, not to make a float64 copy of all."""
    worst = max(np.max(np.abs(row - right)) for row, right in zip(computed, true))
    return float(worst / np.max(np.abs(true)))


def compare(ours, theirs, true):
    """[(name, sluice's error, PyTorch's own error in that precision)]."""
    loss, logits, gradients = true
    rows = [("loss", abs(float(ours["loss"][0]) / loss - 1), abs(theirs[0] / loss - 1)),
            ("logits", logits_error(ours["logits"], logits), logits_error(theirs[1], logits))]
    squares = sum(float(np.sum(np.square(gradient))) for gradient in gradients.values())
    norm32 = sum(float(np.sum(np.square(gradient, dtype=np.float64)))
                 for gradient in theirs[2].values()) ** 0.5
    rows.append(("gradient norm", abs(float(ours["gradient_norm"][0]) / squares ** 0.5 - 1),
                 abs(norm32 / squares ** 0.5 - 1)))
    for name, gradient in gradients.items():
        rows.append((name, gpt2.relative_error(name, ours["gradient." + name], gradient),
                     gpt2.relative_error(name, theirs[2][name], gradient)))
    return rows


def report(rows, options):
    """Prints the sums of a step and the worst tensors; returns the names that break the limit."""
    limit = LIMITS[options.precision]
    print(f"{'':32s} {'sluice':>10s} {'torch ' + options.precision:>10s}   off from float64, "
          f"relative; bound {limit:.1e}")
    ranked = sorted(rows[3:], key=lambda row: -row[1])
    for name, error, torch_error in rows[:3] + ranked[:options.show]:
        print(f"{name:32s} {error:10.2e} {torch_error:10.2e}")
    errors = np.array([row[1:] for row in rows[3:]])
    print(f"{f'median of {len(errors)} gradients':32s} {np.median(errors[:, 0]):10.2e} "
          f"{np.median(errors[:, 1]):10.2e}")
    return [name for name, error, torch_error in rows
            if not error <= max(limit, 2 * torch_error)]


def print_case(directory):
    _, batch, row_tokens = tensor_file.read(
        os.path.join(directory, "tokens.safetensors"))["tokens"].shape
    print(f"GPT-2 124M, {batch} rows of {row_tokens - 1} tokens, torch {torch.__version__}")


def run(options, directory):
    if not os.path.exists(os.path.join(directory, "tokens.safetensors")):
        make_reference.make_gpt2(directory, options.batch, options.seq, TYPES[options.precision])
    print_case(directory)
    ours = run_tool(options.tool, directory, options.precision)
    true = run_torch(directory, torch.float64)
    theirs = run_torch(directory, TYPES[options.precision], LOSS_SCALE[options.precision])
    broken = report(compare(ours, theirs, true), options)
    for name in broken:
        print(f"beyond the limit: {name}", file=sys.stderr)
    return 1 if broken else 0


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=os.path.join(root, "build/tests/dump_gradients"))
    parser.add_argument("--directory", metavar="DIR", 
                        help="keep model and tokens here; used as they are if they are there")
    parser.add_argument("--precision", choices=sorted(TYPES), default="fp32")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--show", type=int, default=8, metavar="N", help="worst gradients (8)")
    options = parser.parse_args()
    if options.directory:
        return run(options, options.directory)
    with tempfile.TemporaryDirectory() as directory:
        return run(options, directory)


if __name__ == "__main__":
    sys.exit(main())
