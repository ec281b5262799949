#!/usr/bin/env python3
"""Checkpoints of other programs, written by these programs on the CPU, and what is in them.

usage: write_pieces.py LAYOUT DIRECTORY [--tiny]

Trains a tiny model for 2 steps of AdamW with the library of a layout, over gloo, and lets the library save it.
DIRECTORY gets the checkpoint, and beside it

    expected.safetensors   parameters, "NAME", and moments, "NAME.exp_avg" and "NAME.exp_avg_sq", under the
                           names of transformers without a prefix, linear weights of [in, out]
    tokens.bin             rows of the steps that follow, of 16 bits a token
    losses.json            the library's losses of these steps, which it went on with after it had saved

--tiny makes a model of a few hundred parameters: tests/golden/pieces/make.sh packs such ones for
tests/foreign/test_pieces.c.

Layouts: fsdp-nested (3 ranks), fsdp-flat (2 ranks, a Llama), fsdp-grid (4 ranks, both dimensions divided),
fsdp-accelerate (2 ranks, two directories), core-own, core-parallel (2 tensor-parallel ranks), core-stacked
(2 pipeline stages' worth of layers in one tensor), zero1, zero2 and zero3 (2 ranks each, with what
ds_to_universal makes of them in DIRECTORY/universal). Needs torch and transformers; megatron-core or deepspeed
for the layouts of their names. Megatron Core asks for CUDA in three places, which are answered with the CPU.
"""
import contextlib
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

IS_TINY = "--tiny" in sys.argv
VOCAB, SEQ, WIDTH, PADDED = (19, 6, 4, 32) if IS_TINY else (67, 16, 16, 128)
BATCH, HEADS = 4, 2
LAYERS = 1 if IS_TINY and sys.argv[1] != "core-stacked" else 2
LR, BEFORE, AFTER = 1e-2, 2, 3
RANKS = {"fsdp-nested": 3, "fsdp-flat": 2, "fsdp-grid": 4, "fsdp-accelerate": 2, "core-own": 1,
         "core-parallel": 2, "core-stacked": 2, "zero1": 2, "zero2": 2, "zero3": 2}
HF_PREFIX = {"gpt2": "transformer.", "llama": "model."}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")  # [out, in] of a Llama


def draw_rows():
    random = torch.Generator().manual_seed(3)
    steps = torch.randint(-3, 4, ((BEFORE + AFTER) * BATCH * SEQ + 1,), generator=random)
    return steps.cumsum(0) % VOCAB


def take_batch(tokens, step):
    rows = [tokens[(step * BATCH + b) * SEQ:][:SEQ + 1] for b in range(BATCH)]
    rows = torch.stack(rows)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def make_model(family):
    torch.manual_seed(1)
    if family == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCAB, n_positions=SEQ, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
            embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0))
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, max_position_embeddings=SEQ, hidden_size=WIDTH, intermediate_size=5 * WIDTH // 2,
        num_hidden_layers=LAYERS, num_attention_heads=2 if IS_TINY else 4,
        num_key_value_heads=1 if IS_TINY else 2, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0))


def loss_of(model, tokens, step):
    inputs, labels = take_batch(tokens, step)
    logits = model(inputs).logits
    return torch.nn.functional.cross_entropy(logits.float().view(-1, VOCAB), labels.view(-1))


def train(model, optimizer, tokens, steps):
    losses = []
    for step in steps:
        loss = loss_of(model, tokens, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def write_beside(path, expected, tokens, losses):
    from safetensors.torch import save_file
    save_file({name: tensor.float().contiguous() for name, tensor in expected.items()},
              os.path.join(path, "expected.safetensors"))
    rest = tokens[BEFORE * BATCH * SEQ:]
    rest.to(torch.int16).numpy().tofile(os.path.join(path, "tokens.bin"))
    with open(os.path.join(path, "losses.json"), "w", encoding="utf-8") as file:
        json.dump(losses, file)


def expect(family, params, state_of):
    """By transformers' names: parameters and moments as [in, out]."""
    expected = {}
    for name, tensor in params.items():
        short = name.removeprefix(HF_PREFIX[family])
        across = family == "llama" and name.split(".")[-2] in LINEAR
        for ending, value in (("", tensor), *((f".{s}", state_of(name, s)) for s in ("exp_avg", "exp_avg_sq"))):
            expected[short + ending] = value.t() if across else value
    return expected


# ---- FSDP ----

def divide(tensor, mesh):
    from torch.distributed.tensor import Shard, Replicate, distribute_tensor
    last = Shard(1) if tensor.dim() == 2 else Replicate()
    first = Shard(0) if tensor.dim() > 0 else Replicate()
    return distribute_tensor(tensor.detach().clone(), mesh, [first, last])


def write_fsdp(layout, path, tokens):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.fsdp import fully_shard
    family = "llama" if layout == "fsdp-flat" else "gpt2"
    model = make_model(family)
    if dist.get_rank() == 0:
        model.config.save_pretrained(path)
    if layout != "fsdp-grid":
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.transformer.h if family == "gpt2" else model.model.layers:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0)
    train(model, optimizer, tokens, range(BEFORE))
    params = {name: whole(value) for name, value in model.named_parameters()}
    states = {name: {key: whole(s) for key, s in optimizer.state[value].items()}
              for name, value in model.named_parameters()}
    options = StateDictOptions(flatten_optimizer_state_dict=layout == "fsdp-flat")
    of_model, of_optimizer = get_state_dict(model, optimizer, options=options)
    if layout == "fsdp-grid":
        mesh = dist.init_device_mesh("cpu", (2, 2))
        of_model = {name: divide(value, mesh) for name, value in of_model.items()}
        of_optimizer = {"state": {name: {key: divide(s, mesh) for key, s in values.items()}
                                  for name, values in of_optimizer["state"].items()}}
    if layout == "fsdp-accelerate":
        dcp.save({"model": of_model}, checkpoint_id=os.path.join(path, "pytorch_model_fsdp_0"))
        dcp.save({"optimizer": of_optimizer}, checkpoint_id=os.path.join(path, "optimizer_0"))
    elif layout == "fsdp-flat":
        dcp.save({"app": {"model": of_model, "optim": of_optimizer}}, checkpoint_id=path)
    else:
        dcp.save({"model": of_model, "optim": of_optimizer, "steps": BEFORE}, checkpoint_id=path)
    losses = train(model, optimizer, tokens, range(BEFORE, BEFORE + AFTER))
    if dist.get_rank() == 0:
        write_beside(path, expect(family, params, lambda name, s: states[name][s]), tokens, losses)


# ---- DeepSpeed ----

def write_zero(layout, path, tokens):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    model = make_model("gpt2")
    if dist.get_rank() == 0:
        model.config.save_pretrained(path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer,
        config={"train_batch_size": BATCH * dist.get_world_size(), "train_micro_batch_size_per_gpu": BATCH,
                "zero_optimization": {"stage": int(layout[-1])}, "gradient_clipping": 1.0,
                "zero_force_ds_cpu_optimizer": False,
                "zero_allow_untested_optimizer": True})

    def go(steps):
        losses = []
        for step in steps:
            loss = loss_of(engine, tokens, step)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    go(range(BEFORE))
    params, states = {}, {}
    for name, value in model.named_parameters():
        params[name] = safe_get_full_fp32_param(value).detach().clone().view(value.ds_shape if layout == "zero3"
                                                                             else value.shape)
        states[name] = {s: safe_get_full_optimizer_state(value, s).detach().clone().view(params[name].shape)
                        for s in ("exp_avg", "exp_avg_sq")}
    engine.save_checkpoint(path)
    losses = go(range(BEFORE, BEFORE + AFTER))
    if dist.get_rank() == 0:
        write_beside(path, expect("gpt2", params, lambda name, s: states[name][s]), tokens, losses)


def make_universal(path):
    name = f"global_step{BEFORE}"
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    os.path.join(path, name), "--output_folder", os.path.join(path, "universal", name),
                    "--inject_missing_state", "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for file in ("config.json", "expected.safetensors", "tokens.bin", "losses.json"):
        os.link(os.path.join(path, file), os.path.join(path, "universal", file))
    os.link(os.path.join(path, "config.json"), os.path.join(path, "universal", name, "config.json"))


# ---- Megatron Core ----

CORE = {"ln_1": "input_layernorm", "attn.c_attn": "self_attention.linear_qkv", "attn.c_proj":
        "self_attention.linear_proj", "ln_2": "pre_mlp_layernorm", "mlp.c_fc": "mlp.linear_fc1",
        "mlp.c_proj": "mlp.linear_fc2"}
FIRST = {"wte.weight": "embedding.word_embeddings.weight", "wpe.weight": "embedding.position_embeddings.weight",
         "ln_f.weight": "decoder.final_layernorm.weight", "ln_f.bias": "decoder.final_layernorm.bias"}
SPLIT = {"attn.c_attn": 0, "mlp.c_fc": 0}  # of [out, in]; the other two weights are split by columns


def join_ranks(name, tensor, tp):
    """All ranks' parts of a tensor, as [out, in]."""
    parts = [torch.empty_like(tensor) for _ in range(tp)]
    dist.all_gather(parts, tensor.detach().contiguous())
    short = name.split(".", 2)[-1].rsplit(".", 1)
    if name == "wte.weight" or short[0] in SPLIT:
        return torch.cat(parts, 0)
    if short[0] in ("attn.c_proj", "mlp.c_proj") and short[1] == "weight":
        return torch.cat(parts, 1)
    return parts[0]


def of_transformers(name, tensor):
    """[in, out], and the rows of query, key and value one after the other."""
    if "c_attn" in name:
        rest = tensor.shape[1:]
        tensor = tensor.view(HEADS, 3, WIDTH // HEADS, *rest).transpose(0, 1).reshape(3 * WIDTH, *rest)
    return tensor.t() if ".c_" in name and tensor.dim() == 2 else tensor


def core_names():
    names = dict(FIRST)
    for layer in range(LAYERS):
        for ours, theirs in CORE.items():
            for what in ("weight", "bias"):
                names[f"h.{layer}.{ours}.{what}"] = f"decoder.layers.{layer}.{theirs}.{what}"
    return names


def write_core(layout, path, tokens):
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a: None
    torch.Tensor.cuda = lambda self, *a, **k: self
    import megatron.core.tensor_parallel.random as tp_random
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.optimizer import (get_param_id_to_sharded_param_map,
                                                            optim_state_to_sharding_state)
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    tp_random.CudaRNGStatesTracker.fork = lambda self, name="": contextlib.nullcontext()
    tp = dist.get_world_size()
    parallel_state.initialize_model_parallel(tp, 1)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, use_cpu_initialization=True,
        tensor_model_parallel_size=tp, hidden_dropout=0, attention_dropout=0, gradient_accumulation_fusion=False,
        bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        activation_func=lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        hetereogenous_dist_checkpoint=layout != "core-stacked")
    torch.manual_seed(1)
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=PADDED, max_sequence_length=SEQ,
                     share_embeddings_and_output_weights=True)
    with torch.no_grad():  # ids that are only padding take no part
        model.embedding.word_embeddings.weight[max(0, VOCAB - PADDED // tp * dist.get_rank()):].zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0)
    positions = torch.arange(SEQ)[None].expand(BATCH, SEQ)
    mask = torch.triu(torch.ones(SEQ, SEQ, dtype=torch.bool), 1)[None, None]

    def go(steps):
        losses = []
        for step in steps:
            inputs, labels = take_batch(tokens, step)
            loss = model(inputs, positions, mask, labels=labels).mean()
            loss.backward()
            for value in model.parameters():  # a layer norm's is that of all ranks already
                assert value.grad is not None
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    go(range(BEFORE))
    expected = {}
    of_core = dict(model.named_parameters())
    for name, theirs in core_names().items():
        value = of_core[theirs]
        parts = {"": value, ".exp_avg": optimizer.state[value]["exp_avg"],
                 ".exp_avg_sq": optimizer.state[value]["exp_avg_sq"]}
        for ending, part in parts.items():
            expected[name + ending] = of_transformers(name, join_ranks(name, part, tp))
    states = optimizer.state_dict()
    optim_state_to_sharding_state(
        states, get_param_id_to_sharded_param_map(model.sharded_state_dict(), model.parameters()),
        exclude_keys=("step",))
    states["state"]["common_step"] = BEFORE
    directory = os.path.join(path, f"iter_{BEFORE:07d}")
    os.makedirs(directory, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save({"model": model.sharded_state_dict(), "optimizer": states, "iteration": BEFORE},
                            directory)
    losses = go(range(BEFORE, BEFORE + AFTER))
    if dist.get_rank() == 0:
        with open(os.path.join(path, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
            file.write(str(BEFORE))
        write_beside(path, expected, tokens, losses)


# ---- all ----

def run_rank(rank, layout, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(RANKS[layout]), CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    if layout.startswith("zero"):
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed
        deepspeed.init_distributed("gloo", verbose=False)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=RANKS[layout])
    kinds = {"fsdp": write_fsdp, "core": write_core, "zero": write_zero}
    kinds[layout[:4]](layout, path, draw_rows())
    dist.barrier()
    dist.destroy_process_group()


def write_layout(layout, path):
    os.makedirs(path)
    torch.multiprocessing.spawn(run_rank, (layout, path), nprocs=RANKS[layout])
    if layout.startswith("zero"):
        make_universal(path)


if __name__ == "__main__":
    if len(sys.argv) != 3 + IS_TINY or sys.argv[1] not in RANKS:
        sys.exit(__doc__)
    write_layout(sys.argv[1], sys.argv[2])
