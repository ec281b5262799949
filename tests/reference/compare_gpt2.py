#!/usr/bin/env python3
"""Compares sluice's loss, logits and gradients of GPT-2 124M with PyTorch's in float64.

  compare_gpt2.py [--precision fp32|bf16|fp16] [--tool build/tests/dump_gradients]
                  [--batch 2 --seq 128] [--directory DIR]
  compare_gpt2.py --frozen --sluice build/sluice

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

--frozen: `sluice train --freeze` in fp32, with clipping and AdamW, beside PyTorch where the same
parameters have requires_grad=False: ten steps of the small model with several patterns, three of GPT-2
124M of which the last three blocks are trained. Losses and norms of each step have the bound 1e-5, or
twice PyTorch's own error; trained weights at the end have WeightBound's of make_reference.py, element by
element; frozen ones are what they were, to the bit. The norm of all gradients has to be beyond the bound of that of the trained.
"""

import argparse
import dataclasses
import fnmatch
import gc
import json
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
BLOCKS = ["wte.*", "wpe.*", "h.[0-8].*", "ln_f.*"]  # all but the last three blocks of twelve


@dataclasses.dataclass(frozen=True)
class FrozenCase:
    """Rows of `seq` tokens, two of a micro-batch. The initial weights of "gpt2" have gradients that are
    rounding alone, of which AdamW makes full steps unless epsilon is of the size of the others."""
    patterns: list
    shape: str = "small"
    steps: int = 10
    accumulate: int = 2
    seq: int = 17
    epsilon: float = make_reference.EPSILON


FROZEN_CASES = [FrozenCase(["wte.*", "wpe.*", "h.[01].*", "ln_f.*"]), FrozenCase(["wte.*,wpe.*"]),
                FrozenCase(["*", "!wte.*"]), FrozenCase(["*", "!*.bias"]),
                FrozenCase(["*", "!h.1.attn.c_attn.weight", "!h.2.ln_2.*"], accumulate=1),
                FrozenCase(BLOCKS, "gpt2", steps=3, accumulate=1, seq=128, epsilon=1e-4)]


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


# ---- frozen tensors ----

def frozen_names(shape, patterns):
    """Of the names of the model; the last pattern that matches decides."""
    frozen = set()
    for pattern in (word for item in patterns for word in item.split(",")):
        matched = set(fnmatch.filter(gpt2.parameter_shapes(shape), pattern.removeprefix("!")))
        frozen = frozen - matched if pattern.startswith("!") else frozen | matched
    return frozen


def train_frozen(options, case):
    """The command's (losses, norms, {name: final weight}) of the files in the present directory."""
    subprocess.run(
        [options.sluice, "train", "--device", "cpu", "--precision", "fp32", "--init",
         "model", "--data", "tokens.bin", "--data-order", "sequential", "--seq", str(case.seq),
         "--micro-batch", "2", "--accumulate", str(case.accumulate), "--steps", str(case.steps), "--lr",
         str(make_reference.RATE), "--lr-schedule", "constant", "--warmup", "0", "--beta1",
         str(make_reference.BETA1), "--beta2", str(make_reference.BETA2), "--eps",
         str(case.epsilon), "--weight-decay", str(make_reference.DECAY), "--clip",
         str(make_reference.CLIP), "--freeze", *case.patterns, "--save", "saved", "--overwrite", "--log-json",
         "log", "--quiet"], check=True)
    with open("log", encoding="utf-8") as log:
        events = [event for event in map(json.loads, log) if event["event"] == "step"]
    os.remove("log")
    final = tensor_file.read(f"saved/step-{case.steps:08d}/model.safetensors")
    return (np.array([event["loss"] for event in events]),
            np.array([event["grad_norm"] for event in events]),
            {name.removeprefix(gpt2.PREFIX): values for name, values in final.items()})


def bound_shares(bounds, final, true):
    """{name: the largest part of its bound that an element of a trained weight uses}."""
    return {name: float(gpt2.without_key_bias(name, np.abs(final[name] - true[name]) / bound.bound).max())
            for name, bound in bounds.items()}


def make_bounds(shape, weights, rows, frozen, epsilon):
    """For the errors of gradients that PyTorch's fp32 has, as make_reference.py has them."""
    gradients = [gpt2.gradients_of(weights, shape, [rows], dtype)[2]
                 for dtype in (torch.float32, torch.float64)]
    errors = {name: 2 * gpt2.relative_error(name, gradients[0][name], gradients[1][name])
              for name in weights}
    return {name: make_reference.WeightBound(max(make_reference.GRADIENT_ERROR, errors[name]),
                                             weights[name], epsilon)
            for name in weights if name not in frozen}


def write_case(case, shape, weights):
    """Makes the model directory and the file of tokens; returns the rows [steps, A, B, T + 1]."""
    count = case.steps * case.accumulate * 2
    stream = make_reference.draw_tokens(shape, count * case.seq + 1, seed=6)
    stream.astype(np.uint16).tofile("tokens.bin")
    gpt2.write_directory("model", shape, weights)
    rows = np.stack([stream[g * case.seq:(g + 1) * case.seq + 1] for g in range(count)])
    return rows.reshape(case.steps, case.accumulate, 2, case.seq + 1)


def compare_frozen(options, case):
    """The lines that break a bound."""
    shape = gpt2.SHAPES[case.shape]
    draw = gpt2.draw_lively if case.shape == "small" else gpt2.draw_initial
    weights, frozen = draw(shape, seed=5), frozen_names(shape, case.patterns)
    rows = write_case(case, shape, weights)
    losses, norms, final = train_frozen(options, case)
    bounds = make_bounds(shape, weights, rows[0, 0], frozen, case.epsilon)
    true = make_reference.train(weights, shape, rows, torch.float64, bounds, frozen, case.epsilon)
    single = make_reference.train(weights, shape, rows, torch.float32, None, frozen, case.epsilon)
    unfrozen = make_reference.train(weights, shape, rows[:1], torch.float64)
    shares, theirs = bound_shares(bounds, final, true[2]), bound_shares(bounds, single[2], true[2])
    worst = max(shares, key=shares.get)
    errors = [(np.max(np.abs(values / right - 1)), np.max(np.abs(others / right - 1)))
              for values, right, others in zip((losses, norms), true, single)]
    print(f"{case.shape}, --freeze {' '.join(case.patterns)}: {len(bounds)} of {len(weights)} tensors "
          f"trained, {case.steps} steps; losses off by {errors[0][0]:.1e} (PyTorch's fp32 "
          f"{errors[0][1]:.1e}), norms by {errors[1][0]:.1e} ({errors[1][1]:.1e}); weights use "
          f"{shares[worst]:.2f} of their bounds ({worst}; PyTorch's fp32 {max(theirs.values()):.2f})",
          flush=True)
    broken = [f"{what} off by {error:.1e}" for what, (error, other) in zip(("losses", "norms"), errors)
              if not error <= max(LIMITS["fp32"], 2 * other)]
    broken += [f"{key} at {share:.2f} of its bound" for key, share in shares.items() if not share <= 1]
    broken += [f"{key} changed" for key in frozen if final[key].tobytes() != weights[key].tobytes()]
    if not abs(unfrozen[1][0] / true[1][0] - 1) > 100 * LIMITS["fp32"]:
        broken.append("the norm of all gradients is the same: this shows nothing")
    return broken


def run_frozen(options):
    print(f"torch {torch.__version__}")
    broken = []
    options.sluice = os.path.abspath(options.sluice)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for case in FROZEN_CASES:
            broken += compare_frozen(options, case)
            gc.collect()
        os.chdir("/")
    for line in broken:
        print(f"beyond the limit: {line}", file=sys.stderr)
    return 1 if broken else 0


# ---- a step with all tensors ----

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
    parser.add_argument("--frozen", action="store_true", help="compare runs with frozen tensors")
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"))
    options = parser.parse_args()
    if options.frozen:
        return run_frozen(options)
    if options.directory:
        return run(options, options.directory)
    with tempfile.TemporaryDirectory() as directory:
        return run(options, directory)


if __name__ == "__main__":
    sys.exit(main())
