#!/usr/bin/env python3
"""Writes a GPT-2 as Megatron-LM's pieces, by PyTorch, from what is known of their layout alone.

usage: write_megatron.py DIRECTORY      the pieces that tests/foreign/test_megatron_model.c reads (tests/golden)

    write_pieces(path, weights, shape, tp, pp, names, version, is_old_file, dtype)

`weights` has the names of openai-community/gpt2 and linear weights of [in, out]; `shape` is (layers, width,
heads, context, ids). `names` is "first" (language_model.transformer, attention.*), "legacy"
(language_model.encoder, self_attention.*), "core" (Megatron Core), "fused" (with the norms inside of
TransformerEngine's linear layers) or "bare" (DeepSpeedExamples' Megatron-LM of 2019 to 2022, mpu/transformer.py and
model/gpt2_modeling.py: word_embeddings, transformer.layers; no arguments).
"""
import argparse
import os
import sys

import torch

UNIT = 128
LAYER_NAMES = {
    "legacy": {"ln_1": "input_layernorm", "attn.c_attn": "self_attention.query_key_value",
               "attn.c_proj": "self_attention.dense", "ln_2": "post_attention_layernorm",
               "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h"},
    "first": {"ln_1": "input_layernorm", "attn.c_attn": "attention.query_key_value",
              "attn.c_proj": "attention.dense", "ln_2": "post_attention_layernorm",
              "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h"},
    "core": {"ln_1": "input_layernorm", "attn.c_attn": "self_attention.linear_qkv",
             "attn.c_proj": "self_attention.linear_proj", "ln_2": "pre_mlp_layernorm",
             "mlp.c_fc": "mlp.linear_fc1", "mlp.c_proj": "mlp.linear_fc2"},
    "fused": {"ln_1": "self_attention.linear_qkv.layer_norm_", "attn.c_attn": "self_attention.linear_qkv",
              "attn.c_proj": "self_attention.linear_proj", "ln_2": "mlp.linear_fc1.layer_norm_",
              "mlp.c_fc": "mlp.linear_fc1", "mlp.c_proj": "mlp.linear_fc2"},
}
LAYER_NAMES["bare"] = LAYER_NAMES["first"]


def order_qkv(tensor, heads, tp, rank, version):
    """[3 C, ...] with all queries first becomes this rank's rows in Megatron's order."""
    parts = tensor.view(3, heads, -1, *tensor.shape[1:])
    mine = parts.chunk(tp, dim=1)[rank]
    if version >= 2:
        mine = mine.transpose(0, 1)
    elif version == 1:
        mine = mine.permute(1, 2, 0, *range(3, mine.dim()))
    return mine.reshape(-1, *tensor.shape[1:]).contiguous()


def split_tensor(name, tensor, heads, tp, rank, version):
    """One tensor of [out, in] as a rank has it."""
    if "c_attn" in name:
        return order_qkv(tensor, heads, tp, rank, version)
    if "c_fc" in name:
        return tensor.chunk(tp, dim=0)[rank].contiguous()
    if name.endswith("c_proj.weight"):
        return tensor.chunk(tp, dim=1)[rank].contiguous()
    return tensor.clone()


def make_piece(weights, shape, tp, pp, rank, stage, names, version, dtype):
    layers, width, heads, context, vocab = shape
    first = [layers * s // pp for s in range(pp + 1)]
    flat = {}
    for layer in range(first[stage], first[stage + 1]):
        for ours, theirs in LAYER_NAMES[names].items():
            for what in ("weight", "bias"):
                tensor = weights[f"h.{layer}.{ours}.{what}"]
                if ".c_" in ours and what == "weight":
                    tensor = tensor.t().contiguous()
                name = f"h.{layer}.{ours}.{what}"
                key = theirs + what if theirs.endswith("_") else f"{theirs}.{what}"
                flat[f"layers.{layer - first[stage]}.{key}"] = \
                    split_tensor(name, tensor, heads, tp, rank, version).to(dtype)
    if stage == pp - 1:
        final = "final_layernorm"
        flat[f"{final}.weight"] = weights["ln_f.weight"].to(dtype)
        flat[f"{final}.bias"] = weights["ln_f.bias"].to(dtype)
    padded = -(-vocab // (UNIT * tp)) * UNIT * tp
    words = torch.full((padded, width), 9.0)
    words[:vocab] = weights["wte.weight"]
    words = words.chunk(tp, dim=0)[rank].contiguous().to(dtype)
    positions = weights["wpe.weight"].to(dtype)
    if names == "bare":
        return {"word_embeddings.weight": words, "position_embeddings.weight": positions,
                **{f"transformer.{key}": value for key, value in flat.items()}}
    is_core = names in ("core", "fused")
    if is_core:
        model = {f"decoder.{key}": value for key, value in flat.items()}
        if names == "fused":
            model["decoder.layers.0.self_attention.linear_qkv._extra_state"] = None
        if stage == 0:
            model["embedding.word_embeddings.weight"] = words
            model["embedding.position_embeddings.weight"] = positions
        elif stage == pp - 1:
            model["output_layer.weight"] = words
        return model
    body = {"encoder" if names == "legacy" else "transformer": flat}
    if stage == 0:
        body["embedding"] = {"word_embeddings": {"weight": words}, "position_embeddings": {"weight": positions}}
    model = {"language_model": body}
    if stage == pp - 1 and pp > 1:
        model["word_embeddings_for_head"] = {"weight": words}
    return model


def write_pieces(path, weights, shape, tp=1, pp=1, names="core", version=3.0, is_old_file=False,
                 dtype=torch.float32, with_optimizer=True, **more):
    layers, width, heads, context, vocab = shape
    arguments = argparse.Namespace(
        num_layers=layers, hidden_size=width, num_attention_heads=heads, max_position_embeddings=context,
        ffn_hidden_size=4 * width, kv_channels=width // heads, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, virtual_pipeline_model_parallel_size=None, swiglu=False,
        layernorm_epsilon=1e-5, params_dtype=dtype, bias_gelu_fusion=True, openai_gelu=False,
        vocab_size=None if vocab == 50257 else vocab, lr=1.5e-4, data_path=["a_text_document"],
        normalization="LayerNorm", position_embedding_type="learned_absolute",
        untie_embeddings_and_output_weights=False, add_position_embedding=True, iteration=7)
    for key, value in more.items():
        setattr(arguments, key, value)
    directory = os.path.join(path, "iter_0000007")
    for stage in range(pp):
        for rank in range(tp):
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pp > 1 else "")
            os.makedirs(os.path.join(directory, name))
            state = {"args": arguments, "checkpoint_version": version, "iteration": 7,
                     "model": make_piece(weights, shape, tp, pp, rank, stage, names, version, dtype)}
            if version is None:
                del state["checkpoint_version"]
            if with_optimizer:
                state["optimizer"] = {"step": torch.tensor(7), "exp_avg": [torch.zeros(3, dtype=torch.float64)]}
                state["rng_state"] = [{"torch_rng_state": torch.get_rng_state(), "random_rng_state": (3, (1, 2), None)}]
            torch.save(state, os.path.join(directory, name, "model_optim_rng.pt"),
                       _use_new_zipfile_serialization=not is_old_file)
    with open(os.path.join(path, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write("7")


def write_bare(path, weights, shape, tp, dtype, of_engine):
    """Without arguments, as its utils.py saves a model itself, or lets DeepSpeed's engine save it."""
    for rank in range(tp):
        tensors = make_piece(weights, shape, tp, 1, rank, 0, "bare", 0, dtype)
        if of_engine:
            state = {"module": tensors, "optimizer": None, "lr_scheduler": None, "csr_tensor_module_names": set(),
                     "skipped_steps": 0, "global_steps": 7, "dp_world_size": 1, "mp_world_size": tp, "iteration": 7}
            file = os.path.join(path, "7", f"mp_rank_{rank:02d}_model_states.pt")
        else:
            state = {"iteration": 7, "model": tensors}
            file = os.path.join(path, "iter_0000007", f"mp_rank_{rank:02d}", "model_optim_rng.pt")
        os.makedirs(os.path.dirname(file), exist_ok=True)
        torch.save(state, file)
    with open(os.path.join(path, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write("7")


KINDS = ["wte.weight", "wpe.weight", "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
         "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
         "mlp.c_proj.weight", "mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"]


def count_weights(shape):
    """Weights that a test can tell by their place, exact in every type: 8 bits and a sign."""
    layers, width, heads, context, vocab = shape
    sizes = {"wte.weight": (vocab, width), "wpe.weight": (context, width), "attn.c_attn.weight": (width, 3 * width),
             "attn.c_attn.bias": (3 * width,), "attn.c_proj.weight": (width, width),
             "mlp.c_fc.weight": (width, 4 * width), "mlp.c_fc.bias": (4 * width,),
             "mlp.c_proj.weight": (4 * width, width)}
    weights = {}
    for kind, name in enumerate(KINDS):
        is_of_layer = 2 <= kind < 14
        for layer in range(layers if is_of_layer else 1):
            size = sizes.get(name, (width,))
            index = torch.arange(torch.Size(size).numel())
            values = ((kind * 37 + layer * 11 + index) % 509 - 254).float() / 32
            weights[f"h.{layer}.{name}" if is_of_layer else name] = values.view(size)
    return weights


def main():
    directory = sys.argv[1]
    shape = (2, 8, 2, 8, 40)
    weights = count_weights(shape)
    write_pieces(os.path.join(directory, "core-2x2"), weights, shape, tp=2, pp=2, names="core")
    write_pieces(os.path.join(directory, "fused-1x1"), weights, shape, names="fused", dtype=torch.bfloat16)
    write_pieces(os.path.join(directory, "legacy-1x2"), weights, shape, pp=2, names="legacy", version=0,
                 dtype=torch.bfloat16)
    write_pieces(os.path.join(directory, "first-2x1"), weights, shape, tp=2, names="first", version=1.0,
                 is_old_file=True, dtype=torch.float16)
    write_bare(os.path.join(directory, "bare-2x1"), weights, shape, 2, torch.bfloat16, of_engine=True)
    write_bare(os.path.join(directory, "bare-1x1"), weights, shape, 1, torch.bfloat16, of_engine=False)


if __name__ == "__main__":
    main()
