#!/usr/bin/env python3
"""Compares 50 steps by each update rule with PyTorch's, loss by loss.

usage: compare_rules.py --sluice PROGRAM

A GPT-2 of 4 layers learns random tokens in rows of a fixed order, in fp32, two micro-batches a step, with
clipping and weight decay. SGD (plain, momentum, Nesterov) and AdamW are torch.optim's. Lion is written out
here from its formula (Chen et al. 2023, algorithm 2, with decoupled decay). Muon is torch.optim.Muon with its
Newton-Schulz steps in float32; torch's own makes them in bfloat16, so a case of it has a bound of its own.
One case has all rules in one step, with frozen tensors, learning rates and decays by pattern. Both sides
train in float32, so their losses drift apart by roundings; the bound is 1e-5 of a loss. Each case is also held
against the losses of the case before, which have to be beyond the bound. Leaves with 77 without torch.

States in bf16 and in 8 bits are held against AdamW and Lion with states that are rounded here, from the
description: bf16 by random words of torch's, so losses agree as far as two draws do; 8 bits by a search of
the nearest of the shares of Dettmers et al. (2021). The last number of a case is its own bound.
"""

import argparse
import fnmatch
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

LIMIT = 1e-5
STEPS, ACCUMULATE, BATCH, SEQ, VOCAB = 50, 2, 2, 64, 500
DECAY, CLIP = 0.1, 1.0
SHAPE = gpt2.Shape(layers=4, heads=4, width=128, context=SEQ, vocab=VOCAB)
ADAMW, LION = (0.9, 0.95), (0.9, 0.99)


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas, weight_decay, store=lambda values, is_signed: values):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.store = store

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                moment = state.setdefault("moment", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(moment * first + p.grad * (1 - first)), alpha=-group["lr"])
                moment.mul_(second).add_(p.grad, alpha=1 - second)
                moment.copy_(self.store(moment, True))


def newton_schulz(matrix):
    """torch.optim.Muon's steps, in float32."""
    x = matrix if matrix.size(0) <= matrix.size(1) else matrix.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if matrix.size(0) <= matrix.size(1) else x.T


class Muon(torch.optim.Optimizer):
    def __init__(self, groups, lr, momentum, weight_decay, scale):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.scale = scale

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(newton_schulz(p.grad.lerp(mean, group["momentum"])),
                       alpha=-group["lr"] * self.scale(*p.shape))


# Rows here are columns of torch's Linear.
def match_rms(rows, columns):
    return 0.2 * max(rows, columns) ** 0.5


def original(rows, columns):
    return max(1, columns / rows) ** 0.5


MATRICES = "h.*.weight"  # those of two dimensions


class StoredAdamW(torch.optim.Optimizer):
    """AdamW whose moments are what `store` makes of them."""

    def __init__(self, groups, lr, betas, weight_decay, store):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.store, self.steps = store, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("moment1", torch.zeros_like(p))
                v = self.state[p].setdefault("moment2", torch.zeros_like(p))
                m.mul_(first).add_(p.grad, alpha=1 - first)
                v.mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(m, (v / (1 - second ** self.steps)).sqrt_().add_(1e-8),
                           value=-group["lr"] / (1 - first ** self.steps))
                m.copy_(self.store(m, True))
                v.copy_(self.store(v, False))


def round_to_bf16(values, is_signed):
    bits = values.contiguous().view(torch.int32)
    words = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32)
    return ((bits + words) & ~0xffff).view(torch.float32)


def list_shares(is_signed):
    """Decades of 1, 2, 4 ... intervals, twice as many without a sign; their middles, 0 and 1."""
    shares = [0.0, 1.0]
    for decade in range(7):
        count = (1 if is_signed else 2) << decade
        middles = 10.0 ** (decade - 6) * (0.1 + 0.9 * (np.arange(count) + 0.5) / count)
        shares += [*middles, *(-middles if is_signed else [])]
    return torch.tensor(sorted(shares), dtype=torch.float64)


SHARES = {sign: list_shares(sign) for sign in (True, False)}


def round_to_codes(values, is_signed):
    flat = values.reshape(-1)
    groups = torch.nn.functional.pad(flat, (0, -len(flat) % 256)).reshape(-1, 256).double()
    largest = groups.abs().argmax(1, keepdim=True)
    scale = groups.gather(1, largest)
    shares = SHARES[is_signed]
    wanted = torch.where(scale == 0, 0, groups / torch.where(scale == 0, 1, scale))
    codes = torch.bucketize(wanted, (shares[1:] + shares[:-1]) / 2)
    return (shares[codes] * scale).float().reshape(-1)[:len(flat)].reshape(values.shape)


STORES = {"bf16": round_to_bf16, "int8": round_to_codes}


# (name, options, learning rate, [(pattern, rule, factor of the rate, decay; None: of matrices alone)],
#  bound where it is another one)
CASES = [
    ("adamw", [], 1e-3, [("*", "adamw", 1, None)]),
    ("sgd", ["--optimizer", "sgd"], 0.3, [("*", "sgd", 1, None)]),
    ("sgd, momentum", ["--optimizer", "sgd", "--momentum", "0.9"], 0.1, [("*", "momentum", 1, None)]),
    ("sgd, nesterov", ["--optimizer", "sgd", "--momentum", "0.9", "--nesterov"], 0.1,
     [("*", "nesterov", 1, None)]),
    ("lion", ["--optimizer", "lion"], 2e-5, [("*", "lion", 1, None)]),
    ("muon", ["--optimizer", "muon"], 1e-3, [("*", "adamw", 1, None), (MATRICES, "muon", None, None)]),
    ("muon, original", ["--optimizer", "muon", "--momentum", "0.9", "--muon-scale", "original", "--lr-of",
                        "*=0.05", "h.*.c_*.weight=1"], 2e-2,
     [("*", "adamw", 0.05, None), (MATRICES, "muon original", None, None), ("h.*.c_*.weight", "", 1, None)]),
    ("muon, torch", ["--optimizer", "muon"], 1e-3,
     [("*", "adamw", 1, None), (MATRICES, "muon torch", None, None)], 1e-3),
    ("mixed", ["--rule", "h.*.attn.*=lion", "--rule", "wte.*=sgd,ln_f.*=sgd", "--momentum", "0.9",
               "--freeze", "wpe.*", "h.2.mlp.*", "--lr-of", "h.*.attn.*=0.02,wte.*=30", "h.3.mlp.*=0.2",
               "--decay-of", "*.bias=0.3", "h.0.*=0"], 1e-3,
     [("*", "adamw", 1, None), ("h.*.attn.*", "lion", 0.02, None), ("wte.*", "momentum", 30, None),
      ("ln_f.*", "momentum", 1, None), ("h.3.mlp.*", "", 0.2, None), ("*.bias", "", None, 0.3),
      ("h.0.*", "", None, 0), ("wpe.*", "none", 1, None), ("h.2.mlp.*", "none", 1, None)]),
    ("adamw, bf16", ["--state-type", "bf16"], 1e-3, [("*", "adamw bf16", 1, None)], 1e-3),
    ("adamw, int8", ["--state-type", "int8"], 1e-3, [("*", "adamw int8", 1, None)], 2e-4),
    ("lion, bf16", ["--state-type", "bf16", "--optimizer", "lion"], 2e-5, [("*", "lion bf16", 1, None)], 1e-4),
    ("lion, int8", ["--state-type", "int8", "--optimizer", "lion"], 2e-5, [("*", "lion int8", 1, None)]),
]


def settle(name, tensor, rows):
    """The rule, factor and decay of a tensor: of each the last row that says it."""
    rule, factor, decay = "", 1, DECAY if tensor.ndim == 2 else 0.0
    for pattern, row_rule, row_factor, row_decay in rows:
        if fnmatch.fnmatchcase(name, pattern):
            rule = rule if row_rule.startswith("muon") and tensor.ndim != 2 else row_rule or rule
            factor = factor if row_factor is None else row_factor
            decay = decay if row_decay is None else row_decay
    return rule, factor, decay


def make_optimizers(p, lr, rows):
    groups = {}
    for name, tensor in p.items():
        groups.setdefault(settle(name, tensor, rows), []).append(tensor)
    made = []
    for (rule, factor, decay), params in groups.items():
        group = [{"params": params}]
        words = rule.split()
        states = words.pop() if words[-1] in STORES else ""
        rule = " ".join(words)
        if rule == "none":
            for tensor in params:
                tensor.requires_grad_(False)
        elif states:
            kind, betas = (Lion, LION) if rule == "lion" else (StoredAdamW, ADAMW)
            made.append(kind(group, lr * factor, betas, decay, STORES[states]))
        elif rule == "adamw":
            made.append(torch.optim.AdamW(group, lr=lr * factor, betas=ADAMW, eps=1e-8, weight_decay=decay))
        elif rule == "lion":
            made.append(Lion(group, lr * factor, LION, decay))
        elif rule == "muon torch":
            made.append(torch.optim.Muon(group, lr=lr * factor, momentum=0.95, weight_decay=decay,
                                         adjust_lr_fn="match_rms_adamw"))
        elif rule.startswith("muon"):
            made.append(Muon(group, lr * factor, 0.9 if rule == "muon original" else 0.95, decay,
                             original if rule == "muon original" else match_rms))
        else:
            made.append(torch.optim.SGD(group, lr=lr * factor, weight_decay=decay,
                                        momentum=0 if rule == "sgd" else 0.9, nesterov=rule == "nesterov"))
    return made


def run_torch(weights, tokens, lr, case):
    p, losses = gpt2.parameters(weights, torch.float32), []
    optimizers = make_optimizers(p, lr, case)
    for step in range(STEPS):
        total = 0.0
        for part in range(ACCUMULATE):
            first = (step * ACCUMULATE + part) * BATCH
            rows = [tokens[(first + b) * SEQ:(first + b + 1) * SEQ + 1] for b in range(BATCH)]
            loss, _ = gpt2.loss_of(p, SHAPE, rows)
            (loss / ACCUMULATE).backward()
            total += loss.item() / ACCUMULATE
        torch.nn.utils.clip_grad_norm_([t for t in p.values() if t.requires_grad], CLIP)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(total)
    return np.array(losses)


def run_sluice(program, lr, options):
    done = subprocess.run(
        [program, "train", "--device", "cpu", "--precision", "fp32", "--init", "model", "--data", "tokens.bin",
         "--data-order", "sequential", "--seq", str(SEQ), "--micro-batch", str(BATCH), "--accumulate",
         str(ACCUMULATE), "--steps", str(STEPS), "--lr", str(lr), "--lr-schedule", "constant", "--warmup", "0",
         "--weight-decay", str(DECAY), "--clip", str(CLIP), "--log-json", "log", "--quiet"] + options,
        capture_output=True)
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
    program = os.path.abspath(parser.parse_args().sluice)
    random = np.random.default_rng(11)
    # A walk: the next token is near the last one, so there is something to learn.
    steps = random.integers(-3, 4, STEPS * ACCUMULATE * BATCH * SEQ + 1)
    tokens = (np.cumsum(steps) % VOCAB).astype(np.uint16)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        tokens.tofile("tokens.bin")
        weights = gpt2.draw_initial(SHAPE, seed=5)
        gpt2.write_directory("model", SHAPE, weights)
        before = None
        for name, options, lr, case, *bound in CASES:
            limit = bound[0] if bound else LIMIT
            ours, theirs = run_sluice(program, lr, options), run_torch(weights, tokens, lr, case)
            error = float(np.max(np.abs(ours / theirs - 1)))
            print(f"{name:14} loss {theirs[0]:.4f} to {theirs[-1]:.4f}; {STEPS} losses off by {error:.1e} "
                  "at most", flush=True)
            if not (len(ours) == STEPS and error <= limit):
                sys.exit(f"beyond {limit}")
            if before is not None and np.max(np.abs(before / theirs - 1)) <= LIMIT:
                sys.exit("two rules give the same losses")
            before = theirs


if __name__ == "__main__":
    main()
