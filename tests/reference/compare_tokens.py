#!/usr/bin/env python3
"""Compares `sluice tokenize` with the tokenizers library: ids of 100,000 lines of mixed text and of a
word of 1 MB, merges learnt from three corpora, with every vocabulary found and learnt.

usage: compare_tokens.py --sluice PROGRAM [--lines N] [--gpt2 DIR]
       --gpt2 or SL_TEST_GPT2: a directory with GPT-2's own vocab.json and merges.txt
Leaves with 77 where the library is not installed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError:
    print("tokenizers or numpy is not installed")
    sys.exit(77)

from mixed_text import make_text

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def split_words(tokenizer):
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def open_reference(directory):
    return split_words(Tokenizer(models.BPE.from_file(f"{directory}/vocab.json",
                                                      f"{directory}/merges.txt")))


def run(arguments):
    subprocess.run(arguments, check=True)


def read_ids(path):
    data = open(path, "rb").read()
    return numpy.frombuffer(data[1024:], dtype=numpy.uint16)


def compare_ids(options, directory, path, name):
    run([options.sluice, "tokenize", "--tokenizer", directory, "--data", path, "--output", "ids.bin",
         "--quiet"])
    ours = read_ids("ids.bin")[:-1]
    started = time.time()
    text = open(path, encoding="utf-8", newline="").read()
    theirs = open_reference(directory).encode(text).ids
    if list(ours) != theirs:
        sys.exit(f"{name}: ids differ from the library's")
    print(f"{name}: {len(theirs)} ids are equal (the library: {time.time() - started:.1f} s)")


def compare_learning(options, path, count, name):
    directory = f"learnt-{name}"
    run([options.sluice, "tokenize", "--learn", str(count), "--tokenizer", directory, "--data", path,
         "--quiet"])
    reference = split_words(Tokenizer(models.BPE()))
    trainer = trainers.BpeTrainer(vocab_size=count - 1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    reference.train_from_iterator([open(path, encoding="utf-8", newline="").read()], trainer)
    model = json.loads(reference.to_str())["model"]
    theirs = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    ours = open(f"{directory}/merges.txt", encoding="utf-8").read().split("\n")[1:-1]
    if ours != theirs:
        sys.exit(f"{name}: learnt merges differ from BpeTrainer's")
    print(f"{name}: {len(ours)} learnt merges are equal")
    return directory


def write_sources(path, pattern):
    names = subprocess.run(["git", "-C", ROOT, "ls-files", pattern], capture_output=True, text=True,
                           check=True).stdout.split()
    with open(path, "wb") as out:
        for name in names:
            out.write(open(os.path.join(ROOT, name), "rb").read())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--gpt2", default=os.environ.get("SL_TEST_GPT2"))
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    options.gpt2 = options.gpt2 and os.path.abspath(options.gpt2)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open("mixed", "w", encoding="utf-8", newline="") as out:
            out.write(make_text(3, options.lines))
            out.write("x" * 1000000 + "\n" + "ab'cd!!" * 30000)
        write_sources("sources", "*.c")
        write_sources("prose", "*.md")
        directories = [compare_learning(options, "mixed", 5000, "mixed"),
                       compare_learning(options, "sources", 8000, "sources"),
                       compare_learning(options, "prose", 3000, "prose")]
        if options.gpt2:
            directories.append(options.gpt2)
        else:
            print("GPT-2's own vocabulary is not given: left out")
        for directory in directories:
            compare_ids(options, directory, "mixed", f"mixed text by {directory}")
        compare_ids(options, directories[-1], "sources", "sources")


main()
