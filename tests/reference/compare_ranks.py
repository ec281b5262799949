#!/usr/bin/env python3
"""Compares tensor-parallel ranks of sluice with PyTorch processes that exchange by plain collectives.

usage: compare_ranks.py --sluice PROGRAM --tool dump_shards [--show N]

A block of GPT-2 between embedding and head, on two ranks. The command trains one step at learning rate 0 of
two micro-batches, in fp32, in each way in which its tensor ranks share a model; at beta1 = 1/2 and without
clipping, the first moment in its checkpoint is half of the gradient. Beside it as many processes of
PyTorch's over gloo compute the same from shard_formulas.py, each with its heads, features and ids, in
float64 and in float32; nothing of sluice's code or of its order of sums is in them. Errors are relative
to the norm of a tensor's gradient, the bound is 1e-5. A backward pass that drops the other rank's part
of a gradient has to be beyond it.

The layers alone: `dump_shards` runs sluice's kernels and communicator on 2 and 3 ranks for a linear layer
in three modes and for the cross-entropy of split classes, forward and backward, against the same formulas
in float64. Leaves with 77 without torch.
"""

import argparse
import dataclasses
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
from shard_formulas import (bounds, column_linear, norm, row_linear, share, split_cross_entropy,
                            split_embedding, whole_linear)

LIMIT, ACCUMULATE, BATCH = 1e-5, 2, 2
SHAPES = {"odd": gpt2.Shape(layers=1, heads=3, width=33, context=19, vocab=301),
          "even": gpt2.Shape(layers=1, heads=4, width=64, context=32, vocab=512)}
WAYS = [("", []), ("rows shared", ["--sequence-parallel"]),
        ("columns of wte", ["--split-layout", "colossal"]),
        ("kept together", ["--partition-activations", "--recompute", "full"]),
        ("on the host", ["--policy", "host"])]


@dataclasses.dataclass(frozen=True)
class Layer:
    rows: int
    inputs: int
    outputs: int
    ids: int


# Nothing divides; the last of three ranks has one id, and padding.
LAYERS = {"odd layers": Layer(rows=23, inputs=37, outputs=53, ids=7),
          "even layers": Layer(rows=64, inputs=96, outputs=384, ids=1200)}


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


# ---- layers alone ----

def id_bounds(count):
    """Equal parts of ids, the last ones padded."""
    each = -(-count // dist.get_world_size())
    return min(each * dist.get_rank(), count), min(each * (dist.get_rank() + 1), count)


def read_layer(layer):
    """{name: float64 tensor} of the files that the tool reads, as leaves."""
    shapes = {"x": (layer.rows, layer.inputs), "weight": (layer.inputs, layer.outputs),
              "bias": (layer.outputs,), "dy": (layer.rows, layer.outputs),
              "table": (layer.ids, layer.inputs)}
    return {name: torch.tensor(np.fromfile(name, np.float32).reshape(dims), dtype=torch.float64)
            for name, dims in shapes.items()}, torch.tensor(np.fromfile("targets", np.int32), dtype=torch.long)


def run_mode(mode, formula, x, weight, bias, dy):
    """What the tool writes of a mode, of this rank."""
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    y = formula(*leaves)
    y.backward(dy)
    return {f"{mode}-y": y.detach(), **{f"{mode}-d{name}": leaf.grad for name, leaf in
                                        zip(("x", "weight", "bias"), leaves)}}


def run_layer_peer(layer):
    given, targets = read_layer(layer)
    x, weight, bias, dy = (given[name] for name in ("x", "weight", "bias", "dy"))
    inputs, outputs, ids = slice(*bounds(layer.inputs)), slice(*bounds(layer.outputs)), id_bounds(layer.ids)
    results = run_mode("whole", whole_linear, x, weight, bias, dy)
    results |= run_mode("column", column_linear, x, weight[:, outputs], bias[outputs], dy[:, outputs])
    results |= run_mode("row", row_linear, x[:, inputs], weight[inputs], bias, dy)
    hidden = x.clone().requires_grad_()
    table = given["table"][slice(*ids)].clone().requires_grad_()
    loss = split_cross_entropy(share(hidden) @ table.T, targets, ids[0])
    loss.backward()
    check_whole(layer, given, targets, results, loss, hidden)
    results |= {"loss": loss.detach() * layer.rows, "dhidden": hidden.grad, "dtable": table.grad}
    np.savez(f"layers-{dist.get_rank()}.npz", **{name: value.numpy() for name, value in results.items()})


def check_whole(layer, given, targets, results, loss, hidden):
    """The formulas themselves, against PyTorch's own functions of whole tensors."""
    whole_hidden = given["x"].clone().requires_grad_()
    whole = F.cross_entropy(whole_hidden @ given["table"].T, targets)
    whole.backward()
    y = F.linear(given["x"], given["weight"].T, given["bias"])
    first, end = bounds(layer.outputs)
    pairs = [(results["row-y"], y), (results["column-y"], y[:, first:end]), (loss, whole),
             (results["column-dx"], results["whole-dx"]), (hidden.grad, whole_hidden.grad)]
    for computed, true in pairs:
        if not torch.allclose(computed, true, rtol=1e-10, atol=1e-12):
            sys.exit("the formulas are not those of whole layers")


def draw_layer(layer):
    random = np.random.default_rng(3)
    for name, dims, scale in (("x", (layer.rows, layer.inputs), 1.0), ("bias", (layer.outputs,), 1.0),
                              ("weight", (layer.inputs, layer.outputs), 0.3),
                              ("dy", (layer.rows, layer.outputs), 1.0),
                              ("table", (layer.ids, layer.inputs), 2.0)):
        (scale * random.standard_normal(dims)).astype(np.float32).tofile(name)
    random.integers(0, layer.ids, layer.rows).astype(np.int32).tofile("targets")


def compare_layers(options, name, layer, size):
    draw_layer(layer)
    start_peers(name, size)
    done = subprocess.run([options.sluice, "launch", "-n", str(size), "--", options.tool, ".",
                           *map(str, dataclasses.astuple(layer))], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{name}: dump_shards: {done.returncode}: {done.stderr.decode()}")
    worst = {}
    for rank in range(size):
        true = np.load(f"layers-{rank}.npz")
        for key in true.files:
            ours = np.fromfile(f"out-{rank}-{key}", np.float64 if key == "loss" else np.float32)
            norm_of = np.linalg.norm(true[key])
            error = np.linalg.norm(ours - true[key].ravel()) / (norm_of if norm_of > 0 else 1)
            mode = key.split("-")[0] if "-" in key else "cross-entropy"
            worst[mode] = max(worst.get(mode, 0), error)
    print(f"{name}, {size} ranks: " + ", ".join(f"{mode} {error:.1e}" for mode, error in worst.items()))
    if not all(error <= LIMIT for error in worst.values()):
        sys.exit(f"{name}: beyond {LIMIT}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice")
    parser.add_argument("--tool")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="worst gradients (0)")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        rank, size = map(int, options.peer.split("/"))
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank,
                                world_size=size)
        if options.job in SHAPES:
            run_block_peer(SHAPES[options.job])
        else:
            run_layer_peer(LAYERS[options.job])
        dist.destroy_process_group()
        return
    options.sluice, options.tool = os.path.abspath(options.sluice), os.path.abspath(options.tool)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name, shape in SHAPES.items():
            compare_block(options, name, shape)
        for size in (2, 3):
            for name, layer in LAYERS.items():
                compare_layers(options, name, layer, size)


if __name__ == "__main__":
    main()
