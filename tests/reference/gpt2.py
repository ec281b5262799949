"""GPT-2 as Hugging Face defines it, written out in PyTorch operations over a dictionary of weights:
pre-norm, weights stored [in, out], the tanh form of GELU, epsilon 1e-5, the head tied to wte, causal
attention scaled by 1/sqrt(head width). Runs in float32 and in float64."""

import dataclasses
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import tensor_file

PREFIX = "transformer."  # as GPT2LMHeadModel.save_pretrained writes names


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    width: int
    context: int
    vocab: int


SHAPES = {
    # Everything odd; two panels of wte, the second one padded; rows shorter than the context.
    "small": Shape(layers=3, heads=3, width=33, context=19, vocab=301),
    "gpt2": Shape(layers=12, heads=12, width=768, context=1024, vocab=50257),
}


def parameter_shapes(shape):
    """{name: shape} in Hugging Face's names, without the prefix."""
    width = shape.width
    shapes = {"wte.weight": (shape.vocab, width), "wpe.weight": (shape.context, width)}
    for layer in range(shape.layers):
        block = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            shapes[block + norm + ".weight"] = shapes[block + norm + ".bias"] = (width,)
        for name, rows, columns in (("attn.c_attn", width, 3 * width),
                                    ("attn.c_proj", width, width),
                                    ("mlp.c_fc", width, 4 * width),
                                    ("mlp.c_proj", 4 * width, width)):
            shapes[block + name + ".weight"] = (rows, columns)
            shapes[block + name + ".bias"] = (columns,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (width,)
    return shapes


def _is_norm(name):
    return name.split(".")[-2].startswith("ln_")


def draw_lively(shape, seed):
    """Weights large enough that no part of the model is nearly linear and no gradient tiny."""
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {}
    for name, dims in parameter_shapes(shape).items():
        values = 0.12 * random.standard_normal(dims)
        if _is_norm(name) and name.endswith(".weight"):
            values += 1.0
        weights[name] = values.astype(np.float32)
    return weights


def draw_initial(shape, seed):
    """GPT-2's own initial weights: deviation 0.02, less into the residual stream."""
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {}
    for name, dims in parameter_shapes(shape).items():
        if len(dims) == 1:
            values = np.full(dims, 1.0 if _is_norm(name) and name.endswith(".weight") else 0.0)
        else:
            into_stream = name.endswith("c_proj.weight")
            deviation = 0.02 / math.sqrt(2 * shape.layers) if into_stream else 0.02
            values = deviation * random.standard_normal(dims)
        weights[name] = values.astype(np.float32)
    return weights


def write_directory(path, shape, weights):
    """A model directory that transformers and sluice load."""
    os.makedirs(path, exist_ok=True)
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "n_layer": shape.layers, "n_head": shape.heads, "n_embd": shape.width,
        "n_positions": shape.context, "n_ctx": shape.context, "vocab_size": shape.vocab,
        "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.02,
        "scale_attn_weights": True, "tie_word_embeddings": True,
        "bos_token_id": shape.vocab - 1, "eos_token_id": shape.vocab - 1,
    }
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    tensor_file.write(os.path.join(path, "model.safetensors"),
                      {PREFIX + name: values for name, values in weights.items()})


def parameters(weights, dtype, frozen=()):
    """Leaves of a graph, in `dtype`; fp32 weights are exact in both. No gradient for names in `frozen`."""
    return {name: torch.tensor(values, dtype=dtype, requires_grad=name not in frozen)
            for name, values in weights.items()}


def _norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def _linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def _gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def _attention(x, p, name, heads):
    batch, seq, width = x.shape
    query, key, value = (part.view(batch, seq, heads, width // heads).transpose(1, 2)
                         for part in _linear(x, p, name + ".c_attn").split(width, dim=2))
    scores = query @ key.transpose(2, 3) / math.sqrt(width // heads)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    y = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ value
    return _linear(y.transpose(1, 2).reshape(batch, seq, width), p, name + ".c_proj")


def logits_of(p, shape, tokens):
    """tokens [B, T] -> logits [B, T, vocab]."""
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for layer in range(shape.layers):
        block = f"h.{layer}."
        x = x + _attention(_norm(x, p, block + "ln_1"), p, block + "attn", shape.heads)
        inner = _gelu_new(_linear(_norm(x, p, block + "ln_2"), p, block + "mlp.c_fc"))
        x = x + _linear(inner, p, block + "mlp.c_proj")
    return _norm(x, p, "ln_f") @ p["wte.weight"].T


def loss_of(p, shape, rows):
    """rows [B, T + 1] -> (mean loss, logits)."""
    rows = torch.tensor(np.array(rows), dtype=torch.long)
    logits = logits_of(p, shape, rows[:, :-1])
    flat = logits.reshape(-1, shape.vocab)
    loss = F.cross_entropy(flat.float() if flat.itemsize == 2 else flat, rows[:, 1:].reshape(-1))
    return loss, logits


def _to_numpy(tensor):
    return (tensor.float() if tensor.itemsize == 2 else tensor).numpy()


def gradients_of(weights, shape, micro_batches, dtype, loss_scale=1.0):
    """micro_batches [A, B, T + 1] -> (loss, logits [A, B, T, vocab], {name: gradient}) as numpy, half
    precision as float32. The loss is multiplied by `loss_scale` for the way back, and gradients
    divided by it."""
    p = parameters(weights, dtype)
    total, logits = 0.0, []
    for rows in micro_batches:
        loss, some_logits = loss_of(p, shape, rows)
        (loss_scale * loss / len(micro_batches)).backward()
        total += loss.item() / len(micro_batches)
        logits.append(_to_numpy(some_logits.detach()))
    return total, np.stack(logits), {name: _to_numpy(tensor.grad) / np.float32(loss_scale)
                                     for name, tensor in p.items()}


def without_key_bias(name, values):
    """Leaves the keys' third out of c_attn.bias. A key bias b adds q.b to all scores of a query,
    and softmax does not see what is added to all: the true gradient is zero, and what is computed
    is rounding alone."""
    if not name.endswith("c_attn.bias"):
        return values
    width = len(values) // 3
    return np.concatenate([values[:width], values[2 * width:]])


def relative_error(name, computed, true):
    """||computed - true|| / ||true||, the key bias left out."""
    computed = without_key_bias(name, computed).astype(np.float64)
    true = without_key_bias(name, true).astype(np.float64)
    norm = np.linalg.norm(true)
    return float(np.linalg.norm(computed - true) / norm) if norm > 0 else 0.0
