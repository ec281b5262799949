#!/usr/bin/env python3
"""Writes the fixtures of tests/text/test_bpe.c by the tokenizers library: a text, the vocabulary that is
learnt from it, in both kinds of files, and the ids of another text.

usage: make_tokens.py [DIR]     (DIR: tests/reference/bpe; needs tokenizers)
"""
import json
import os
import struct
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mixed_text import make_text

TOKENS = 700


def learn(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=TOKENS - 1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def write(name, data):
    with open(name, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "bpe"))
    corpus, text = make_text(1, 120), make_text(2, 200)
    plain = learn(corpus)
    tokenizer = Tokenizer.from_str(plain.to_str())
    tokenizer.add_special_tokens(["<|endoftext|>"])
    model = json.loads(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    vocab["<|endoftext|>"] = tokenizer.token_to_id("<|endoftext|>")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    ids = plain.encode(text).ids
    write("corpus.txt", corpus)
    write("text.txt", text)
    write("vocab.json", json.dumps(vocab, ensure_ascii=False))
    write("merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    write("tokenizer.json", tokenizer.to_str())
    write("ids.bin", struct.pack(f"<{len(ids)}H", *ids))


main()
