#!/usr/bin/env python3
"""The largest GPT-2 that trains here with the device, host and disk that there are.

Shapes of one width with more and more blocks (--width, heads of 128), searched by `sluice plan` with
the policies that may use what is there; then one real step of the largest that fits (--no-run leaves
that out). Of --seconds the search takes a quarter at most, each try two thirds of what is left; a shape
that takes longer is followed by one of a quarter of its blocks. Reported: blocks, parameters, bytes by
tier, seconds of the step. Works with --device cpu too."""

import json
import subprocess
import sys
import time

import gpu_common
import gpu_limits

HEAD = 128
LAYERS_MAX = 4096


def shape_words(options, layers):
    return ("--layers", str(layers), "--width", str(options.width), "--heads",
            str(max(1, options.width // HEAD)), "--context", str(options.seq), "--vocab",
            str(gpu_limits.VOCAB))


def placement_words(options):
    return ["--policy", options.policy,
            *(["--disk-dir", options.disk_dir] if options.disk_dir else [])]


def plan(options, layers):
    return gpu_common.plan(options, shape_words(options, layers), placement_words(options))


def search(options):
    """The most blocks that fit: doubled until they do not, then halved between."""
    low, found, high = 0, None, 1
    deadline = time.monotonic() + options.seconds / 4
    while high <= LAYERS_MAX and time.monotonic() < deadline:
        one = plan(options, high)
        if not one:
            break
        low, found, high = high, one, high * 2
    while high - low > 1 and time.monotonic() < deadline:
        middle = (low + high) // 2
        one = plan(options, middle)
        if one:
            low, found = middle, one
        else:
            high = middle
    return low, found


def describe(options, layers, planned):
    parameters = gpu_limits.count_parameters(layers, options.width, context=options.seq)
    tiers = {name: tier["peak_bytes"] for name, tier in planned["tiers"].items()}
    return {"layers": layers, "width": options.width, "parameters": parameters, "tiers": tiers,
            "choice": planned.get("choice"), "predicted_step_ms": planned["predicted_step_ms"]}


def run_step(options, layers, tokens, seconds):
    words = gpu_common.train_words(options, shape_words(options, layers), placement_words(options))
    command = [options.sluice, "train", *words, "--data", tokens, "--steps", "1", "--quiet",
               "--log-json", "/dev/stdout"]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"not done within {seconds:.0f} s") from None
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()[-1500:]}")
    step = next(json.loads(line) for line in done.stdout.splitlines() if '"step_ms"' in line)
    return {"wall_seconds": time.monotonic() - start, "step_ms": step["step_ms"],
            "loss": step["loss"]}


def run(options, result, _directory, tokens):
    deadline = time.monotonic() + options.seconds
    layers, planned = search(options)
    if not planned:
        print(f"  not even one block of width {options.width} fits", flush=True)
        return
    result["largest"] = describe(options, layers, planned)
    gpu_common.keep(options, result)
    print(f"  planned: {layers} blocks of width {options.width}, "
          f"{result['largest']['parameters'] / 1e9:.2f} G parameters; " +
          ", ".join(f"{name} {size / 2 ** 30:.1f} GiB"
                    for name, size in result["largest"]["tiers"].items()), flush=True)
    while options.run and layers > 0:
        seconds = max(5, (deadline - time.monotonic()) * 2 / 3)
        found = gpu_common.attempt(run_step, options, layers, tokens, seconds)
        if "failed" not in found:
            result["ran"] = {**describe(options, layers, plan(options, layers)), **found}
            print(f"  ran: {layers} blocks, {result['ran']['parameters'] / 1e9:.2f} G parameters: "
                  f"loss {found['loss']:.3f}, step {found['step_ms']:.0f} ms", flush=True)
            break
        result.setdefault("did_not_run", []).append({"layers": layers, **found})
        gpu_common.keep(options, result)
        if "not done within" not in found["failed"]:
            break # a plan that fits and does not run is a fault, not a matter of time
        layers //= 4
    gpu_common.keep(options, result)


def parse(words=None):
    parser = gpu_common.open_parser(__doc__)
    gpu_common.add_shape(parser, [], 1, 1024, 1)
    parser.add_argument("--width", type=int, default=5120, help="features of a token (5120)")
    parser.add_argument("--policy", default="auto", help="(auto)")
    parser.add_argument("--disk-dir", help="a directory on a drive")
    parser.add_argument("--seconds", type=float, default=60, help="of all (60)")
    parser.add_argument("--no-run", dest="run", action="store_false", help="search alone")
    return parser.parse_args(words)


def main():
    options = parse()
    result = {"options": vars(options)}
    gpu_common.with_tokens(run, options, result)
    return 0 if "largest" in result and ("ran" in result or not options.run) else 1


if __name__ == "__main__":
    sys.exit(main())
