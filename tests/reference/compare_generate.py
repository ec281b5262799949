#!/usr/bin/env python3
"""Compares `sluice generate` and `sluice eval` with the transformers library on GPT-2 directories of
random weights and GPT-2's own tokenizer: greedy text, greedy text with a repetition penalty, the
strided perplexity, and last words.

usage: compare_generate.py --sluice PROGRAM [--gpt2 DIR] [--tokens 64] [--directory DIR] [--shape N]
       --gpt2 or SL_TEST_GPT2: a directory with GPT-2's own vocab.json and merges.txt
Leaves with 77 where torch, transformers or the vocabulary are not there.

Both compute in fp32 and sum in other orders, so two ids whose logits are closer than that may be
taken in either order, and texts part there. The bound: a logit is a sum of `width` products behind
some ten roundings a layer, so its error is near 2^-24 * sqrt(width + 10 layers) of the largest
logit; eight times that is asked of the gap between the two best ids of float64 logits before a
difference counts as one. Steps where the gap is smaller are counted and printed; behind such a step
the two texts are compared no further.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# layers, width, heads, context, deviation of the weights: a large one makes logits differ more
SHAPES = [(2, 64, 4, 128, 0.2), (3, 120, 5, 96, 0.1), (6, 256, 8, 1024, 0.05)]
PROMPTS = ["The meaning of life is", "def main():\n    return", "Schleusen heben Schiffe: 12,5 m – ",
           "日本語のテキスト and 😀 emoji", " ", "a" * 40]
PENALTIES = [1.0, 1.3]
END = 50256
ROUNDING = 2.0 ** -24


def open_tokenizer(directory):
    tokenizer = Tokenizer(models.BPE.from_file(f"{directory}/vocab.json",
                                               f"{directory}/merges.txt"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_model(directory, vocabulary, shape, seed):
    layers, width, heads, context, deviation = shape
    torch.manual_seed(seed)
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=context,
                        initializer_range=deviation)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("bias"):
                weights.normal_(0, deviation)
    model.save_pretrained(directory, safe_serialization=True)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(f"{vocabulary}/{name}", directory)
    return model


def penalise(scores, seen, penalty):
    """As RepetitionPenaltyLogitsProcessor does it."""
    chosen = scores[seen]
    scores = scores.clone()
    scores[seen] = torch.where(chosen < 0, chosen * penalty, chosen / penalty)
    return scores


def find_gap(exact, ids, penalty):
    """The gap of the two best float64 logits behind ids, and the largest logit."""
    with torch.no_grad():
        scores = exact(torch.tensor([ids])).logits[0, -1]
    largest = scores.abs().max().item()
    if penalty != 1:
        scores = penalise(scores, torch.tensor(sorted(set(ids))), penalty)
    best = scores.topk(2).values
    return (best[0] - best[1]).item(), largest


def run_text(options, directory, prompt, penalty):
    with open("prompt", "wb") as file:
        file.write(prompt.encode())
    command = [options.sluice, "generate", directory, "--prompt-file", "prompt", "--tokens",
               str(options.tokens), "--temperature", "0", "--quiet", "--device", "cpu",
               "--precision", "fp32", "--repetition-penalty", str(penalty)]
    return subprocess.run(command, capture_output=True, check=True).stdout[:-1]


def compare_text(options, directory, model, exact, tokenizer, prompt, penalty):
    """True where the texts are equal; else where they part, the gap is checked."""
    ids = tokenizer.encode(prompt).ids
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)),
                             max_new_tokens=options.tokens, do_sample=False, pad_token_id=END,
                             eos_token_id=END, repetition_penalty=penalty)[0].tolist()
    new = [token for token in out[len(ids):] if token != END]
    theirs = decode(options, new)
    ours = run_text(options, directory, prompt, penalty)
    if ours == theirs:
        return True
    # The first token whose bytes are not those of our text.
    count = next(i for i in range(len(new) + 1)
                 if i == len(new) or not ours.startswith(decode(options, new[:i + 1])))
    gap, largest = find_gap(exact, ids + new[:count], penalty)
    config = model.config
    bound = 8 * ROUNDING * math.sqrt(config.n_embd + 10 * config.n_layer) * largest
    if gap > bound:
        sys.exit(f"{directory}: {prompt!r}, penalty {penalty}: texts part at token {count}, where "
                 f"the gap is {gap:.3g}, more than {bound:.3g}\nours   {ours!r}\ntheirs {theirs!r}")
    print(f"{directory}: {prompt!r}, penalty {penalty}: equal for {count} tokens, then the two best "
          f"logits are {gap:.3g} apart (bound {bound:.3g})")
    return False


BYTES = {}


def decode(options, ids):
    if not BYTES:
        plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        others = [byte for byte in range(256) if byte not in plain]
        letters = {chr(byte): byte for byte in plain}
        letters.update({chr(256 + i): byte for i, byte in enumerate(others)})
        with open(f"{options.gpt2}/vocab.json", encoding="utf-8") as file:
            for token, number in json.load(file).items():
                BYTES[number] = bytes(letters[c] for c in token) if number != END else b""
    return b"".join(BYTES[number] for number in ids)


def evaluate(options, directory, data, more):
    command = [options.sluice, "eval", directory, "--data", data, "--json", "--device", "cpu",
               "--precision", "fp32"] + more
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def compare_windows(options, directory, exact, tokenizer, stride):
    """The loop of transformers' guide to perplexity, the mean over all predicted tokens."""
    text = open(__file__, encoding="utf-8").read()[:2500]
    with open("text", "w", encoding="utf-8") as file:
        file.write(text)
    ids = tokenizer.encode(text).ids + [END]
    length = exact.config.n_positions
    total, count, previous = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        window = torch.tensor([ids[begin:end]])
        targets = window.clone()
        targets[:, :-(end - previous)] = -100
        with torch.no_grad():
            loss = exact(window, labels=targets).loss.item()
        valid = (targets[:, 1:] != -100).sum().item()
        total, count, previous = total + loss * valid, count + valid, end
        if end == len(ids):
            break
    ours = evaluate(options, directory, "text", ["--overlap", str(length - stride)])
    if ours["tokens"] != count or abs(ours["loss"] - total / count) > 1e-5 * total / count:
        sys.exit(f"{directory}: stride {stride}: loss {ours['loss']} over {ours['tokens']}, but "
                 f"transformers {total / count} over {count}")
    print(f"{directory}: strided loss {ours['loss']:.6f} over {count} tokens: transformers "
          f"{total / count:.6f}")


def compare_words(options, directory, exact, tokenizer):
    """Last words that the model itself says, and others."""
    right, total, count = 0, 0.0, 0
    with open("words.jsonl", "w", encoding="utf-8") as file:
        for number, prompt in enumerate(PROMPTS[:3] + ["One two three four", "It was the"]):
            ids = tokenizer.encode(prompt.strip()).ids
            with torch.no_grad():
                best = exact(torch.tensor([ids])).logits[0, -1].topk(200).indices.tolist()
            own = [decode(options, [token]) for token in best]
            own = [word for word in own if word[:1] == b" " and word[1:].isalpha()]
            words = [own[0].decode()[1:] if own else "lock", "water", "unbelievable"]
            for word in words:
                text = f"{prompt.strip()} {word}"
                file.write(json.dumps({"text": text}) + "\n")
                whole = tokenizer.encode(text).ids
                with torch.no_grad():
                    logits = exact(torch.tensor([whole])).logits[0]
                places = range(len(ids), len(whole))
                right += all(logits[p - 1].argmax().item() == whole[p] for p in places)
                total -= sum(logits[p - 1].log_softmax(-1)[whole[p]].item() for p in places)
                count += 1
    ours = evaluate(options, directory, "words.jsonl", ["--last-word"])
    theirs = math.exp(total / count)
    if (ours["documents"], ours["right"]) != (count, right) or \
            abs(ours["perplexity"] - theirs) > 1e-4 * theirs:
        sys.exit(f"{directory}: last words: {ours}, but {right} of {count}, perplexity {theirs}")
    print(f"{directory}: last words: {right} of {count} right, perplexity {theirs:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--gpt2", default=os.environ.get("SL_TEST_GPT2"))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--directory")
    parser.add_argument("--shape", type=int, help="one of the shapes alone, from 0")
    options = parser.parse_args()
    if not options.gpt2:
        print("skipped: no --gpt2 and no SL_TEST_GPT2")
        sys.exit(77)
    options.sluice, options.gpt2 = map(os.path.abspath, (options.sluice, options.gpt2))
    os.chdir(options.directory or tempfile.mkdtemp())
    tokenizer = open_tokenizer(options.gpt2)
    equal, parted = 0, 0
    for seed, shape in enumerate(SHAPES):
        if options.shape not in (None, seed):
            continue
        directory = f"gpt2-{shape[0]}x{shape[1]}"
        model = make_model(directory, options.gpt2, shape, seed + 1)
        exact = GPT2LMHeadModel.from_pretrained(directory).double().eval()
        for prompt in PROMPTS:
            for penalty in PENALTIES:
                same = compare_text(options, directory, model, exact, tokenizer, prompt, penalty)
                equal, parted = equal + same, parted + (not same)
        compare_windows(options, directory, exact, tokenizer, shape[3] // 3)
        compare_words(options, directory, exact, tokenizer)
    print(f"{equal} greedy texts of {options.tokens} tokens are equal, {parted} part at a tie")


if __name__ == "__main__":
    main()
