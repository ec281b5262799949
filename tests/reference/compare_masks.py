#!/usr/bin/env python3
"""Compares a training with `--documents reset` and `--dropout` with PyTorch in float64, which has the
same masks.

usage: compare_masks.py --sluice PROGRAM [--show N]

The command trains two steps at learning rate 0 of two micro-batches of two rows, from random weights
and a file of tokens, with documents of 1 to 60 tokens, in fp32. At beta1 = 1/2 the first moment in the
checkpoint is then g1 / 4 + g2 / 2 of the gradients of both steps, exactly but for its own roundings:
so data, numbers of rows and steps, kernels and accumulation are all compared, as a user has them.

The masks are made here from their definition alone: of documents a dense mask from where a document
starts; of dropout Philox4x32-10 by counter, in numpy, whose known words are checked first (those of
Random123's known answers). Errors are relative to the norm of a tensor's gradient and to the loss; the
bound is 1e-5. What PyTorch's own float32 is off by is printed beside, and what a model with another mask
would be off by, which has to be beyond the bound for every tensor. Leaves with 77 without torch.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import gpt2
import tensor_file

LIMIT = 1e-5
STEPS, ACCUMULATE, BATCH, SEED = 2, 2, 2, 77
SHAPES = {"odd": gpt2.SHAPES["small"],
          "tiles": gpt2.Shape(layers=2, heads=4, width=128, context=200, vocab=300)}
CASES = [("reset", True, 0.0), ("dropout 0.1", False, 0.1), ("reset, dropout 0.25", True, 0.25)]
DROP_BIT, SITE_SHIFT, SITES_OF_LAYER = 63, 40, 3


# ---- dropout's masks, from their definition ----

def philox(seed, stream, index):
    """Words [..., 4] of Philox4x32-10 at counter (index, stream) under key `seed`; arrays of uint64."""
    low = np.uint64(0xFFFFFFFF)
    shape = np.broadcast(stream, index).shape
    stream, index = (np.broadcast_to(np.asarray(x, np.uint64), shape) for x in (stream, index))
    counter = [index & low, index >> np.uint64(32), stream & low, stream >> np.uint64(32)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        first, second = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [(second >> np.uint64(32)) ^ counter[1] ^ key[0], second & low,
                   (first >> np.uint64(32)) ^ counter[3] ^ key[1], first & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(counter, axis=-1)


def check_philox():
    """Known answers of Random123 for philox4x32 of ten rounds: zeros, and digits of pi."""
    zeros = philox(0, np.uint64(0), np.uint64(0))
    digits = philox(0x299F31D0A4093822, np.uint64(0x0370734413198A2E), np.uint64(0x85A308D3243F6A88))
    known = [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
             [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]]
    if zeros.tolist() != known[0] or digits.tolist() != known[1]:
        sys.exit("Philox here is not Philox4x32-10")


class Dropout:
    """Factors of the elements of one row of the run, by site."""

    def __init__(self, probability, row):
        self.row = row
        single = np.float32(probability)
        self.threshold = int(float(single) * 2.0 ** 32)
        self.scale = float(np.float32(1) / (np.float32(1) - single))

    def factors(self, site, index, word):
        stream = np.uint64((1 << DROP_BIT) | (site << SITE_SHIFT) | self.row)
        words = philox(SEED, stream, index)
        drawn = np.take_along_axis(words, word[..., None].astype(np.int64), -1)[..., 0]
        return torch.tensor(np.where(drawn < self.threshold, 0.0, self.scale))

    def elements(self, site, rows, columns):
        """[rows, columns]: four elements that follow each other share a draw."""
        at = np.arange(rows * columns, dtype=np.uint64).reshape(rows, columns)
        return self.factors(site, at // np.uint64(4), at % np.uint64(4))

    def weights(self, site, heads, seq):
        """[heads, query, key]: queries and keys that differ in bit 3 share a draw."""
        head, query, key = np.meshgrid(np.arange(heads), np.arange(seq), np.arange(seq), indexing="ij")
        index = (head << 52) | ((query & ~8) << 32) | (key & ~8)
        word = ((query >> 3) & 1) * 2 + ((key >> 3) & 1)
        return self.factors(site, index.astype(np.uint64), word)


# ---- GPT-2 with masks ----

def positions_of(tokens, end, is_reset):
    """[B, T]: of each token in its document; a document that began before the row begins with it."""
    positions = np.tile(np.arange(tokens.shape[1]), (tokens.shape[0], 1))
    for row in range(tokens.shape[0] if is_reset else 0):
        start = 0
        for t in range(tokens.shape[1]):
            positions[row, t] = t - start
            if tokens[row, t] == end:
                start = t + 1
    return positions


class Masks:
    """What [B, T] tokens of rows first_row, first_row + 1, ... of the run are masked by, in `dtype`."""

    def __init__(self, case, shape, tokens, first_row, dtype):
        _, is_reset, probability = case
        batch, seq = tokens.shape
        self.positions = torch.tensor(positions_of(tokens, shape.vocab - 1, is_reset))
        query = torch.arange(seq)[None, :, None]
        key = torch.arange(seq)[None, None, :]
        starts = (torch.arange(seq)[None] - self.positions)[:, :, None]
        self.unseen = ((key > query) | (key < starts))[:, None]
        self.rows = [Dropout(probability, first_row + b) for b in range(batch)] if probability else []
        self.dtype = dtype

    def drop(self, x, site):
        if not self.rows:
            return x
        return x * torch.stack([r.elements(site, *x.shape[1:]) for r in self.rows]).to(self.dtype)

    def drop_weights(self, weights, site):
        if not self.rows:
            return weights
        _, heads, seq, _ = weights.shape
        return weights * torch.stack([r.weights(site, heads, seq) for r in self.rows]).to(self.dtype)


def norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def attend(x, p, name, heads, masks, site):
    batch, seq, width = x.shape
    query, key, value = (part.view(batch, seq, heads, width // heads).transpose(1, 2)
                         for part in linear(x, p, name + ".c_attn").split(width, dim=2))
    scores = query @ key.transpose(2, 3) / math.sqrt(width // heads)
    weights = torch.softmax(scores.masked_fill(masks.unseen, -math.inf), dim=-1)
    y = masks.drop_weights(weights, site) @ value
    return linear(y.transpose(1, 2).reshape(batch, seq, width), p, name + ".c_proj")


def loss_of(p, shape, rows, masks):
    tokens = torch.tensor(rows[:, :-1])
    x = masks.drop(p["wte.weight"][tokens] + p["wpe.weight"][masks.positions], 0)
    for layer in range(shape.layers):
        block, site = f"h.{layer}.", SITES_OF_LAYER * layer
        y = attend(norm(x, p, block + "ln_1"), p, block + "attn", shape.heads, masks, site + 1)
        x = x + masks.drop(y, site + 2)
        inner = F.gelu(linear(norm(x, p, block + "ln_2"), p, block + "mlp.c_fc"), approximate="tanh")
        x = x + masks.drop(linear(inner, p, block + "mlp.c_proj"), site + 3)
    logits = norm(x, p, "ln_f") @ p["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), torch.tensor(rows[:, 1:]).flatten())


def run_torch(case, shape, weights, rows, dtype):
    """rows [steps, A, B, T + 1] -> (losses, {name: g1 / 4 + g2 / 2})."""
    p, losses, moments = gpt2.parameters(weights, dtype), [], {}
    for step in range(STEPS):
        loss = 0.0
        for a in range(ACCUMULATE):
            first_row = (step * ACCUMULATE + a) * BATCH
            masks = Masks(case, shape, rows[step, a][:, :-1], first_row, dtype)
            part = loss_of(p, shape, rows[step, a], masks) / ACCUMULATE
            part.backward()
            loss += part.item()
        losses.append(loss)
        for name, tensor in p.items():
            moments[name] = 0.5 * moments.get(name, 0) + 0.5 * tensor.grad.numpy()
            tensor.grad = None
    return np.array(losses), moments


# ---- the command ----

def draw_tokens(shape, seq):
    """A run of documents that fills the rows of both steps, each ended by the last id."""
    random, tokens = np.random.default_rng(11), []
    count = STEPS * ACCUMULATE * BATCH * seq + 1
    while len(tokens) < count:
        tokens += random.integers(0, shape.vocab - 1, random.integers(1, 61)).tolist()
        tokens.append(shape.vocab - 1)
    return np.array(tokens[:count], dtype=np.uint16)


def cut_rows(tokens, seq):
    rows = [tokens[g * seq:(g + 1) * seq + 1] for g in range(STEPS * ACCUMULATE * BATCH)]
    return np.array(rows, dtype=np.int64).reshape(STEPS, ACCUMULATE, BATCH, seq + 1)


def run_sluice(options, case, shape, seq):
    name, is_reset, probability = case
    done = subprocess.run(
        [options.sluice, "train", "--device", "cpu", "--precision", "fp32", "--init", "model", "--data",
         "tokens.bin", "--data-order", "sequential", "--end-of-text", str(shape.vocab - 1),
         "--documents", "reset" if is_reset else "join", "--dropout", str(probability), "--seed",
         str(SEED), "--seq", str(seq), "--micro-batch", str(BATCH), "--accumulate", str(ACCUMULATE),
         "--steps", str(STEPS), "--lr", "0", "--clip", "0", "--beta1", "0.5", "--save", "checkpoints",
         "--overwrite", "--log-json", "log", "--quiet"], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{name}: sluice train: {done.returncode}: {done.stderr.decode()}")
    with open("log", encoding="utf-8") as log:
        losses = [record["loss"] for record in map(json.loads, log) if record["event"] == "step"]
    os.remove("log")
    moments = tensor_file.read(f"checkpoints/step-{STEPS:08d}/moment1.safetensors")
    return np.array(losses), {key.removeprefix(gpt2.PREFIX): np.array(value)
                              for key, value in moments.items()}


def compare(options, case, name, shape, seq, weights, rows):
    losses, moments = run_sluice(options, case, shape, seq)
    true_losses, true = run_torch(case, shape, weights, rows, torch.float64)
    _, single = run_torch(case, shape, weights, rows, torch.float32)
    _, other = run_torch(("no mask", False, 0.0), shape, weights, rows, torch.float64)
    errors = {key: (gpt2.relative_error(key, moments[key], true[key]),
                    gpt2.relative_error(key, single[key], true[key]),
                    gpt2.relative_error(key, other[key], true[key])) for key in true}
    loss_error = float(np.max(np.abs(losses / true_losses - 1)))
    ours, theirs, unmasked = (np.array(column) for column in zip(*errors.values()))
    print(f"{name}, {case[0]}: loss off by {loss_error:.1e}; {len(errors)} gradients by {ours.max():.1e} "
          f"at most (PyTorch's float32: {theirs.max():.1e}; without the mask {unmasked.min():.1e} at least)")
    for key in sorted(errors, key=lambda key: -errors[key][0])[:options.show]:
        print(f"  {key:24s} {errors[key][0]:9.2e} {errors[key][1]:9.2e}")
    if not (len(losses) == STEPS and loss_error <= LIMIT and ours.max() <= LIMIT):
        sys.exit(f"{name}, {case[0]}: beyond {LIMIT}")
    if not unmasked.min() > 100 * LIMIT:
        sys.exit(f"{name}, {case[0]}: a tensor hardly depends on the mask: this shows nothing")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--show", type=int, default=0, metavar="N", help="worst gradients (0)")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    check_philox()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name, shape in SHAPES.items():
            seq = shape.context - 2
            tokens = draw_tokens(shape, seq)
            tokens.tofile("tokens.bin")
            weights = gpt2.draw_lively(shape, seed=5)
            gpt2.write_directory("model", shape, weights)
            for case in CASES:
                compare(options, case, name, shape, seq, weights, cut_rows(tokens, seq))


if __name__ == "__main__":
    main()
