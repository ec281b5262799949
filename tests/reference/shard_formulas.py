"""Parallel layers as formulas, over plain collectives of torch.distributed: what each of several
processes computes that hold a part of a layer's weight. After torchshard's definitions: a linear layer in
two modes (output features split, "dim 1"; input features split, "dim 0") and a cross-entropy whose classes
are split. Weights are stored [in, out]. Parts need not be equal."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


class _Share(torch.autograd.Function):
    """The same on every rank, which each uses for its own part: gradients add up."""

    @staticmethod
    def forward(context, x, is_summed):
        context.is_summed = is_summed
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        if context.is_summed:
            dist.all_reduce(gradient)
        return gradient, None


class _Sum(torch.autograd.Function):
    """The sum over ranks, which all of them use for the same."""

    @staticmethod
    def forward(context, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient


def share(x, is_summed=True):
    """`is_summed` False: the fault of a backward pass that drops the others' part."""
    return _Share.apply(x, is_summed)


def add_up(x):
    return _Sum.apply(x)


def bounds(count, unit=1):
    """[first, end) of this rank's part of `count`, in whole units; the first ranks have more."""
    size, rank, units = dist.get_world_size(), dist.get_rank(), count // unit
    first = units // size * rank + min(rank, units % size)
    return first * unit, (first + units // size + (rank < units % size)) * unit


def column_linear(x, weight, bias, is_summed=True):
    """x whole, weight and bias of this rank's features -> those features."""
    return share(x, is_summed) @ weight + bias


def row_linear(x, weight, bias):
    """x and weight of this rank's input features, bias whole -> all features."""
    return add_up(x @ weight) + bias


def split_embedding(ids, table, first):
    """Rows [first, first + len(table)) of a table are here -> all rows that are asked for."""
    is_here = (ids >= first) & (ids < first + len(table))
    rows = table[torch.where(is_here, ids - first, 0)]
    return add_up(torch.where(is_here[..., None], rows, torch.zeros((), dtype=rows.dtype)))


def split_cross_entropy(logits, targets, first):
    """logits [R, classes of this rank, which begin at `first`] -> the mean of -log p(target)."""
    most = logits.detach().amax(dim=1)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    total = add_up(torch.exp(logits - most[:, None]).sum(dim=1))
    is_here = (targets >= first) & (targets < first + logits.shape[1])
    own = logits.gather(1, torch.where(is_here, targets - first, 0)[:, None])[:, 0]
    chosen = add_up(torch.where(is_here, own, torch.zeros((), dtype=own.dtype)))
    return (torch.log(total) + most - chosen).mean()


def norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)
