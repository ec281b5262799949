#!/usr/bin/env python3
"""Compares `sluice tokenize` with the tokenizers library: ids of 100,000 lines of mixed text and of a
word of 1 MB, merges learnt from three corpora, with every vocabulary found and learnt; and any bytes,
for which the library has no ids, come back. Then how fast that library, tiktoken and sluice make ids.

usage: compare_tokens.py --sluice PROGRAM [--lines N] [--gpt2 DIR] [--rounds N] [--speed-only]
       --gpt2 or SL_TEST_GPT2: a directory with GPT-2's own vocab.json and merges.txt
       --rounds N              of the speeds, taken in turn (5); 0: none

Speeds: the files of Python's own library, each a document, on all cores. Sluice's is that of its
command, from its start until the file of ids is synced; the libraries' is that of one call for all
documents, which lie in memory. Each round has all three one behind the other; the least counts. They
are printed and not held to anything: other work on the machine changes them.
Leaves with 77 where the library is not installed.
"""
import argparse
import json
import os
import subprocess
import sys
import sysconfig
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
SPEED_CHARACTERS = 10000000


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


def compare_bytes(options, directory, name):
    """Every byte beside every other one, then random ones."""
    pairs = bytes(byte for first in range(256) for second in range(256) for byte in (first, second))
    with open("bytes", "wb") as out:
        out.write(pairs + numpy.random.default_rng(7).bytes(1000000))
    run([options.sluice, "tokenize", "--tokenizer", directory, "--data", "bytes", "--output", "ids.bin",
         "--quiet"])
    run([options.sluice, "tokenize", "--tokenizer", directory, "--decode", "--data", "ids.bin",
         "--output", "back", "--quiet"])
    if open("bytes", "rb").read() != open("back", "rb").read():
        sys.exit(f"{name}: bytes do not come back")
    print(f"{name}: {os.path.getsize('bytes')} bytes come back from {len(read_ids('ids.bin'))} ids")


# ---- speed ----

def list_documents():
    """Paths and texts of the library's sources that are UTF-8 and not empty, some 10 MB."""
    documents, characters = {}, 0
    for root, names, files in os.walk(sysconfig.get_paths()["stdlib"]):
        names[:] = [name for name in names if name not in ("dist-packages", "site-packages")]
        for path in sorted(os.path.join(root, file) for file in files if file.endswith(".py")):
            try:
                text = open(path, encoding="utf-8", newline="").read()
            except UnicodeDecodeError:
                continue
            if text and characters < SPEED_CHARACTERS:
                documents[path] = text
                characters += len(text)
    return documents


def open_tiktoken(directory):
    """An encoding of tiktoken with the ids of a vocabulary, or None."""
    try:
        import tiktoken
    except ImportError:
        print("tiktoken is not installed: left out")
        return None
    codes = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shown = {chr(code): code for code in codes}
    shown |= {chr(256 + i): code for i, code in enumerate(sorted(set(range(256)) - set(codes)))}
    vocabulary = json.load(open(f"{directory}/vocab.json", encoding="utf-8"))
    ranks = {bytes(shown[letter] for letter in token): number
             for token, number in vocabulary.items() if token != "<|endoftext|>"}
    pattern = (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s")
    return tiktoken.Encoding("here", pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": vocabulary["<|endoftext|>"]})


def measure(work):
    started = time.time()
    work()
    return time.time() - started


def compare_speed(options, directory, name):
    documents = list_documents()
    texts, cores = list(documents.values()), len(os.sched_getaffinity(0))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    library, encoding = open_reference(directory), open_tiktoken(directory)
    with open("paths", "w", encoding="utf-8") as out:
        json.dump({"data": list(documents)}, out)
    contenders = {"sluice": lambda: run([options.sluice, "tokenize", "--config", "paths", "--tokenizer",
                                         directory, "--output", "ids.bin", "--quiet"]),
                  "tokenizers": lambda: library.encode_batch_fast(texts)}
    if encoding:
        contenders["tiktoken"] = lambda: encoding.encode_ordinary_batch(texts, num_threads=cores)
    seconds = {name: [] for name in contenders}
    print(f"{name}: {len(texts)} documents, {megabytes:.1f} MB, {cores} cores, MB/s")
    for _ in range(options.rounds):
        for contender, work in contenders.items():
            seconds[contender].append(measure(work))
        print("  " + "  ".join(f"{contender} {megabytes / times[-1]:.2f}"
                               for contender, times in seconds.items()))
    best = {contender: min(times) for contender, times in seconds.items()}
    print("  at best " + "  ".join(f"{contender} {megabytes / time:.2f} ({time / best['sluice']:.1f} "
                                   "times as long)" for contender, time in best.items()))
    theirs = [number for ids in library.encode_batch_fast(texts) for number in [*ids.ids, None]]
    ours = read_ids("ids.bin").tolist()
    end = ours[-1]
    if [end if number is None else number for number in theirs] != ours:
        sys.exit(f"{name}: ids differ from the library's")


def write_sources(path, pattern):
    names = subprocess.run(["git", "-C", ROOT, "ls-files", pattern], capture_output=True, text=True,
                           check=True).stdout.split()
    with open(path, "wb") as out:
        for name in names:
            out.write(open(os.path.join(ROOT, name), "rb").read())


def compare(options):
    """The directories of all vocabularies."""
    with open("mixed", "w", encoding="utf-8", newline="") as out:
        out.write(make_text(3, options.lines))
    with open("long", "w", encoding="utf-8", newline="") as out:  # the library's trainer takes for ever
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
        compare_ids(options, directory, "long", f"long words by {directory}")
        compare_bytes(options, directory, f"bytes by {directory}")
    compare_ids(options, directories[-1], "sources", "sources")
    return directories


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--gpt2", default=os.environ.get("SL_TEST_GPT2"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--speed-only", action="store_true")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    options.gpt2 = options.gpt2 and os.path.abspath(options.gpt2)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        directory = options.gpt2 if options.speed_only else compare(options)[-1]
        if options.rounds > 0 and directory:
            compare_speed(options, directory, f"speed by {directory}")


main()
