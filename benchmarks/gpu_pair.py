#!/usr/bin/env python3
"""Speed of a GPT-2 training step on a GPU, sluice beside PyTorch in the same run.

For each model: `sluice train` with everything on the device, PyTorch eager, and PyTorch compiled, as
processes of their own, one after the other, --pairs times; each reports a step as a line on a pipe, and
the time between lines counts. Same rows, same length, same arithmetic: bf16 products, fp32 master
weights and moments, clipping at 1. PyTorch gets fused AdamW, scaled_dot_product_attention, a vocabulary
padded to 50304, TF32 where it would otherwise use fp32, and torch.compile of the whole model (of each
block for models named by --compile-blocks, which compiles in a fraction of the time).

If --batch rows do not fit beside sluice's resident states, the rows are halved until they do; a model of
which not even one row fits is left out.

After them, while --seconds last, sluice again with what a first GPU has to judge switched the other way
(SWITCHES). --sides names some of all these.

Reported: tokens/s and how far steps lie apart, sluice's ratio to each other side, FLOP/s as a share of the
roof of --bench (the largest square product, measured by `sluice bench --json` in the same session) and of
the rate the maker states (MFU). A side that does not run says why. Works with --device cpu too."""

import glob
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
SWITCHES = {  # options of sluice
    "no-epilogue": ["--cuda-epilogue", "off"],
    "no-wait-value": ["--cuda-wait-value", "off"],
    "own-products": ["--cuda-products", "own"],
}
RESIDENT = ["--policy", "device", "--recompute", "none"]  # PyTorch does not recompute either
MAIN_SIDES = ("sluice", *TORCH_SIDES)
SIDES = (*MAIN_SIDES, *SWITCHES)


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


def torch_environment():
    """Without folders of a toolkit's cuBLAS or cuDNN: PyTorch finds those it was built with."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    kept = [folder for folder in folders if folder and not
            any(glob.glob(f"{folder}/lib{name}*.so*") for name in ("cublas", "cudnn"))]
    return {"LD_LIBRARY_PATH": ":".join(kept)}


def check_torch(options):
    """Why PyTorch cannot take part; None if it can."""
    ask = "import torch" + ("; torch.zeros(1, device='cuda')" if options.device != "cpu" else "")
    done = subprocess.run([options.python, "-c", ask], capture_output=True, text=True,
                          env={**os.environ, **torch_environment()})
    if done.returncode == 0:
        return None
    return f"{options.python}: {(done.stderr.strip().splitlines() or ['it died'])[-1]}"


def run_side(options, model, side, tokens):
    if side not in TORCH_SIDES:
        return gpu_common.time_sluice(options, model, [*RESIDENT, *SWITCHES.get(side, [])], tokens)
    return gpu_common.time_steps(options, side, torch_command(options, model, side),
                                 torch_environment())


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
    """Medians, and sluice's ratio to each other side inside a round."""
    summary = {}
    for side in SIDES:
        good = [one[side] for one in rounds if one.get(side, {}).get("tokens_per_s")]
        if not good:
            continue
        summary[side] = {name: statistics.median(run[name] for run in good)
                         for name in ("tokens_per_s", "spread", "flops_per_s",
                                      "share_of_roof", "mfu")
                         if all(run[name] is not None for run in good)}
        ratios = [one["sluice"]["tokens_per_s"] / one[side]["tokens_per_s"] for one in rounds
                  if one.get(side, {}).get("tokens_per_s") and
                  one.get("sluice", {}).get("tokens_per_s")]
        if side != "sluice" and ratios:
            summary[side]["ratio"] = statistics.median(ratios)
    return summary


def print_run(model, side, run, summary):
    if "failed" in run:
        print(f"  {model} {side}: {run['failed'][:120]}", flush=True)
        return
    ratio = summary[side].get("ratio")
    print(f"  {model:8s} {side:13s} {run['tokens_per_s']:9.0f} tokens/s +- "
          f"{50 * run['spread']:.1f}%  {run['flops_per_s'] / 1e12:6.1f} TFLOP/s  roof "
          f"{percent(run['share_of_roof'])}  MFU {percent(run['mfu'])}  losses "
          f"{run['losses'][0]:.3f} .. {run['losses'][-1]:.3f}" +
          (f"  sluice is {ratio:.3f} of it" if ratio else ""), flush=True)


def list_runs(options):
    """Model, round and side of each: what is compared with others first, for every model."""
    for group in (MAIN_SIDES, tuple(SWITCHES)):
        for model in options.models:
            for index in range(options.pairs):
                yield from ((model, index, side) for side in group if side in options.sides)


def find_excuse(fitting, side, no_torch, deadline):
    """Why a run is not even begun; None if it is."""
    if not fitting:
        return "not run: one row does not fit"
    if side in TORCH_SIDES and no_torch:
        return no_torch
    return "not run: no time was left" if time.monotonic() > deadline else None


def run_models(options, roofs, gpu, result, _directory, tokens):
    deadline, fitted = time.monotonic() + options.seconds, {}
    no_torch = check_torch(options) if set(TORCH_SIDES) & set(options.sides) else None
    for model in options.models:
        fitted[model] = gpu_common.fit_rows(options, model, RESIDENT)
        rows = fitted[model].batch if fitted[model] else 0
        rounds = [{side: {"failed": "not run"} for side in options.sides}
                  for _ in range(options.pairs)]
        result["models"][model] = {"rows": rows, "rounds": rounds, "summary": {}}
        print(f"{model}: {rows} rows of {options.seq}, {options.precision}", flush=True)
    for model, index, side in list_runs(options):
        found, fitting = result["models"][model], fitted[model]
        excuse = find_excuse(fitting, side, no_torch, deadline)
        run = {"failed": excuse} if excuse else gpu_common.attempt(run_side, fitting, model, side,
                                                                   tokens)
        if "failed" not in run:
            describe(fitting, model, run, roofs, gpu)
        found["rounds"][index][side] = run
        found["summary"] = summarise(found["rounds"])
        gpu_common.keep(options, result)
        print_run(model, side, run, found["summary"])


def parse(words=None):
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, ["gpt2", "gpt2-xl"], 16, 1024, 12)
    parser.add_argument("--pairs", type=int, default=1, help="rounds over all sides (1)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE",
                        help=f"of {', '.join(SIDES)} (all)")
    parser.add_argument("--compile-blocks", nargs="*", default=["gpt2-xl"], metavar="NAME")
    parser.add_argument("--bench", metavar="FILE", help="of `sluice bench --json`")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch (this)")
    parser.add_argument("--seconds", type=float, default=600, help="no run starts later (600)")
    parser.add_argument("--torch-worker", choices=TORCH_SIDES, help="for the script itself")
    return parser.parse_args(words)


def main():
    options = parse()
    if options.torch_worker:
        torch_worker(options)
        return 0
    report = gpu_common.read_bench(options)
    roofs, gpu = gpu_limits.read_roofs(report, options.precision), report.get("gpu")
    result = {"options": vars(options), "gpu": gpu, "roofs": roofs, "models": {}}
    gpu_common.with_tokens(run_models, options, roofs, gpu, result)
    fitted = [one for one in result["models"].values() if one["rows"] > 0]
    return 0 if fitted and all("sluice" in one["summary"] for one in fitted) else 1


if __name__ == "__main__":
    sys.exit(main())
