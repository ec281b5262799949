#!/usr/bin/env python3
"""Writes the fixtures of tests/text/test_pretokenizer.c by the tokenizers library: two tokenizers learnt
from mixed text, with the patterns of Llama 3 and of Qwen 2, and their ids of texts.

usage: make_patterns.py [DIR]     (DIR: tests/reference/patterns; needs tokenizers)

texts.bin holds the texts, each with a NUL behind it; ids.bin of each text the number of its ids, then
these, all of 32 bits.
"""
import json
import os
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mixed_text import make_text

TOKENS = 1000
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PROSE = """The lock keeper's daughter didn't say that they'd gone; we've heard it'll rain, and I'm sure you're
right. In 2024, 1234567 tons passed through 365 locks: 98.6 % of them on time. def main(): return {"a": [1, 22, 333]}
Die Schleuse ist ge\u00f6ffnet. \u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002 \ud55c\uad6d\uc5b4 \ubb38\uc7a5.
"""
TEXTS = [
    "we're WE'RE it's IT'S I'd I'D he'll HE'LL don'T '\u017f ''s 'sx", "1 12 123 1234 12345 1234567a12", "\u0661\u0662\u0663\u0664 \u2167\u2168\u2169\u216a\u00b2\u00b3",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\n\u4e2d\u6587\uff0c\u6ca1\u6709\u7a7a\u683c\u3002\n", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308\U0001f44d\U0001f3fd!",
    "e\u0301 \u00e9 a\u0323\u0307 a\u0307\u0323 \u1e69 s\u0323\u0307 \u212b \u2126 \uac00 \u1100\u1161\u11a8 \u0958\u0915\u093c\n", "\u0d3c\u0359 \u0359\u0d3c \U0001133b a\u1df6\u0301 \U00011935\U00011930",
    "a\u00a0b \u00a0c\u00a0\u00a0", "a\u180eb \u180e", "a\u0085b\u0085\u0085 c", "a\r\nb\r\n\r\nc\n\n\n d\r", "\ta\t\tb \t c\t", "a  b   c    ", "   \n  \n\n  x", " \n", "\n", " ", "",
    "\x01\x02a\x1b[31m\x7f\x80\x9f", "!?...\n\n/*\n */// a/b\r\n", "\u3000\u3000x\u2028y\u2029z", "x<|im_start|>y<|im_end|><|im_end|>z", "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_st art|> <|im_<|im_end|>", "a<think>b</think>", "\u1c89\u1c8a \U000105c0x \U0001e5d0 \U00010d40\U00010d41 \u0897 \U00031350", "\ufffe\uffff\U0010ffff\ue000 \u0378",
    "The lock keeper's  daughter\tdidn't", "    return x  # 12345\n\n\n    pass\n", "'", "'S", "caf\u0065\u0301<think>\u0301",
]


def learn(words, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(words), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=TOKENS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                  for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tokenizer


def write(name, data):
    with open(name, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def write_tokenizer(name, tokenizer, end_of_text, texts):
    os.makedirs(name, exist_ok=True)
    ids = [tokenizer.encode(text).ids for text in texts]
    write(f"{name}/tokenizer.json", tokenizer.to_str())
    write(f"{name}/tokenizer_config.json", json.dumps({"eos_token": end_of_text}))
    write(f"{name}/ids.bin", b"".join(struct.pack(f"<{len(some) + 1}I", len(some), *some) for some in ids))


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "patterns"))
    corpus = [PROSE * 3, make_text(3, 60)]
    texts = [text for text in TEXTS + make_text(4, 60).replace("\0", "").split("\n\n")]
    write("texts.bin", "".join(text + "\0" for text in texts))
    llama = json.loads(learn(WORDS % "{1,3}", corpus).to_str())
    llama["model"]["ignore_merges"] = True
    llama["model"]["merges"] = llama["model"]["merges"][:-40]  # the last tokens are words alone
    write_tokenizer("llama3", Tokenizer.from_str(json.dumps(llama)), "<|endoftext|>", texts)
    qwen = learn(WORDS % "", corpus)
    qwen.normalizer = normalizers.NFC()
    qwen.add_tokens([AddedToken("<think>", normalized=True), AddedToken("e\u0301<", normalized=True)])
    write_tokenizer("qwen2", qwen, {"content": "<|im_end|>", "special": True}, texts)


main()
