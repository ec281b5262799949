#!/usr/bin/env python3
"""Speed of a GPT-2 training step on a GPU, sluice beside PyTorch in the same run.

For each model: `sluice train` with everything on the device, PyTorch eager, and PyTorch compiled, as
processes of their own, one after the other, --pairs times; each reports a step as a line on a pipe, and
the time between lines counts. Same rows, same length, same arithmetic: bf16 products, fp32 master
weights and moments, clipping at 1. PyTorch gets fused AdamW, scaled_dot_product_attention, a vocabulary
padded to 50304, TF32 where it would otherwise use fp32, and torch.compile of the whole model (of each
block for models named by --compile-blocks, which compiles in a fraction of the time). The side "cudnn" is
sluice with SLUICE_ATTENTION=cudnn; it fails where `sluice doctor` finds no cuDNN to ask.

Reported: tokens/s, their ratio to PyTorch, FLOP/s as a share of the roof of --bench (the largest square
product, measured by `sluice bench --json` in the same session) and of the rate the maker states (MFU).
Works with --device cpu too."""

import json
import os
import statistics
import subprocess
import sys
import time

import gpu_common
import gpu_limits
import torch_pair

TORCH_SIDES = ("eager", "compiled")
SIDES = ("sluice", "cudnn", *TORCH_SIDES)
CUDNN = {"SLUICE_ATTENTION": "cudnn"}


# ---- the PyTorch side: a process of its own ----


def torch_worker(options):
    """Trains and prints a line a step, as sluice's log has them."""
    import torch
    from types import SimpleNamespace
    device = "cuda" if options.device.startswith("cuda") else "cpu"
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = torch_pair.build_model(SimpleNamespace(model=options.models[0],
                                                   torch_vocab=torch_pair.PADDED_VOCAB)).to(device)
    adamw = torch_pair.open_adamw(model)
    call = model
    if options.torch_worker == "compiled" and options.models[0] in options.compile_blocks:
        for block in model.blocks:
            block.compile()
    elif options.torch_worker == "compiled":
        call = torch.compile(model)
    for step in range(1, options.steps + 1):
        rows = torch.randint(0, torch_pair.VOCAB, (options.batch, options.seq + 1), device=device)
        with torch.autocast(device, torch.bfloat16, enabled=options.precision == "bf16"):
            loss = call(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        print(json.dumps({"event": "step", "step": step, "loss": loss.item()}), flush=True)
    print(json.dumps({"event": "end", "version": torch.__version__}), flush=True)


def torch_command(options, model, side):
    words = [options.python, os.path.abspath(__file__), "--torch-worker", side, "--models", model]
    for name in ("device", "batch", "seq", "steps", "precision"):
        words += [f"--{name}", str(getattr(options, name))]
    return words + ["--compile-blocks", *options.compile_blocks]


def check_cudnn(options):
    done = subprocess.run([options.sluice, "doctor"], env=dict(os.environ, **CUDNN),
                          capture_output=True, text=True, timeout=60)
    if ", cuDNN 9." not in done.stdout or "attention by own kernels" in done.stdout:
        raise SystemExit("cuDNN is not to be had: `sluice doctor` says why")


def run_side(options, model, side, tokens):
    if side == "cudnn":
        check_cudnn(options)
    if side in ("sluice", "cudnn"):
        return gpu_common.time_sluice(options, model, ["--policy", "device"], tokens,
                                      CUDNN if side == "cudnn" else None)
    return gpu_common.time_steps(options, side, torch_command(options, model, side))


# ---- the report ----


def describe(options, model, run, roofs, gpu):
    flops = gpu_limits.count_step_flops(*gpu_limits.SHAPES[model], options.batch, options.seq)
    rate, stated = flops / run["step_seconds"], gpu_limits.find_stated_flops(gpu)
    run["flops_per_s"] = rate
    run["share_of_roof"] = rate / roofs["flops"] if roofs.get("flops") else None
    run["mfu"] = rate / stated if stated and options.precision == "bf16" else None


def percent(share):
    return "     -" if share is None else f"{100 * share:5.1f}%"


def summarise(rounds):
    """Medians, and the ratio to each other side inside a round."""
    summary = {}
    for side in SIDES:
        good = [one[side] for one in rounds if one.get(side, {}).get("tokens_per_s")]
        if not good:
            continue
        summary[side] = {name: statistics.median(run[name] for run in good)
                         for name in ("tokens_per_s", "flops_per_s", "share_of_roof", "mfu")
                         if all(run[name] is not None for run in good)}
        ratios = [one["sluice"]["tokens_per_s"] / one[side]["tokens_per_s"] for one in rounds
                  if one.get(side, {}).get("tokens_per_s") and
                  one.get("sluice", {}).get("tokens_per_s")]
        if side != "sluice" and ratios:
            summary[side]["ratio"] = statistics.median(ratios)
    return summary


def print_run(side, run):
    if "failed" not in run:
        print(f"  {side:10s} {run['tokens_per_s']:12.0f} tokens/s  {run['flops_per_s'] / 1e12:8.1f} "
              f"TFLOP/s  roof {percent(run['share_of_roof'])}  MFU {percent(run['mfu'])}  "
              f"losses {run['losses'][0]:.3f} .. {run['losses'][-1]:.3f}", flush=True)


def run_models(options, roofs, gpu, result, _directory, tokens):
    deadline = time.monotonic() + options.seconds
    for model in options.models:
        rounds = []
        print(f"{model}, {options.batch} rows of {options.seq}, {options.precision}", flush=True)
        for _ in range(options.pairs):
            rounds.append({})
            for side in options.sides:
                if time.monotonic() > deadline:
                    rounds[-1][side] = {"failed": "no time was left"}
                    continue
                run = gpu_common.attempt(run_side, options, model, side, tokens)
                if "failed" not in run:
                    describe(options, model, run, roofs, gpu)
                rounds[-1][side] = run
                print_run(side, run)
                result["models"][model] = {"rounds": rounds, "summary": summarise(rounds)}
                gpu_common.keep(options, result)
        for side, found in result["models"][model]["summary"].items():
            if "ratio" in found:
                other = "its own with cuDNN" if side == "cudnn" else f"PyTorch {side}"
                print(f"  sluice is {found['ratio']:.3f} of {other}", flush=True)


def parse():
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, ["gpt2", "gpt2-xl"], 16, 1024, 12)
    parser.add_argument("--pairs", type=int, default=1, help="rounds over all sides (1)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--compile-blocks", nargs="*", default=["gpt2-xl"], metavar="NAME")
    parser.add_argument("--bench", metavar="FILE", help="of `sluice bench --json`")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch (this)")
    parser.add_argument("--seconds", type=float, default=600, help="no run starts later (600)")
    parser.add_argument("--torch-worker", choices=TORCH_SIDES, help="for the script itself")
    return parser.parse_args()


def main():
    options = parse()
    if options.torch_worker:
        torch_worker(options)
        return 0
    roofs, gpu = {}, None
    if options.bench and os.path.exists(options.bench):
        with open(options.bench) as file:
            report = json.load(file)
        roofs, gpu = gpu_limits.read_roofs(report, options.precision), report.get("gpu")
    result = {"options": vars(options), "gpu": gpu, "roofs": roofs, "models": {}}
    gpu_common.with_tokens(run_models, options, roofs, gpu, result)
    complete = all("sluice" in one["summary"] for one in result["models"].values())
    return 0 if result["models"] and complete else 1


if __name__ == "__main__":
    sys.exit(main())
