#!/usr/bin/env python3
"""Compares models of the Llama family with the transformers library, on directories of random weights
that transformers saved: Llama with each scaling of rotary positions, Qwen 2 and Qwen 3 (three models of each)
and OLMo 2 (two), tied and untied, with odd sizes.

usage: compare_llama.py --sluice PROGRAM --tool DUMP_GRADIENTS [--directory DIR] [--page]
       compare_llama.py --fixture DIR    remakes llama/ beside this script, for tests/program/test_llama.c
  --page      the models of docs/add-a-model.md instead, for a tree that has its patch

  numbers     fp32: loss, logits and every gradient are within 1e-5 of transformers' in float64 from
              the same weights, relative to the largest element of each; bf16: no farther than twice
              transformers' own bf16, or than the worst tensor of that
  text        64 greedy tokens (bytes) are those of transformers
  directory   what `sluice convert` writes of the model loads in transformers with every bit of every
              weight, whole and in shards; trained for two steps, saved and written, it gives sluice's logits
  gguf        llama.cpp (xllamacpp or llama_cpp, where one is installed) loads the fp32 file and gives
              the same greedy text

Leaves with 77 where torch or transformers is not installed, and says so where llama.cpp is not.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import llama_cpp_text
import tensor_file

IDS, SEQ, PROMPT = 257, 33, "The plan"
LIMIT = 1e-5
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500.0}
# kind, (layers, width, heads, kv heads, features of a head, ffn), tied, rotary positions
MODELS = [
    ("Llama", (2, 48, 6, 2, 8, 88), True, {"rope_type": "default", "rope_theta": 10000.0}),
    ("Llama", (3, 40, 5, 5, 8, 56), False, {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4}),
    ("Llama", (2, 72, 9, 3, 6, 100), False, LLAMA3),
    ("Qwen2", (2, 56, 7, 1, 8, 72), True, {"rope_type": "default", "rope_theta": 1e6}),
    ("Qwen2", (3, 60, 6, 3, 10, 64), False, {"rope_type": "default", "rope_theta": 1e6}),
    ("Qwen2", (1, 32, 4, 2, 8, 44), True, {"rope_type": "default", "rope_theta": 100.0}),
    ("Qwen3", (2, 40, 6, 2, 16, 72), True, {"rope_type": "default", "rope_theta": 1e6}),
    ("Qwen3", (3, 36, 3, 1, 14, 52), False, {"rope_type": "default", "rope_theta": 1e6}),
    ("Qwen3", (2, 64, 4, 4, 6, 90), True, {"rope_type": "default", "rope_theta": 1e4}),
    ("Olmo2", (2, 40, 5, 5, 8, 72), False, {"rope_type": "default", "rope_theta": 5e5}),
    ("Olmo2", (3, 36, 6, 2, 10, 52), True, {"rope_type": "default", "rope_theta": 1e4}),
]
PAGE_MODELS = [
    ("Gemma", (2, 40, 4, 1, 16, 72), True, {"rope_type": "default", "rope_theta": 1e4}),
    ("Gemma", (3, 36, 6, 3, 10, 60), True, {"rope_type": "default", "rope_theta": 500.0}),
]


def fail(text):
    sys.exit(f"FAILED: {text}")


def sluice(options, *arguments):
    done = subprocess.run([options.sluice, *arguments], capture_output=True)
    if done.returncode != 0:
        fail(f"sluice {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def make_model(directory, index, entry, ids=IDS):
    kind, (layers, width, heads, kv_heads, head, ffn), tied, rope = entry
    torch.manual_seed(index)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=ids, hidden_size=width, intermediate_size=ffn, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head,
        max_position_embeddings=128, tie_word_embeddings=tied, rope_parameters=rope,
        initializer_range=0.15, rms_norm_eps=1e-5, bos_token_id=ids - 1, eos_token_id=ids - 1,
        pad_token_id=None)  # of some kinds it is 0, whose row of the table then gets no gradient
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 1:  # biases and norms that are 0 and 1 would hide mistakes
                weights.add_(0.2 * torch.randn_like(weights))
    model.save_pretrained(directory, max_shard_size="30KB" if index % 3 == 1 else "5GB")
    return model


# ---- numbers ----

def our_name(name):
    return name.removeprefix("model.")


def is_linear(name):
    return "_proj.weight" in name


def run_torch(directory, tokens, dtype):
    """(loss, logits, {our name: gradient as here}) in `dtype`, as float64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    logits = model(tokens[:, :-1]).logits
    ids = logits.shape[-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, ids).to(torch.promote_types(dtype, torch.float32)),
                                             tokens[:, 1:].reshape(-1))
    loss.backward()
    gradients = {our_name(name): (p.grad.T if is_linear(name) else p.grad).double().numpy()
                 for name, p in model.named_parameters()}
    return loss.item(), logits.detach().double().numpy().reshape(-1, ids), gradients


def round_directory(directory, target):
    """The same model with weights that bf16 holds, in fp32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    model.float().save_pretrained(target)
    return target


def run_tool(options, directory, tokens, precision):
    if os.path.exists("dump.safetensors"):
        os.remove("dump.safetensors")
    tensor_file.write("tokens.safetensors", {"tokens": tokens.numpy().astype(np.int32)[None]})
    subprocess.run([options.tool, directory, "tokens.safetensors", "dump.safetensors", precision],
                   check=True)
    found = {name: np.array(values) for name, values in tensor_file.read("dump.safetensors").items()}
    gradients = {name.removeprefix("gradient."): values for name, values in found.items()
                 if name.startswith("gradient.")}
    return float(found["loss"][0]), found["logits"][:, :IDS], gradients


def off(found, true):
    """[(name, error relative to the largest element)]."""
    if set(found[2]) != set(true[2]):
        fail(f"other tensors: {set(found[2]) ^ set(true[2])}")
    pairs = {"logits": (found[1], true[1])} | {name: (found[2][name], gradient)
                                              for name, gradient in true[2].items()}
    return [("loss", abs(found[0] / true[0] - 1))] + [
        (name, np.max(np.abs(a - b)) / np.max(np.abs(b))) for name, (a, b) in pairs.items()]


def compare_numbers(options, directory, precision):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, IDS, (2, SEQ + 1), generator=generator)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    source = directory if precision == "fp32" else round_directory(directory, f"{directory}-rounded")
    true = run_torch(source, tokens, torch.float64)
    ours, theirs = off(run_tool(options, source, tokens, precision), true), off(
        run_torch(source, tokens, dtype), true)
    worst = max(ours, key=lambda row: row[1]), max(theirs, key=lambda row: row[1])
    print(f"  {precision}: loss {ours[0][1]:.1e} ({theirs[0][1]:.1e}), logits {ours[1][1]:.1e} "
          f"({theirs[1][1]:.1e}), largest {worst[0][0]} {worst[0][1]:.1e} ({worst[1][0]} {worst[1][1]:.1e})")
    for (name, error), (_, torch_error) in zip(ours, theirs):
        bound = LIMIT if precision == "fp32" else max(LIMIT, 2 * max(torch_error, worst[1][1] / 2))
        if not error <= bound:
            fail(f"{directory} {precision}: {name} is off by {error:.1e}, transformers by {torch_error:.1e}")


FIXTURES = {
    "llama": ("Llama", (2, 24, 6, 2, 6, 28), False, LLAMA3),
    "qwen2": ("Qwen2", (2, 18, 3, 1, 6, 20), True, {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4}),
    "qwen3": ("Qwen3", (2, 24, 4, 2, 4, 20), True, {"rope_type": "default", "rope_theta": 1e6}),
    "gemma": ("Gemma", (2, 20, 3, 1, 8, 28), True, {"rope_type": "default", "rope_theta": 1e4}),
    "olmo2": ("Olmo2", (2, 20, 6, 2, 4, 28), False, {"rope_type": "default", "rope_theta": 1e4}),
}


def write_fixtures(target):
    for index, (name, entry) in enumerate(FIXTURES.items()):
        directory, ids = os.path.join(target, name), 61
        make_model(directory, 0, entry, ids)
        os.remove(f"{directory}/generation_config.json")
        tokens = torch.randint(0, ids, (2, 12), generator=torch.Generator().manual_seed(index))
        loss, logits, gradients = run_torch(directory, tokens, torch.float64)
        arrays = {"tokens": tokens.numpy().astype(np.int32), "loss": np.float32([loss]),
                  "logits": logits.astype(np.float32)}
        arrays |= {f"gradient.{name}": np.ascontiguousarray(gradient.astype(np.float32))
                   for name, gradient in gradients.items()}
        tensor_file.write(f"{directory}/gradients.safetensors", arrays)


# ---- text and files ----

def compare_text(options, directory, model):
    ids = torch.tensor([list(PROMPT.encode())])
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=64, do_sample=False,
                             attention_mask=torch.ones_like(ids), pad_token_id=256)
    theirs = bytes(i for i in out[0, ids.shape[1]:].tolist() if i < 256)
    ours = sluice(options, "generate", directory, "--prompt", PROMPT, "--tokens", "64", "--tokenizer",
                  "byte", "--temperature", "0", "--precision", "fp32", "--quiet").removesuffix(b"\n")
    if ours != theirs:
        fail(f"{directory}: greedy text differs:\n{ours!r}\n{theirs!r}")
    return ours


def convert(options, source, target, form="hf", *more):
    sluice(options, "convert", "--from", source, "--to", target, "--format", form, "--type", "fp32",
           "--tokenizer", "byte", "--quiet", *more)
    return target


def compare_directory(options, directory, model, index):
    more = ["--shard-size", "30K"] if index % 3 == 1 else []
    again = transformers.AutoModelForCausalLM.from_pretrained(
        convert(options, directory, f"{directory}-again", "hf", *more), dtype=torch.float32)
    for (name, a), b in zip(model.state_dict().items(), again.state_dict().values()):
        if not torch.equal(a, b):
            fail(f"{directory}: {name} changed")
    sluice(options, "train", "--init", directory, "--tokenizer", "byte", "--data", __file__, "--seq", "32",
           "--micro-batch", "2", "--steps", "2", "--lr", "1e-3", "--warmup", "0", "--save", f"{directory}-saved", "--quiet")
    trained = convert(options, f"{directory}-saved", f"{directory}-trained")
    tokens = torch.arange(2 * (SEQ + 1)).reshape(2, -1) * 7 % IDS
    errors = off(run_tool(options, trained, tokens, "fp32"), run_torch(trained, tokens, torch.float64))
    changed = transformers.AutoModelForCausalLM.from_pretrained(trained, dtype=torch.float32)
    if not all(error <= LIMIT for _, error in errors):
        fail(f"{directory}: trained and written, it is another model: {max(errors, key=lambda row: row[1])}")
    if any(torch.equal(a, b) for a, b in zip(model.state_dict().values(), changed.state_dict().values())):
        fail(f"{directory}: two steps left a tensor as it was")


def compare_llama_cpp(options, directory, ours):
    if options.page:  # the page leaves it out
        refused = subprocess.run([options.sluice, "convert", "--from", directory, "--to", f"{directory}.gguf",
                                  "--format", "gguf", "--tokenizer", "byte"], capture_output=True)
        if refused.returncode <= 0 or b"no file for llama.cpp" not in refused.stderr:
            fail(f"{directory}: a file for llama.cpp: {refused.returncode}, {refused.stderr.decode()}")
        return
    path = convert(options, directory, f"{directory}.gguf", "gguf")
    llama = llama_cpp_text.open_llama(path)
    if not llama:
        print("  llama.cpp is not installed: left out")
        return
    # Texts come as UTF-8: what is no character is replaced, by one mark or by several.
    theirs = llama(PROMPT, 64).replace("\ufffd", "")
    wanted = ours.decode("utf-8", "replace").replace("\ufffd", "")
    if theirs != wanted:
        fail(f"{path}: llama.cpp's greedy text differs:\n{wanted!r}\n{theirs!r}")
    print(f"  llama.cpp gives the same text: {theirs[:24]!r}...")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice")
    parser.add_argument("--tool")
    parser.add_argument("--directory")
    parser.add_argument("--fixture")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.fixture:
        write_fixtures(options.fixture)
        return
    options.sluice, options.tool = os.path.abspath(options.sluice), os.path.abspath(options.tool)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(options.directory or scratch)
        models = PAGE_MODELS if options.page else MODELS
        for index, (kind, sizes, tied, rope) in enumerate(models):
            directory = f"{kind.lower()}-{index}"
            print(f"{kind} {sizes}, {'tied' if tied else 'untied'}, {rope['rope_type']}: off by (transformers)")
            model = make_model(directory, index, models[index])
            compare_numbers(options, directory, "fp32")
            compare_numbers(options, directory, "bf16")
            text = compare_text(options, directory, model)
            compare_llama_cpp(options, directory, text)
            compare_directory(options, directory, model, index)
    print(f"{len(models)} models: text and files are those of transformers {transformers.__version__}")


main()
