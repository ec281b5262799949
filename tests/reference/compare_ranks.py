#!/usr/bin/env python3
"""Compares tensor-parallel ranks of sluice with PyTorch processes that exchange by plain collectives.

usage: compare_ranks.py --sluice PROGRAM [--show N]

A block of GPT-2 between embedding and head, on two ranks. The command trains one step at learning rate 0 of
two micro-batches, in fp32, in each way in which its tensor ranks share a model; at beta1 = 1/2 and without
clipping, the first moment in its checkpoint is half of the gradient. Beside it as many processes of
PyTorch's over gloo compute the same from shard_formulas.py, each with its heads, features and ids, in
float64 and in float32; nothing of sluice's code or of its order of sums is in them. Errors are relative
to the norm of a tensor's gradient, the bound is 1e-5. A backward pass that drops the other rank's part
of a gradient has to be beyond it. Leaves with 77 without torch.
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
    import torch.distributed as dist
    import torch.nn.functional as F
    if not (dist.is_available() and dist.is_gloo_available()):
        raise ImportError("torch has no gloo")
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import gpt2
import tensor_file
from shard_formulas import bounds, column_linear, norm, row_linear, share, split_cross_entropy, split_embedding

LIMIT, ACCUMULATE, BATCH = 1e-5, 2, 2
SHAPES = {"odd": gpt2.Shape(layers=1, heads=3, width=33, context=19, vocab=301),
          "even": gpt2.Shape(layers=1, heads=4, width=64, context=32, vocab=512)}
WAYS = [("", []), ("rows shared", ["--sequence-parallel"]),
        ("columns of wte", ["--split-layout", "colossal"]),
        ("kept together", ["--partition-activations", "--recompute", "full"]),
        ("on the host", ["--policy", "host"])]


# ---- a block, as one of the processes of PyTorch ----

def columns_of(name, shape):
    """This rank's columns, or rows, of a tensor: (axis, index); None: it has all of it."""
    head = shape.width // shape.heads
    first, end = bounds(shape.width, head)
    inner = np.arange(*bounds(4 * shape.width))
    if name.startswith("wte"):
        return 0, np.arange(*bounds(shape.vocab))
    if "c_attn" in name:
        return -1, np.concatenate([np.arange(first, end) + third * shape.width for third in range(3)])
    if "mlp.c_fc" in name:
        return -1, inner
    if name.endswith("attn.c_proj.weight"):
        return 0, np.arange(first, end)
    if name.endswith("mlp.c_proj.weight"):
        return 0, inner
    return None


def attend(x, p, name, shape, is_summed):
    batch, seq, _ = x.shape
    first, end = bounds(shape.width, shape.width // shape.heads)
    qkv = column_linear(x, p[name + ".c_attn.weight"], p[name + ".c_attn.bias"], is_summed)
    query, key, value = (part.view(batch, seq, -1, shape.width // shape.heads).transpose(1, 2)
                         for part in qkv.split(end - first, dim=2))
    scores = query @ key.transpose(2, 3) / math.sqrt(shape.width // shape.heads)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    y = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ value
    return row_linear(y.transpose(1, 2).reshape(batch, seq, -1), p[name + ".c_proj.weight"],
                      p[name + ".c_proj.bias"])


def loss_of(p, shape, rows, is_summed):
    rows, first = torch.tensor(rows, dtype=torch.long), bounds(shape.vocab)[0]
    x = split_embedding(rows[:, :-1], p["wte.weight"], first) + p["wpe.weight"][:rows.shape[1] - 1]
    for layer in range(shape.layers):
        block = f"h.{layer}."
        x = x + attend(norm(x, p, block + "ln_1"), p, block + "attn", shape, is_summed)
        inner = column_linear(norm(x, p, block + "ln_2"), p[block + "mlp.c_fc.weight"],
                              p[block + "mlp.c_fc.bias"], is_summed)
        x = x + row_linear(F.gelu(inner, approximate="tanh"), p[block + "mlp.c_proj.weight"],
                           p[block + "mlp.c_proj.bias"])
    logits = share(norm(x, p, "ln_f"), is_summed) @ p["wte.weight"].T
    return split_cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), first)


def join(name, shape, part, whole_shape):
    """The whole tensor of all ranks' parts."""
    place = columns_of(name, shape)
    if place is None:
        return part
    whole = torch.zeros(whole_shape, dtype=part.dtype)
    whole.index_copy_(place[0] % whole.dim(), torch.tensor(place[1]), part)
    dist.all_reduce(whole)
    return whole


def differentiate(shape, weights, rows, dtype, is_summed):
    p, loss = {}, 0.0
    for name, values in weights.items():
        place = columns_of(name, shape)
        part = values if place is None else np.take(values, place[1], axis=place[0])
        p[name] = torch.tensor(part, dtype=dtype, requires_grad=True)
    for some in rows:
        part = loss_of(p, shape, some, is_summed) / ACCUMULATE
        part.backward()
        loss += part.item()
    return loss, {name: join(name, shape, tensor.grad, weights[name].shape).numpy()
                  for name, tensor in p.items()}


def run_block_peer(shape):
    """Of this process; rank 0 writes what all have."""
    weights = {name.removeprefix(gpt2.PREFIX): np.array(values)
               for name, values in tensor_file.read("model/model.safetensors").items()}
    rows = np.load("rows.npy")
    for label, dtype, is_summed in (("true", torch.float64, True), ("single", torch.float32, True),
                                    ("faulty", torch.float64, False)):
        loss, gradients = differentiate(shape, weights, rows, dtype, is_summed)
        if dist.get_rank() == 0:
            np.savez(f"{label}.npz", loss=loss, **gradients)


def start_peers(job, size):
    """This script as `size` processes that do `job`."""
    if os.path.exists("meeting"):
        os.remove("meeting")
    peers = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer", f"{rank}/{size}",
                               "--job", job]) for rank in range(size)]
    if [peer.wait() for peer in peers] != [0] * size:
        sys.exit(f"{job}: a process of PyTorch failed")


# ---- the block, by the command ----

def run_sluice(options, way, seq):
    name, words = way
    done = subprocess.run(
        [options.sluice, "launch", "-n", "2", "--", "train", "--tp", "2", "--device", "cpu", "--threads", "1",
         "--precision", "fp32", "--init", "model", "--data", "tokens.bin", "--data-order", "sequential",
         "--seq", str(seq), "--micro-batch", str(BATCH), "--accumulate", str(ACCUMULATE), "--steps", "1",
         "--lr", "0", "--clip", "0", "--beta1", "0.5", "--device-memory", "64M", "--host-memory", "64M",
         "--save", "checkpoints", "--overwrite", "--log-json", "log", "--quiet", *words],
        capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{name}: sluice train: {done.returncode}: {done.stderr.decode()}")
    with open("log", encoding="utf-8") as log:
        losses = [record["loss"] for record in map(json.loads, log) if record["event"] == "step"]
    os.remove("log")
    moments = tensor_file.read("checkpoints/step-00000001/moment1.safetensors")
    return losses[0], {key.removeprefix(gpt2.PREFIX): 2 * np.array(value) for key, value in moments.items()}


def errors_of(gradients, true):
    return {key: gpt2.relative_error(key, gradients[key], true[key]) for key in true if key != "loss"}


def compare_block(options, name, shape):
    seq = shape.context - (shape.context % 2)
    tokens = np.random.default_rng(11).integers(0, shape.vocab, ACCUMULATE * BATCH * seq + 1)
    tokens.astype(np.uint16).tofile("tokens.bin")
    rows = [tokens[g * seq:(g + 1) * seq + 1] for g in range(ACCUMULATE * BATCH)]
    np.save("rows.npy", np.array(rows).reshape(ACCUMULATE, BATCH, seq + 1))
    gpt2.write_directory("model", shape, gpt2.draw_lively(shape, seed=5))
    start_peers(name, 2)
    true, single, faulty = (np.load(f"{label}.npz") for label in ("true", "single", "faulty"))
    theirs, dropped = errors_of(single, true), errors_of(faulty, true)
    alone = gpt2.gradients_of(gpt2.draw_lively(shape, seed=5), shape, np.load("rows.npy"), torch.float64)[2]
    if not max(errors_of(alone, true).values()) <= 1e-10:
        sys.exit(f"{name}: PyTorch's processes differ from one process of it")
    if not max(dropped.values()) > 100 * LIMIT:
        sys.exit(f"{name}: a dropped part hardly shows: this shows nothing")
    for way in WAYS:
        loss, gradients = run_sluice(options, way, seq)
        if set(gradients) != set(true.files) - {"loss"}:
            sys.exit(f"{name}: other tensors: {sorted(gradients)}")
        ours, loss_error = errors_of(gradients, true), abs(loss / float(true["loss"]) - 1)
        worst = max(ours, key=ours.get)
        print(f"{name}, --tp 2 {' '.join(way[1])}: loss off by {loss_error:.1e}; {len(ours)} gradients by "
              f"{ours[worst]:.1e} at most ({worst}; PyTorch's float32: {max(theirs.values()):.1e})")
        for key in sorted(ours, key=lambda key: -ours[key])[:options.show]:
            print(f"  {key:24s} {ours[key]:9.2e} {theirs[key]:9.2e}")
        if not (loss_error <= LIMIT and ours[worst] <= LIMIT):
            sys.exit(f"{name}, {way[0]}: beyond {LIMIT}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="worst gradients (0)")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        rank, size = map(int, options.peer.split("/"))
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank,
                                world_size=size)
        run_block_peer(SHAPES[options.job])
        dist.destroy_process_group()
        return
    options.sluice = os.path.abspath(options.sluice)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name, shape in SHAPES.items():
            compare_block(options, name, shape)


if __name__ == "__main__":
    main()
