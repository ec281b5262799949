#!/usr/bin/env python3
"""Compares what `sluice convert` writes with what other programs make of it.

usage: compare_convert.py --sluice PROGRAM [--tool DUMP_GRADIENTS] [--gpt2 DIR]
       --gpt2 or SL_TEST_GPT2: a directory with GPT-2's own vocab.json and merges.txt

  transformers   loads the directory of a model trained here: logits are those of sluice within 1e-5 of
                 the largest, and 64 greedy tokens are the same; so are those of three random models
                 that transformers saved, read by sluice, and what sluice writes of them again, whole and
                 in shards, has every bit
  gguf           reads each GGUF file: every tensor is, bit for bit, what the package's own rounding
                 and blocks make of the fp32 weights
  llama.cpp      (llama_cpp or xllamacpp) loads each GGUF file; of fp32 it gives sluice's greedy text,
                 of the random models and of one of bytes too
  llm.c          a model goes there and back to the same bits; bf16 is torch's rounding

Leaves with 77 where torch, transformers or gguf is not installed; says so where llama.cpp is not.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import llama_cpp_text
import tensor_file

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROMPT = "The plan of a step is made before"
SHAPES = [(2, 64, 4), (3, 96, 2), (1, 160, 5)]
TYPES = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
         "fp16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
GGUF_NAMES = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
              "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
              "token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"}


def fail(text):
    sys.exit(f"FAILED: {text}")


def sluice(options, *arguments):
    done = subprocess.run([options.sluice, *arguments], capture_output=True)
    if done.returncode != 0:
        fail(f"sluice {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def convert(options, source, target, form, kind="fp32", *more):
    sluice(options, "convert", "--from", source, "--to", target, "--format", form, "--type", kind,
           "--quiet", *more)
    return target


def generate(options, model, prompt, tokens=64):
    """Our greedy text behind the prompt."""
    return sluice(options, "generate", model, "--prompt", prompt, "--tokens", str(tokens),
                  "--temperature", "0", "--precision", "fp32", "--quiet").decode("utf-8", "replace")[:-1]


# ---- transformers ----

def open_transformers(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(directory)


def generate_transformers(model, tokenizer, prompt, tokens=64):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=tokens, do_sample=False,
                             attention_mask=torch.ones_like(ids))
    new = [i for i in out[0, ids.shape[1]:].tolist() if i != tokenizer.eos_token_id]
    return tokenizer.decode(new, clean_up_tokenization_spaces=False)


def compare_text(options, ours, directory, name):
    model, tokenizer = open_transformers(directory)
    mine, theirs = generate(options, ours, PROMPT), generate_transformers(model, tokenizer, PROMPT)
    if mine != theirs:
        fail(f"{name}: greedy text differs:\n{mine!r}\n{theirs!r}")
    print(f"{name}: 64 greedy tokens are those of transformers {transformers.__version__}")


def compare_logits(options, step, directory, context, vocab):
    if not options.tool:
        print("logits: left out, as --tool is not given")
        return
    tokens = np.random.default_rng(5).integers(0, vocab, (1, 2, context + 1), dtype=np.int32)
    tensor_file.write("tokens.safetensors", {"tokens": tokens})
    subprocess.run([options.tool, step, "tokens.safetensors", "dump.safetensors", "fp32"],
                   check=True)
    ours = np.array(tensor_file.read("dump.safetensors")["logits"])
    model, _ = open_transformers(directory)
    with torch.no_grad():
        theirs = model(torch.tensor(tokens[0, :, :-1], dtype=torch.long)).logits.numpy()
    theirs = theirs.reshape(-1, theirs.shape[-1])[:, :vocab]
    worst = np.max(np.abs(ours[:, :vocab] - theirs)) / np.max(np.abs(theirs))
    print(f"logits of {theirs.shape[0]} tokens: off by {worst:.1e} of the largest")
    if not worst <= 1e-5:
        fail("logits are beyond 1e-5")


def compare_random_models(options, vocabulary):
    """Directories that transformers saved, whole and in shards, read here."""
    count = len(transformers.GPT2Tokenizer.from_pretrained(vocabulary))
    for index, (layers, width, heads) in enumerate(SHAPES):
        torch.manual_seed(index)
        config = transformers.GPT2Config(vocab_size=count, n_positions=128, n_embd=width,
                                         n_layer=layers, n_head=heads, bos_token_id=count - 1,
                                         eos_token_id=count - 1, initializer_range=0.2)
        directory = f"random{index}"
        model = transformers.GPT2LMHeadModel(config)
        model.save_pretrained(directory, max_shard_size="200KB" if index == 1 else "5GB")
        for name in ("vocab.json", "merges.txt"):
            with open(f"{directory}/{name}", "wb") as out:
                out.write(open(f"{vocabulary}/{name}", "rb").read())
        compare_text(options, directory, directory, f"random model {layers} x {width}")
        more = ["--shard-size", "200K"] if index == 1 else []
        convert(options, directory, f"{directory}-again", "hf", "fp32", *more)
        if os.path.exists(f"{directory}-again/model.safetensors.index.json") != (index == 1):
            fail(f"{directory}: an index where one file is, or none beside shards")
        again, _ = open_transformers(f"{directory}-again")
        for (name, a), b in zip(model.state_dict().items(), again.state_dict().values()):
            if not torch.equal(a, b):
                fail(f"{directory}: {name} changed")


# ---- GGUF ----

def hf_name(name):
    parts = name.split(".")
    if parts[0] == "blk":
        return f"transformer.h.{parts[1]}.{GGUF_NAMES[parts[2]]}.{parts[3]}"
    return f"transformer.{GGUF_NAMES[parts[0]]}.{parts[1]}"


def compare_gguf(path, weights, kind):
    reader = gguf.GGUFReader(path)
    if len(reader.tensors) != len(weights):
        fail(f"{path}: {len(reader.tensors)} tensors, not {len(weights)}")
    for tensor in reader.tensors:
        name = hf_name(tensor.name)
        data = np.array(weights[name])
        if ".c_" in name and name.endswith(".weight"):
            data = np.ascontiguousarray(data.T)
        wanted = TYPES[kind]
        if data.ndim == 1 or tensor.name == "position_embd.weight":
            wanted = gguf.GGMLQuantizationType.F32
        elif kind == "q8_0" and data.shape[-1] % 32 != 0:
            wanted = gguf.GGMLQuantizationType.F16
        if tensor.tensor_type != wanted:
            fail(f"{path}: {tensor.name} is {tensor.tensor_type}, not {wanted}")
        if gguf.quants.quantize(data, wanted).tobytes() != np.array(tensor.data).tobytes():
            fail(f"{path}: {tensor.name} is not what the package makes of it")
    pre = reader.fields["tokenizer.ggml.pre"]
    if bytes(pre.parts[pre.data[0]]).decode() != "gpt-2":
        fail(f"{path}: another pre-tokenizer")
    print(f"{path}: {len(reader.tensors)} tensors are bit for bit those of the package gguf")


def common(a, b):
    """Bytes that two texts share at their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def compare_llama(options, model, paths):
    ours = generate(options, model, PROMPT)
    for kind, path in paths.items():
        llama = llama_cpp_text.open_llama(path)
        if not llama:
            print(f"{path}: llama.cpp is not installed: left out")
            return
        theirs = llama(PROMPT, 64)
        print(f"{path}: llama.cpp gives {theirs[:40]!r}..., {common(ours, theirs)} of {len(ours)} "
              "letters as ours in fp32")
        if kind == "fp32" and theirs != ours:
            fail(f"greedy text differs:\n{ours!r}\n{theirs!r}")


def compare_bytes(options):
    """A model of bytes: its vocabulary has no merges."""
    sluice(options, "train", "--layers", "2", "--width", "64", "--heads", "2", "--context", "128",
           "--data", os.path.join(ROOT, "README.md"), "--steps", "60", "--warmup", "5", "--lr",
           "5e-3", "--save", "bytes", "--quiet")
    compare_text(options, "bytes", convert(options, "bytes", "bytes-hf", "hf"), "model of bytes")
    compare_llama(options, "bytes", {"fp32": convert(options, "bytes", "bytes.gguf", "gguf")})


# ---- llm.c ----

def compare_llmc(options, directory):
    convert(options, directory, "model.bin", "llmc")
    convert(options, "model.bin", "back", "hf")
    if open("back/model.safetensors", "rb").read() != open(f"{directory}/model.safetensors",
                                                           "rb").read():
        fail("llm.c: a weight changed on its way there and back")
    convert(options, directory, "half.bin", "llmc", "bf16")
    half = torch.from_file("half.bin", size=os.path.getsize("half.bin") // 2, dtype=torch.bfloat16)
    full = np.fromfile("model.bin", dtype=np.float32)[256:]
    if not torch.equal(half[512:], torch.tensor(full).to(torch.bfloat16)):
        fail("llm.c: bf16 is not torch's rounding")
    print("llm.c: there and back to the same bits; bf16 is torch's rounding")


# ---- all ----

def train(options):
    """A model of this tree's documents."""
    import glob
    data = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
    vocabulary = options.gpt2
    if not vocabulary:
        print("GPT-2's own vocabulary is not given: one is learnt")
        vocabulary = "vocabulary"
        sluice(options, "tokenize", "--learn", "600", "--tokenizer", vocabulary, "--data", *data,
               "--quiet")
    sluice(options, "train", "--layers", "3", "--width", "96", "--heads", "3", "--context", "128",
           "--vocab", "50304" if options.gpt2 else "640", "--tokenizer", vocabulary, "--data", *data,
           "--steps", str(options.steps), "--warmup", "5", "--lr", "2e-3", "--save", "saved",
           "--quiet")
    return vocabulary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--tool")
    parser.add_argument("--gpt2", default=os.environ.get("SL_TEST_GPT2"))
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    options.tool = options.tool and os.path.abspath(options.tool)
    options.gpt2 = options.gpt2 and os.path.abspath(options.gpt2)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        vocabulary = train(options)
        vocab = 50304 if options.gpt2 else 640
        hf = convert(options, "saved", "hf", "hf")
        step = f"saved/step-{options.steps:08d}"
        compare_logits(options, step, hf, 128, vocab)
        compare_text(options, "saved", hf, "trained model")
        compare_random_models(options, vocabulary)
        weights = tensor_file.read("hf/model.safetensors")
        paths = {kind: convert(options, "saved", f"{kind}.gguf", "gguf", kind) for kind in TYPES}
        for kind, path in paths.items():
            compare_gguf(path, weights, kind)
        compare_llmc(options, hf)
        compare_llama(options, "saved", paths)
        for index in range(len(SHAPES)):
            path = convert(options, f"random{index}", f"random{index}.gguf", "gguf")
            compare_llama(options, f"random{index}", {"fp32": path})
        compare_bytes(options)


main()
