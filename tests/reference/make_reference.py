#!/usr/bin/env python3
"""Makes the numbers that sluice's GPT-2 is compared with, by PyTorch in float32 and float64.

  make_reference.py                               remakes small/ beside this script
  make_reference.py --shape gpt2 --output DIR     the 124M model directory and tokens alone;
                                                  compare_gpt2.py makes and compares the gradients
  make_reference.py --check-transformers          compares with transformers' own GPT-2, if installed

small/README.md says what the files hold.
"""

import argparse
import math
import os

import numpy as np
import torch

import gpt2
import tensor_file

BATCH, SEQ, MICRO_BATCHES, STEPS = 2, 17, 2, 10
RATE, BETA1, BETA2, EPSILON, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0
GRADIENT_ERROR = 1e-5  # what tests allow relative to a tensor's gradient, unless PyTorch is worse


def draw_tokens(shape, dims, seed):
    return np.random.Generator(np.random.PCG64(seed)).integers(
        0, shape.vocab, size=dims, dtype=np.int32)


def open_adamw(p, epsilon=EPSILON):
    trained = [t for t in p.values() if t.requires_grad]
    groups = [{"params": [t for t in trained if t.dim() >= 2], "weight_decay": DECAY},
              {"params": [t for t in trained if t.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(BETA1, BETA2), eps=epsilon, fused=False)


class WeightBound:
    """How far a weight may be from the float64 run's, if gradients are right to `error`.

    Let a step's gradient of an element be off by at most d, at this step and all before. With
    m = sum a_i g_i and v = sum b_i g_i^2 (bias corrected: a and b sum to 1), m is off by at most d,
    and so is sqrt(v), by the triangle inequality of the norm that b weights. By Cauchy and Schwarz
    |m| <= r sqrt(v), r^2 = sum a_i^2 / b_i. So the update m / (sqrt(v) + eps) is off by at most
    (1 + r) d / (sqrt(v) + eps), and by no more than 2 r, as both updates are within r.
    d = error * (rms of the tensor's gradient + the element's own largest gradient): rounding is
    spread over a tensor, and the clip scale and the rounded betas change an element in proportion.
    Elements whose gradient is exactly zero (positions that no row reaches) get d = 0. To this come
    the roundings of the weight itself, four a step.
    """

    def __init__(self, error, weight, epsilon=EPSILON):
        self.error = error
        self.epsilon = epsilon
        self.error_of_gradient = np.zeros(weight.shape)
        self.largest = np.zeros(weight.shape)
        self.bound = np.zeros(weight.shape)

    def add_step(self, step, gradient, second_moment, weight):
        """`gradient` after clipping, `second_moment` and `weight` after the step."""
        self.largest = np.maximum(self.largest, np.abs(gradient))
        rms = math.sqrt(np.mean(gradient ** 2))
        self.error_of_gradient = np.maximum(
            self.error_of_gradient, np.where(self.largest > 0, self.error * (rms + self.largest), 0))
        root = np.sqrt(second_moment / (1 - BETA2 ** step)) + self.epsilon
        ratio = self.largest_ratio(step)
        self.bound += RATE * np.minimum(2 * ratio, (1 + ratio) * self.error_of_gradient / root)
        self.bound += 4 * 2.0 ** -24 * np.abs(weight)

    @staticmethod
    def largest_ratio(step):
        ages = np.arange(step)
        a = (1 - BETA1) * BETA1 ** ages / (1 - BETA1 ** step)
        b = (1 - BETA2) * BETA2 ** ages / (1 - BETA2 ** step)
        return math.sqrt(np.sum(a ** 2 / b))


def train(weights, shape, tokens, dtype, bounds=None, frozen=(), epsilon=EPSILON):
    """tokens [steps, A, B, T + 1] -> (losses, gradient norms, {name: final weight}). Tensors named in
    `frozen` have no gradient: neither norm nor AdamW knows them."""
    p = gpt2.parameters(weights, dtype, frozen)
    adamw = open_adamw(p, epsilon)
    losses, norms = [], []
    for step, micro_batches in enumerate(tokens, start=1):
        adamw.zero_grad()
        loss = 0.0
        for rows in micro_batches:
            part = gpt2.loss_of(p, shape, rows)[0] / len(micro_batches)
            part.backward()
            loss += part.item()
        norms.append(torch.nn.utils.clip_grad_norm_([t for t in p.values() if t.requires_grad], CLIP).item())
        losses.append(loss)
        adamw.step()
        for name, bound in (bounds or {}).items():
            bound.add_step(step, p[name].grad.numpy(), adamw.state[p[name]]["exp_avg_sq"].numpy(),
                           p[name].detach().numpy())
    return np.array(losses), np.array(norms), {n: t.detach().numpy() for n, t in p.items()}


def make_gradients(shape, weights, micro_batch):
    """The first micro-batch alone: (tensors for the file, {name: error allowed})."""
    loss32, _, gradients32 = gpt2.gradients_of(weights, shape, [micro_batch], torch.float32)
    loss, logits, gradients = gpt2.gradients_of(weights, shape, [micro_batch], torch.float64)
    tensors = {"loss": np.array([loss]), "loss_fp32": np.array([loss32]),
               "logits": logits[0]}
    errors = {}
    for name, gradient in gradients.items():
        error = gpt2.relative_error(name, gradients32[name], gradient)
        errors[name] = max(GRADIENT_ERROR, 2 * error)
        tensors["gradient." + name] = gradient
        tensors["torch_error." + name] = np.array([error])
    worst = max(errors, key=lambda name: float(tensors["torch_error." + name][0]))
    print(f"gradients: norm {math.sqrt(sum(np.sum(g ** 2) for g in gradients.values())):.3f}, "
          f"PyTorch fp32's worst error {tensors['torch_error.' + worst][0]:.2e} ({worst})")
    return tensors, errors


def make_steps(shape, weights, tokens, errors):
    """Ten AdamW steps: tensors for the file. Fails if PyTorch's own fp32 run breaks the bounds."""
    bounds = {name: WeightBound(errors[name], weights[name]) for name in weights}
    losses32, norms32, final32 = train(weights, shape, tokens, torch.float32)
    losses, norms, final = train(weights, shape, tokens, torch.float64, bounds)
    tensors = {"losses": losses, "losses_fp32": losses32,
               "gradient_norms": norms, "gradient_norms_fp32": norms32}
    worst = 0.0
    for name, weight in final.items():
        tensors["weight." + name] = weight
        tensors["bound." + name] = bounds[name].bound.astype(np.float32)
        share = gpt2.without_key_bias(name, np.abs(final32[name] - weight) / bounds[name].bound)
        tensors["torch_share." + name] = np.array([share.max()])
        worst = max(worst, share.max())
    print(f"steps: losses {losses[0]:.4f} .. {losses[-1]:.4f}, fp32 off by "
          f"{np.max(np.abs(losses32 / losses - 1)):.1e}; norms {norms.min():.2f} .. "
          f"{norms.max():.2f}; PyTorch fp32's weights use {worst:.2f} of the bounds")
    if worst > 1:
        raise SystemExit("PyTorch's fp32 run breaks the bounds: they are not derived rightly")
    return tensors


def make_small(directory):
    shape = gpt2.SHAPES["small"]
    weights = gpt2.draw_lively(shape, seed=1)
    tokens = draw_tokens(shape, (STEPS, MICRO_BATCHES, BATCH, SEQ + 1), seed=2)
    gpt2.write_directory(directory, shape, weights)
    gradients, errors = make_gradients(shape, weights, tokens[0, 0])
    steps = make_steps(shape, weights, tokens, errors)
    for name, tensors in (("tokens", {"tokens": tokens}), ("gradients", gradients),
                          ("steps", steps)):
        tensor_file.write(os.path.join(directory, name + ".safetensors"), tensors)


def make_gpt2(directory, batch, seq, dtype=torch.float32):
    """Weights are fp32 in the file, but rounded to `dtype`."""
    shape = gpt2.SHAPES["gpt2"]
    weights = {name: torch.tensor(values).to(dtype).float().numpy()
               for name, values in gpt2.draw_initial(shape, seed=3).items()}
    gpt2.write_directory(directory, shape, weights)
    tokens = draw_tokens(shape, (1, batch, seq + 1), seed=4)
    tensor_file.write(os.path.join(directory, "tokens.safetensors"), {"tokens": tokens})


def check_transformers(directory):
    """The model here and transformers' GPT2LMHeadModel, both in float64, loaded from `directory`."""
    import transformers
    model = transformers.GPT2LMHeadModel.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="eager").eval()
    micro_batch = tensor_file.read(os.path.join(directory, "tokens.safetensors"))["tokens"][0, 0]
    ours = tensor_file.read(os.path.join(directory, "gradients.safetensors"))
    rows = torch.tensor(np.array(micro_batch), dtype=torch.long)
    logits = model(rows[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
    worst = float(np.max(np.abs(logits.detach().numpy() - ours["logits"])))
    for name, tensor in model.transformer.named_parameters():
        worst = max(worst, gpt2.relative_error(name, tensor.grad.numpy(),
                                               np.array(ours["gradient." + name])))
    print(f"transformers {transformers.__version__}: largest difference {worst:.1e}")
    if worst > 1e-12:
        raise SystemExit("the model here is not transformers' GPT-2")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(gpt2.SHAPES), default="small")
    parser.add_argument("--output", metavar="DIR", help="(small/ beside this script)")
    parser.add_argument("--batch", type=int, default=2, help="gpt2: rows (2)")
    parser.add_argument("--seq", type=int, default=128, help="gpt2: tokens of a row (128)")
    parser.add_argument("--check-transformers", action="store_true")
    options = parser.parse_args()
    if options.shape == "gpt2" and not options.output:
        parser.error("--shape gpt2 needs --output DIR: its files are large")
    directory = options.output or os.path.join(here, "small")
    print(f"torch {torch.__version__}, numpy {np.__version__}")
    if options.check_transformers:
        check_transformers(directory)
    elif options.shape == "gpt2":
        make_gpt2(directory, options.batch, options.seq)
    else:
        make_small(directory)


if __name__ == "__main__":
    main()
