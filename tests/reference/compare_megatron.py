#!/usr/bin/env python3
"""Compares the Megatron files of `sluice tokenize` with megatron-core's own reader and writer.

usage: compare_megatron.py --sluice PROGRAM

IndexedDataset reads what was written here: as many documents, each with its ids. IndexedDatasetBuilder
writes the same ids into files that are, byte for byte, those written here, so that what reads ours
reads theirs. For ids of 16 and of 32 bits.
Leaves with 77 where megatron-core is not installed.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def fail(text):
    sys.exit(f"FAILED: {text}")


def make_documents(count):
    draw = np.random.default_rng(9)
    words = ["water", "gate", "the", "lock", "rises", "ä", "1859", "of", "…", "'s"]
    return [" ".join(draw.choice(words, int(draw.integers(1, 200)))) for _ in range(count)]


def compare(options, dtype, documents, name, more):
    with open("lines", "w", encoding="utf-8") as out:
        out.write("\n".join(documents) + "\n")
    subprocess.run([options.sluice, "tokenize", "--tokenizer", "vocabulary", "--data", "lines",
                    "--document-per", "line", "--format", "megatron", "--output", name, "--quiet",
                    *more], check=True)
    dataset = IndexedDataset(name)
    if len(dataset) != len(documents) or len(dataset.document_indices) != len(documents) + 1:
        fail(f"{len(dataset)} documents are read, not {len(documents)}")
    ids = [np.array(dataset[i]) for i in range(len(dataset))]
    if ids[0].dtype != dtype:
        fail(f"ids are {ids[0].dtype}, not {dtype}")
    subprocess.run([options.sluice, "tokenize", "--tokenizer", "vocabulary", "--data", "lines",
                    "--document-per", "line", "--format", "llmc", "--output", "plain.bin",
                    "--quiet"], check=True)
    plain = np.fromfile("plain.bin", dtype=dtype)[1024 // np.dtype(dtype).itemsize:]
    if not np.array_equal(np.concatenate(ids), plain):
        fail("ids differ from those of the llm.c file")
    builder = IndexedDatasetBuilder("theirs.bin", dtype=dtype)
    for document in ids:
        builder.add_item(torch.tensor(document.astype(np.int64)))
        builder.end_document()
    builder.finalize("theirs.idx")
    for ending in (".bin", ".idx"):
        if open(f"theirs{ending}", "rb").read() != open(name + ending, "rb").read():
            fail(f"{name}{ending} differs from what IndexedDatasetBuilder writes")
    print(f"{name}: {len(ids)} documents, {len(plain)} ids of {np.dtype(dtype).name}: read by "
          "IndexedDataset, and the bytes of IndexedDatasetBuilder")


def make_wide_vocabulary():
    """More than 65,500 tokens: what is learnt, and as many that no text has."""
    import json
    tokens = json.load(open("vocabulary/vocab.json", encoding="utf-8"))
    while len(tokens) < 70000:
        tokens[f"<|none {len(tokens)}|>"] = len(tokens)
    json.dump(tokens, open("vocabulary/vocab.json", "w", encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--documents", type=int, default=3000)
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    documents = make_documents(options.documents)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open("lines", "w", encoding="utf-8") as out:
            out.write("\n".join(documents) + "\n")
        subprocess.run([options.sluice, "tokenize", "--learn", "300", "--tokenizer", "vocabulary",
                        "--data", "lines", "--quiet"], check=True)
        compare(options, np.uint16, documents, "narrow", [])
        make_wide_vocabulary()
        compare(options, np.int32, documents, "wide", [])


main()
