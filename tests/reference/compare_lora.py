#!/usr/bin/env python3
"""Compares adapters of LoRA with PEFT's, on small random models that transformers saved.

usage: compare_lora.py --sluice PROGRAM

  steps       30 steps from adapters that PEFT saved, in fp32 with AdamW, clipping and weight decay: the
              losses are within 1e-5 of torch's
  start       adapters that begin here are bounded as PEFT's: A uniform within 1 / sqrt(in), B zeros
  files       what `sluice convert --format peft` writes of the trained adapters loads in PEFT, with every bit
              of every tensor, and `sluice eval --adapter` has the loss that PEFT computes
  frozen      30 steps over a base in codes of 8 bits (--frozen-type int8): the losses are within 1e-5 of torch's
              over weights that were rounded by the formula of docs/numbers.md
  saved       the same of norms, tables and heads that were trained beside the adapters: PEFT's modules_to_save
  merged      what `sluice convert --merge` writes gives the logits of base and adapters in PEFT

Both sides train in float32, so their losses drift apart by roundings. Leaves with 77 where torch,
transformers or PEFT is not installed.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import peft
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import tensor_file

# What is trained beside the adapters.
SAVED = {"GPT2": ["*ln_*=adamw", "wte.weight=lion"], "Qwen3": ["*norm*=adamw", "embed_tokens.weight=sgd"],
         "Llama": ["norm.weight=adamw", "embed_tokens.weight=lion", "lm_head.weight=adamw"]}
LIMIT = 1e-5
STEPS, ACCUMULATE, BATCH, SEQ, IDS = 30, 2, 2, 32, 300
LR, DECAY, CLIP, BETAS = 1e-2, 0.1, 1.0, (0.9, 0.95)
OPTIONS = ["--device", "cpu", "--precision", "fp32", "--quiet"]
# name, class, sizes, targets as PEFT has them, rank, alpha
CASES = [
    ("llama", "Llama", {"hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 6,
                        "num_key_value_heads": 2, "head_dim": 8}, ["q_proj", "v_proj"], 4, 8),
    ("llama-all", "Llama", {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3,
                            "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 8}, "all-linear", 3, 3),
    ("qwen3", "Qwen3", {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 6,
                        "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True},
     ["q_proj", "k_proj", "o_proj", "down_proj"], 2, 5),
    ("gpt2", "GPT2", {"n_embd": 48, "n_layer": 2, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0,
                      "attn_pdrop": 0}, ["c_attn"], 4, 16),
    ("gpt2-all", "GPT2", {"n_embd": 48, "n_layer": 2, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0,
                          "attn_pdrop": 0}, ["c_attn", "c_proj", "c_fc"], 4, 4),
]


def fail(text):
    sys.exit(f"FAILED: {text}")


def sluice(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True)
    if done.returncode != 0:
        fail(f"sluice {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode()


def make_base(directory, kind, sizes):
    torch.manual_seed(3)
    context = {"n_positions": SEQ} if kind == "GPT2" else {"max_position_embeddings": SEQ}
    config = getattr(transformers, f"{kind}Config")(vocab_size=IDS, initializer_range=0.1, bos_token_id=IDS - 1,
                                                    eos_token_id=IDS - 1, pad_token_id=None, **context, **sizes)
    name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    getattr(transformers, name)(config).save_pretrained(directory)


def load_base(directory):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def make_adapters(base, directory, targets, rank, alpha):
    """Adapters whose B is not zero, as PEFT saves them."""
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0,
                             fan_in_fan_out="gpt2" in base, task_type="CAUSAL_LM")
    model = peft.get_peft_model(load_base(base), config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.add_(0.02 * torch.randn_like(weights))
    model.save_pretrained(directory)
    return model


def loss_of(model, rows):
    rows = torch.tensor(np.stack(rows).astype(np.int64))
    logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, IDS), rows[:, 1:].reshape(-1))


def take_rows(tokens, first):
    return [tokens[(first + b) * SEQ:(first + b + 1) * SEQ + 1] for b in range(BATCH)]


def round_to_codes(values):
    """Groups of 32 in fp32: codes of 8 bits and a scale in fp16."""
    flat = np.pad(values.reshape(-1), (0, -values.size % 32)).reshape(-1, 32)
    units = np.abs(flat).max(axis=1, keepdims=True) / np.float32(127)
    scales = units.astype(np.float16).astype(np.float32)
    codes = np.rint(np.divide(flat, units, out=np.zeros_like(flat), where=scales > 0))
    return (codes * scales).reshape(-1)[:values.size].reshape(values.shape)


def round_base(model):
    """Its matrices, as sluice has them: [in, out], and the tables of embedding and head by ids."""
    linears = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)}
    linears.discard(id(model.get_output_embeddings().weight))
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() != 2:
                continue
            values = weights.numpy()
            across = id(weights) in linears
            rounded = round_to_codes(values.T).T if across else round_to_codes(values)
            weights.copy_(torch.from_numpy(np.ascontiguousarray(rounded)))
    return model


def run_torch(base, adapters, tokens, prepare=lambda model: model):
    model = peft.PeftModel.from_pretrained(prepare(load_base(base)), adapters, is_trainable=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=BETAS, eps=1e-8, weight_decay=DECAY)
    losses = []
    with torch.no_grad():
        untrained = np.mean([loss_of(model, take_rows(tokens, ((STEPS - 1) * ACCUMULATE + part) * BATCH)).item()
                             for part in range(ACCUMULATE)])
    for step in range(STEPS):
        total = 0.0
        for part in range(ACCUMULATE):
            loss = loss_of(model, take_rows(tokens, (step * ACCUMULATE + part) * BATCH))
            (loss / ACCUMULATE).backward()
            total += loss.item() / ACCUMULATE
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return np.array(losses), untrained


def run_sluice(program, *more):
    sluice(program, "train", "--data", "tokens.bin", "--data-order", "sequential", "--seq", str(SEQ),
           "--micro-batch", str(BATCH), "--accumulate", str(ACCUMULATE), "--lr", str(LR), "--lr-schedule", "constant",
           "--warmup", "0", "--weight-decay", str(DECAY), "--clip", str(CLIP), "--log-json", "log", *OPTIONS, *more)
    with open("log", encoding="utf-8") as log:
        losses = [record["loss"] for record in map(json.loads, log) if record["event"] == "step"]
    os.remove("log")
    return np.array(losses)


def compare_steps(program, base, adapters, tokens, saved):
    theirs, untrained = run_torch(base, adapters, tokens)
    ours = run_sluice(program, "--init", base, "--adapter", adapters, "--steps", str(STEPS), "--save", saved)
    off = np.max(np.abs(ours / theirs - 1))
    print(f"  {STEPS} steps, the last loss {theirs[-1]:.4f}, untrained {untrained:.4f}: off by {off:.1e} at most")
    if not off <= LIMIT or not abs(theirs[-1] / untrained - 1) > 100 * LIMIT:
        fail(f"{base}: losses {ours} and {theirs}")


def compare_frozen(program, base, adapters, tokens):
    theirs, _ = run_torch(base, adapters, tokens, round_base)
    exact, _ = run_torch(base, adapters, tokens)
    ours = run_sluice(program, "--init", base, "--adapter", adapters, "--steps", str(STEPS), "--frozen-type", "int8")
    off, far = np.max(np.abs(ours / theirs - 1)), np.max(np.abs(ours / exact - 1))
    print(f"  base in codes of 8 bits: off by {off:.1e} at most, and by {far:.1e} from the exact base")
    if not off <= LIMIT or not far > 3 * LIMIT:
        fail(f"{base}: over codes losses {ours} and {theirs}")


def compare_start(program, base, targets, rank):
    names = [targets] if isinstance(targets, str) else targets
    run_sluice(program, "--init", base, "--steps", "0", "--lora-rank", str(rank), "--lora-targets", *names,
               "--save", f"{base}-start")
    found = tensor_file.read(glob.glob(f"{base}-start/step-*/model.safetensors")[0])
    for name, values in found.items():
        bound = values.shape[0] ** -0.5
        if name.endswith("lora_A.weight") and not 0.8 * bound < np.max(np.abs(values)) <= bound:
            fail(f"{name}: begins with up to {np.max(np.abs(values))}, not {bound}")
        if name.endswith("lora_B.weight") and np.any(values):
            fail(f"{name} does not begin as zeros")


def own_name(name, kept):
    """Of a tensor that PEFT has; a tied head is the table."""
    own = name.removeprefix("base_model.model.").removeprefix("transformer.").removeprefix("model.")
    table = "wte.weight" if "wte.weight" in kept else "embed_tokens.weight"
    return table if own == "lm_head.weight" and own not in kept else own


def compare_files(program, base, saved, tokens):
    """PEFT's model of what was trained here."""
    sluice(program, "convert", "--from", saved, "--to", f"{saved}-peft", "--format", "peft", "--quiet")
    kept = tensor_file.read(glob.glob(f"{saved}/step-*/model.safetensors")[0])
    written = tensor_file.read(f"{saved}-peft/adapter_model.safetensors")
    kept = {name.removeprefix("transformer."): values for name, values in kept.items()}
    if sum("lora_" in name for name in kept) != sum("lora_" in name for name in written):
        fail(f"{saved}: {len(kept)} tensors, {len(written)} written")
    for name, values in written.items():
        ours = kept[own_name(name, kept)]
        if not np.array_equal(np.asarray(values).T if "lora_" in name else values, ours):
            fail(f"{name} changed")
    model = peft.PeftModel.from_pretrained(load_base(base), f"{saved}-peft").eval()
    loaded = peft.get_peft_model_state_dict(model)
    if set(loaded) != set(written) or not all(np.array_equal(loaded[name].numpy(), written[name]) for name in written):
        fail(f"{saved}: PEFT loads other adapters")
    with torch.no_grad():
        theirs = np.mean([loss_of(model, take_rows(tokens, first)).item() for first in (0, BATCH)])
    ours = json.loads(sluice(program, "eval", base, "--adapter", f"{saved}-peft", "--data", "tokens.bin",
                             "--micro-batch", str(BATCH), "--eval-iters", "2", "--json", *OPTIONS))["loss"]
    plain = json.loads(sluice(program, "eval", base, "--data", "tokens.bin", "--micro-batch", str(BATCH),
                              "--eval-iters", "2", "--json", *OPTIONS))["loss"]
    if not abs(ours / theirs - 1) <= LIMIT or abs(plain / theirs - 1) <= 100 * LIMIT:
        fail(f"{saved}: an evaluation has {ours}, PEFT {theirs}, without adapters {plain}")
    return model


def compare_saved(program, kind, base, adapters, tokens):
    run_sluice(program, "--init", base, "--adapter", adapters, "--steps", "5", "--rule", *SAVED[kind],
               "--save", f"{base}-more")
    model = compare_files(program, base, f"{base}-more", tokens)
    saved = [name for name in peft.get_peft_model_state_dict(model) if "lora_" not in name]
    print(f"  {len(saved)} tensors saved beside the adapters")
    if not saved:
        fail(f"{base}: no tensor is saved beside the adapters")
    compare_merged(program, base, f"{base}-more", model, tokens)


def compare_merged(program, base, saved, model, tokens):
    sluice(program, "convert", "--from", saved, "--merge", "--to", f"{saved}-merged", "--quiet")
    sluice(program, "convert", "--from", base, "--adapter", f"{saved}-peft", "--merge", "--to", f"{saved}-again",
           "--quiet")
    rows = torch.tensor(np.stack(take_rows(tokens, 5)).astype(np.int64)[:, :-1])
    with torch.no_grad():
        theirs = model(rows).logits
        for directory in (f"{saved}-merged", f"{saved}-again"):
            ours = load_base(directory)(rows).logits
            off = (ours - theirs).abs().max() / theirs.abs().max()
            if not off <= LIMIT:
                fail(f"{directory}: logits are off by {off}")
    print(f"  merged: logits off by {off:.1e} of the largest")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    program = os.path.abspath(parser.parse_args().sluice)
    torch.set_num_threads(1)
    random = np.random.default_rng(11)
    # A walk: the next token is near the last one, so there is something to learn.
    walk = np.cumsum(random.integers(-3, 4, STEPS * ACCUMULATE * BATCH * SEQ + 1)) % IDS
    tokens = walk.astype(np.uint16)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        tokens.tofile("tokens.bin")
        for name, kind, sizes, targets, rank, alpha in CASES:
            print(f"{name}, rank {rank}, alpha {alpha}, {targets}")
            make_base(name, kind, sizes)
            make_adapters(name, f"{name}-adapters", targets, rank, alpha)
            compare_steps(program, name, f"{name}-adapters", tokens, f"{name}-saved")
            compare_frozen(program, name, f"{name}-adapters", tokens)
            compare_start(program, name, targets, rank)
            model = compare_files(program, name, f"{name}-saved", tokens)
            compare_merged(program, name, f"{name}-saved", model, tokens)
            compare_saved(program, kind, name, f"{name}-adapters", tokens)
    print(f"{len(CASES)} models: adapters are those of PEFT {peft.__version__}")


main()
