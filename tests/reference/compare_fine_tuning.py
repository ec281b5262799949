#!/usr/bin/env python3
"""Compares 50 steps of fine-tuning by the command with PyTorch's, loss by loss.

usage: compare_fine_tuning.py --sluice PROGRAM [--large] [--float32-norm | --double]

A GPT-2 of 4 layers, or with --large of 124M's shape, in fp32 learns prompts and responses by bytes: in rows
that whole examples share, kept apart, and in rows of one example each, with padding. AdamW, clipping, two
micro-batches a step with unequal numbers of tokens that count. The rows are made here from their definition
alone, and attention has a dense mask from where an example starts. Both sides train in float32, so their
losses drift apart by roundings; the bound is 1e-5 of a loss. PyTorch's side sums the norm for clipping in
float64: in float32 PyTorch's norm of a tensor as large as wte is up to 0.3 % too small, and losses would be
off by 1.2e-4 (--large --float32-norm). With --double PyTorch trains in float64. Leaves with 77 without torch.
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

LIMIT = 1e-5
STEPS, ACCUMULATE, BATCH, SEQ, END = 50, 2, 2, 96, 256
DECAY, CLIP = 0.1, 1.0
SMALL = gpt2.Shape(layers=4, heads=4, width=128, context=96, vocab=257)
LARGE = gpt2.Shape(layers=12, heads=12, width=768, context=1024, vocab=50257)
WORDS = "the lock gate water rises and falls of a boat under seven bridges".split()


def draw_examples():
    """Pairs of texts; a few are longer than a row."""
    random = np.random.default_rng(4)

    def text(most):
        return " ".join(random.choice(WORDS, random.integers(1, most)))

    return [{"prompt": text(6), "response": text(24 if i % 9 == 0 else 8)} for i in range(140)]


def encode(example):
    """The ids of an example and which of them count: the response and the end of text."""
    prompt, response = (example[key].encode() for key in ("prompt", "response"))
    ids = list(prompt + b"\n" + response) + [END]
    return ids[:SEQ + 1], ([False] * (len(prompt) + 1) + [True] * (len(response) + 1))[:SEQ + 1]


def make_rows(examples, packs):
    """Rows of ids [T + 1], of targets that count, and of positions [T]."""
    rows = []
    for ids, counts in map(encode, examples):
        if not any(counts[1:]):
            continue
        if not (packs and rows and len(rows[-1][0]) + len(ids) <= SEQ + 1):
            rows.append(([], [], []))
        for to, of in zip(rows[-1], (ids, counts, range(len(ids)))):
            to.extend(of)
    for ids, counts, positions in rows:
        positions.extend(range(SEQ + 1 - len(ids)))
        counts.extend([False] * (SEQ + 1 - len(ids)))
        ids.extend([END] * (SEQ + 1 - len(ids)))
    return rows


def attend(x, p, name, heads, unseen):
    batch, seq, width = x.shape
    query, key, value = (part.view(batch, seq, heads, width // heads).transpose(1, 2)
                         for part in linear(x, p, name + ".c_attn").split(width, dim=2))
    scores = query @ key.transpose(2, 3) / math.sqrt(width // heads)
    y = torch.softmax(scores.masked_fill(unseen, -math.inf), dim=-1) @ value
    return linear(y.transpose(1, 2).reshape(batch, seq, width), p, name + ".c_proj")


def linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def loss_sum(shape, p, rows):
    """The sum of the losses of the targets that count, and their number."""
    ids, counts, positions = (torch.tensor([row[i] for row in rows]) for i in range(3))
    positions = positions[:, :SEQ]
    at = torch.arange(SEQ)
    unseen = (at[None] > at[:, None])[None] | (at[None, None] < (at - positions)[:, :, None])
    x = p["wte.weight"][ids[:, :-1]] + p["wpe.weight"][positions]
    for layer in range(shape.layers):
        block = f"h.{layer}."
        x = x + attend(norm(x, p, block + "ln_1"), p, block + "attn", shape.heads, unseen[:, None])
        inner = F.gelu(linear(norm(x, p, block + "ln_2"), p, block + "mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, p, block + "mlp.c_proj")
    targets = torch.where(counts[:, 1:], ids[:, 1:], -100)
    logits = norm(x, p, "ln_f") @ p["wte.weight"].T
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    return loss, int(counts[:, 1:].sum())


def clip(tensors, most):
    norm = math.sqrt(sum(float(tensor.grad.double().square().sum()) for tensor in tensors))
    for tensor in tensors:
        tensor.grad.mul_(min(1.0, most / (norm + 1e-6)))


def run_torch(options, weights, rows):
    p, losses = gpt2.parameters(weights, torch.float64 if options.double else torch.float32), []
    tensors = list(p.values())
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in tensors if t.ndim == 2], "weight_decay": DECAY},
         {"params": [t for t in tensors if t.ndim < 2], "weight_decay": 0.0}],
        lr=options.lr, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        first = step * ACCUMULATE * BATCH
        parts = [[rows[(first + a * BATCH + b) % len(rows)] for b in range(BATCH)]
                 for a in range(ACCUMULATE)]
        sums = [loss_sum(options.shape, p, part) for part in parts]
        count = sum(part_count for _, part_count in sums)
        loss = sum(part_loss for part_loss, _ in sums) / count
        optimizer.zero_grad()
        loss.backward()
        (torch.nn.utils.clip_grad_norm_ if options.float32_norm else clip)(tensors, CLIP)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def run_sluice(options, packs):
    done = subprocess.run(
        [options.sluice, "train", "--device", "cpu", "--precision", "fp32", "--init", "model", "--tokenizer",
         "byte", "--data", "examples.json", "--prompt-key", "prompt", "--response-key", "response",
         "--pack", "on" if packs else "off", "--data-order", "sequential", "--seq", str(SEQ),
         "--micro-batch", str(BATCH), "--accumulate", str(ACCUMULATE), "--steps", str(STEPS), "--lr",
         str(options.lr), "--lr-schedule", "constant", "--warmup", "0", "--weight-decay", str(DECAY), "--clip",
         str(CLIP), "--cache-dir", "cache", "--log-json", "log", "--quiet"], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"sluice train: {done.returncode}: {done.stderr.decode()}")
    with open("log", encoding="utf-8") as log:
        losses = [record["loss"] for record in map(json.loads, log) if record["event"] == "step"]
    os.remove("log")
    return np.array(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--large", action="store_true", help="124M's shape; some minutes")
    parser.add_argument("--float32-norm", action="store_true", help="clip by PyTorch's own norm")
    parser.add_argument("--double", action="store_true", help="PyTorch's side in float64")
    options = parser.parse_args()
    options.shape, options.lr = (LARGE, 1e-4) if options.large else (SMALL, 1e-3)
    options.sluice = os.path.abspath(options.sluice)
    examples = draw_examples()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open("examples.json", "w", encoding="utf-8") as file:
            json.dump(examples, file, indent=1)
        weights = gpt2.draw_initial(options.shape, seed=5)
        gpt2.write_directory("model", options.shape, weights)
        for packs in (True, False):
            rows = make_rows(examples, packs)
            ours, theirs = run_sluice(options, packs), run_torch(options, weights, rows)
            error = float(np.max(np.abs(ours / theirs - 1)))
            print(f"{'packed' if packs else 'one example a row'}: {len(rows)} rows; loss "
                  f"{theirs[0]:.4f} to {theirs[-1]:.4f}; {STEPS} losses off by {error:.1e} at most")
            if not (len(ours) == STEPS and error <= LIMIT):
                sys.exit(f"beyond {LIMIT}")


if __name__ == "__main__":
    main()
