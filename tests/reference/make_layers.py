#!/usr/bin/env python3
"""Makes layers.safetensors beside this script: what PyTorch computes of layers that ranks divide, for
tests/parallel/test_parallel.c. Made with torch 2.15.0 and numpy 2.4.6.

usage: make_layers.py [OUTPUT]

Of each shape, as SHAPE.NAME: a linear layer, x [R, I], weight [I, O], bias [O] -> y, and from dy the gradients
dx, dweight, dbias; an embedding, tokens [R], the weight as table -> rows, and from dy dtable; the mean
cross-entropy of logits [R, C] and targets [R] -> loss, dlogits. The layers are whole: what a rank computes is a
part of this. "million": logits that formula_of_million gives, and of dlogits each STRIDE-th column; lse is the
log of each row's sum of exponentials.

Inputs are fp32. PyTorch computes in float64, and results are rounded to fp32: off by 6e-8 of an element at most."""

import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

import tensor_file

# Nothing divides; some of four ranks have no features and no classes; everything divides.
SHAPES = {"odd": (23, 37, 53, 7), "few": (5, 3, 2, 3), "even": (16, 64, 96, 96)}
MILLION, MILLION_ROWS, STRIDE = 1000000, 3, 10007


def draw(random, dims, scale):
    return (scale * random.standard_normal(dims)).astype(np.float32)


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def results_of(tensors):
    return {name: np.atleast_1d(tensor.detach().numpy()).astype(np.float32) for name, tensor in tensors.items()}


def linear_of(x, weight, bias, dy):
    x, weight, bias = leaf(x), leaf(weight), leaf(bias)
    y = F.linear(x, weight.T, bias)
    y.backward(torch.tensor(dy, dtype=torch.float64))
    return results_of({"y": y, "dx": x.grad, "dweight": weight.grad, "dbias": bias.grad})


def embedding_of(tokens, table, dy):
    table = leaf(table)
    rows = F.embedding(torch.tensor(tokens, dtype=torch.long), table)
    rows.backward(torch.tensor(dy, dtype=torch.float64))
    return results_of({"rows": rows, "dtable": table.grad})


def entropy_of(logits, targets):
    logits = leaf(logits)
    loss = F.cross_entropy(logits, torch.tensor(targets, dtype=torch.long))
    loss.backward()
    return results_of({"loss": loss, "dlogits": logits.grad, "lse": torch.logsumexp(logits, dim=1)})


def make_shape(name, rows, inputs, outputs, classes):
    random = np.random.Generator(np.random.PCG64(list(name.encode())))
    given = {"x": draw(random, (rows, inputs), 1.0), "weight": draw(random, (inputs, outputs), 0.3),
             "bias": draw(random, outputs, 1.0), "dy": draw(random, (rows, outputs), 1.0),
             "tokens": random.integers(0, inputs, rows).astype(np.int32),
             "logits": draw(random, (rows, classes), 2.0),
             "targets": random.integers(0, classes, rows).astype(np.int32)}
    made = linear_of(given["x"], given["weight"], given["bias"], given["dy"])
    made |= embedding_of(given["tokens"], given["weight"], given["dy"])
    made |= entropy_of(given["logits"], given["targets"])
    return {f"{name}.{key}": value for key, value in (given | made).items()}


def formula_of_million():
    """Multiples of 1/256 below 8: exact in fp32."""
    row, column = np.ogrid[:MILLION_ROWS, :MILLION]
    return ((row * 7919 + column * 104729) % 4001 / 256 - 8).astype(np.float32)


def make_million():
    targets = np.array([0, 500000, 999999], dtype=np.int32)
    made = entropy_of(formula_of_million(), targets)
    made["dlogits"] = np.ascontiguousarray(made["dlogits"][:, ::STRIDE])
    return {f"million.{key}": value for key, value in (made | {"targets": targets}).items()}


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                "layers.safetensors")
    tensors = make_million()
    for name, sizes in SHAPES.items():
        tensors |= make_shape(name, *sizes)
    tensor_file.write(output, tensors)


if __name__ == "__main__":
    main()
