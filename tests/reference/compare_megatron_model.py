#!/usr/bin/env python3
"""Compares Megatron-LM's pieces as sluice reads and writes them with those of write_megatron.py.

usage: compare_megatron_model.py --sluice PROGRAM [--quick]

  read     pieces that PyTorch wrote, of every order of query, key and value, both kinds of files, and
           the names of four generations, for TP 1, 2, 4 x PP 1, 2, 3: every weight bit for bit
  written  fp32, bf16 and fp16 for TP 1, 2, 4 x PP 1, 2, 4, from pieces and from a Hugging Face directory,
           loaded by torch.load, whole and mapped: every tensor of every piece bit for bit
  core     Megatron Core's GPTModel (its own layers, one rank) loads what is written, and gives the logits
           of transformers within 2e-5 of the largest

Leaves with 77 where torch or safetensors is not installed; says so where megatron-core is not.
"""
import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import write_megatron

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SMALL, GPT2 = (4, 32, 4, 16, 300), (12, 96, 12, 64, 50257)


def fail(text):
    sys.exit(f"FAILED: {text}")


def convert(options, source, target, *more):
    done = subprocess.run([options.sluice, "convert", "--from", source, "--to", target, "--overwrite", "--quiet",
                           *more], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"convert {source} {more}: {done.returncode}: {done.stderr}")
    return target


def draw_weights(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=generator)
            for name, tensor in write_megatron.count_weights(shape).items()}


def need_equal(got, want, what):
    if set(got) != set(want):
        fail(f"{what}: names differ: {sorted(set(got) ^ set(want))}")
    for name, tensor in want.items():
        if got[name].dtype != tensor.dtype or not torch.equal(got[name], tensor):
            fail(f"{what}: {name} differs")


# ---- read ----

def list_reads(options):
    names = ("first", "legacy", "core", "fused")
    for tp, pp, name, version, is_old in itertools.product((1, 2, 4), (1, 2, 3), names, (0, 1.0, 2.0, 3.0),
                                                           (False, True)):
        if not options.quick or (tp == 2 and version in (0, 3.0)):
            yield SMALL, tp, pp, name, version, is_old
    yield GPT2, 2, 2, "core", 3.0, False


def compare_reads(options, directory):
    count = 0
    for shape, tp, pp, names, version, is_old in list_reads(options):
        weights = draw_weights(shape, count)
        pieces = os.path.join(directory, f"read-{count}")
        write_megatron.write_pieces(pieces, weights, shape, tp, pp, names, version, is_old)
        out = convert(options, pieces, os.path.join(directory, "read.safetensors"), "--format", "weights")
        need_equal(load_file(out), weights, f"TP {tp} PP {pp} {names} version {version} old {is_old}")
        count += 1
    print(f"read: {count} sets of pieces")


# ---- written ----

def compare_piece(path, want, what):
    for is_mapped in (False, True):
        got = torch.load(path, weights_only=False, mmap=is_mapped)
        if got["checkpoint_version"] != 3.0 or got["args"].swiglu:
            fail(f"{what}: arguments or version")
        need_equal(got["model"], want, what)


def make_wanted(weights, shape, tp, pp, rank, stage, dtype):
    want = write_megatron.make_piece(weights, shape, tp, pp, rank, stage, "fused", 3.0, dtype)
    want = {name: tensor for name, tensor in want.items() if tensor is not None}
    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        if name in want: # rows that only pad are zeros here
            rows = want[name].shape[0]
            want[name][max(0, min(rows, shape[4] - rank * rows)):] = 0
    return want


def compare_written(options, directory):
    count = 0
    for shape in (SMALL,) if options.quick else (SMALL, GPT2):
        weights = draw_weights(shape, 5)
        source = os.path.join(directory, f"source-{shape[0]}")
        write_megatron.write_pieces(source, weights, shape)
        model = convert(options, source, os.path.join(directory, f"hf-{shape[0]}"))
        for tp, pp, kind in itertools.product((1, 2, 4), (1, 2, 4), TYPES):
            for start in (source, model):
                out = convert(options, start, os.path.join(directory, "written"), "--format", "megatron", "--tp",
                              str(tp), "--pp", str(pp), "--type", kind)
                for stage, rank in itertools.product(range(pp), range(tp)):
                    name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pp > 1 else "")
                    path = os.path.join(out, "release", name, "model_optim_rng.pt")
                    want = make_wanted(weights, shape, tp, pp, rank, stage, TYPES[kind])
                    compare_piece(path, want, f"{name} of TP {tp} PP {pp} {kind}")
                count += 1
    print(f"written: {count} models")


# ---- Megatron Core ----

def open_core(shape):
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    layers, width, heads, context, vocab = shape
    # Where its attention takes a buffer and a generator that a GPU has.
    torch.cuda.current_device = lambda: "cpu"
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    config = TransformerConfig(num_layers=layers, hidden_size=width, num_attention_heads=heads,
                               use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0,
                               bias_activation_fusion=False, masked_softmax_fusion=False,
                               activation_func=lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    return GPTModel(config, get_gpt_layer_local_spec(), -(-vocab // 128) * 128, context,
                    share_embeddings_and_output_weights=True).eval()


def compare_core(options, directory):
    shape = (2, 64, 4, 32, 300)
    try:
        import transformers
        model = open_core(shape)
    except ImportError as error:
        print(f"core: skipped: {error}")
        return
    weights = {name: tensor * 0.05 + (1 if "ln" in name and name.endswith("weight") else 0)
               for name, tensor in draw_weights(shape, 9).items()}
    source = os.path.join(directory, "core-source")
    write_megatron.write_pieces(source, weights, shape)
    hf = convert(options, source, os.path.join(directory, "core-hf"))
    out = convert(options, hf, os.path.join(directory, "core-pieces"), "--format", "megatron")
    state = torch.load(os.path.join(out, "release", "mp_rank_00", "model_optim_rng.pt"), weights_only=False)
    names = {"self_attention.linear_qkv.layer_norm_": "input_layernorm.",
             "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm."} # of layers that are not fused
    renamed = {}
    for name, tensor in state["model"].items():
        for fused, plain in names.items():
            name = name.replace(fused, plain)
        renamed[name] = tensor
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    if unexpected or [name for name in missing if "_extra_state" not in name]:
        fail(f"core: missing {missing}, unexpected {unexpected}")
    ids = torch.randint(0, shape[4], (2, shape[3]), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(shape[3]).expand(2, -1)
    mask = torch.triu(torch.ones(1, 1, shape[3], shape[3], dtype=torch.bool), 1)
    with torch.no_grad():
        ours = model(ids, positions, mask)[..., :shape[4]]
        reference = transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32).eval()
        theirs = reference(ids).logits
    gap = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"core: logits within {gap:.1e} of the largest")
    if not gap < 2e-5:
        fail("core: logits differ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        compare_reads(options, directory)
        compare_written(options, directory)
        compare_core(options, directory)


if __name__ == "__main__":
    main()
