#!/usr/bin/env python3
"""The kernels of known models, sluice beside PyTorch (oneDNN), row by row.

Runs `sluice bench --only product,attention` and the same products and attentions in PyTorch, one type
of one model at a time, in separate processes in turn (A B, then B A), and prints the ratio of each row:
above 1 sluice is faster. Of the rows' products PyTorch computes torch.nn.functional.linear (forward) and
matmul (input, weight) into memory that is there; of attention scaled_dot_product_attention, causal, its
backward, and one query beside a full cache (cached). Weights and their gradients come from memory and
activations from a cache, in both. FLOPs are counted alike: half of attention's scores are masked.

PyTorch gets the settings of torch_pair.py. One result is stored otherwise: of the head's `input` sluice
writes fp32. See benchmarks/README.md."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from torch_pair import describe_machine, probe_clock, read_busy_seconds, read_commit, torch_environment

MODELS = ("gpt2", "gpt2-medium", "gpt2-xl", "llama-3.2-1b", "llama-3-8b")
COLD_BYTES = 512 << 20 # of weights in turn, more than a cache holds
COPIES_MOST, CALLS_MOST, SAMPLES, SAMPLES_FEW = 64, 1000, 5, 3
SAMPLE_SECONDS, LONG_SECONDS = 1e-3, 0.25
OTHERS_LIMIT = 0.03

# ---- the PyTorch side: a process of its own ----


def count_copies(elements, item):
    return max(1, min(COPIES_MOST, COLD_BYTES // (elements * item)))


def open_product(torch, row, dtype):
    """A function of the number of the call, that computes the row."""
    rows, inputs, outputs = row["rows"], row["in"], row["out"]
    x = torch.randn(rows, inputs).to(dtype)
    dy = torch.randn(rows, outputs).to(dtype)
    copies = count_copies(inputs * outputs, x.element_size())
    weights = [torch.randn(outputs, inputs).to(dtype)]
    weights += [weights[0].clone() for _ in range(copies - 1)]
    if row["direction"] == "forward":
        return lambda i: torch.nn.functional.linear(x, weights[i % copies])
    if row["direction"] == "input":
        dx = torch.empty_like(x)
        return lambda i: torch.matmul(dy, weights[i % copies], out=dx)
    return lambda i: torch.matmul(dy.t(), x, out=weights[i % copies])


def open_attention(torch, row, dtype):
    attend = torch.nn.functional.scaled_dot_product_attention
    batch, tokens, heads, width = row["batch"], row["rows"], row["heads"], row["head_width"]
    key_heads = row["key_heads"]
    shared = {"enable_gqa": True} if key_heads < heads else {}
    if row["direction"] == "cached":
        query = torch.randn(1, heads, 1, width).to(dtype)
        copies = count_copies(2 * key_heads * tokens * width, query.element_size())
        caches = [torch.randn(2, 1, key_heads, tokens, width).to(dtype)
                  for _ in range(min(copies, 8))]
        return lambda i: attend(query, *caches[i % len(caches)], **shared)
    qkv = torch.randn(batch, tokens, heads + 2 * key_heads, width).to(dtype)
    parts = [part.transpose(1, 2) for part in qkv.split((heads, key_heads, key_heads), dim=2)]
    if row["direction"] == "forward":
        return lambda i: attend(*parts, is_causal=True, **shared)
    parts = [part.detach().requires_grad_() for part in parts]
    with torch.enable_grad():
        y = attend(*parts, is_causal=True, **shared)
    dy = torch.randn(batch, tokens, heads, width).to(dtype).transpose(1, 2)
    return lambda i: torch.autograd.grad(y, parts, dy, retain_graph=True)


def time_calls(function, count):
    start = time.perf_counter()
    for i in range(count):
        function(i)
    return (time.perf_counter() - start) / count


def measure_row(torch, row):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[row["type"]]
    function = (open_product if row["group"] == "product" else open_attention)(torch, row, dtype)
    seconds = time_calls(function, 1)
    if seconds < LONG_SECONDS:
        seconds = time_calls(function, 2)
    count = max(1, min(CALLS_MOST, int(SAMPLE_SECONDS / seconds)))
    samples = SAMPLES if seconds < LONG_SECONDS else SAMPLES_FEW
    return statistics.median(time_calls(function, count) for _ in range(samples))


def torch_worker():
    """Reads rows as one JSON list and prints the seconds of each."""
    import torch
    torch.manual_seed(1)
    rows = json.load(sys.stdin)
    with torch.no_grad():
        seconds = [measure_row(torch, row) for row in rows]
    print(json.dumps({"version": torch.__version__, "seconds": seconds}))


# ---- both sides ----


def run(command, environment, text=None):
    """The last line of what the command prints, as JSON, and the share of others' work meanwhile."""
    clock_ms = probe_clock()
    busy_seconds, start = -read_busy_seconds(), time.perf_counter()
    before = os.times()
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **environment})
    after = os.times()
    if done.returncode != 0:
        raise SystemExit(f"ended with {done.returncode}: {' '.join(command)}")
    own = after.children_user + after.children_system - before.children_user - before.children_system
    share = (busy_seconds + read_busy_seconds() - own) / (time.perf_counter() - start) / os.cpu_count()
    return json.loads(done.stdout), {"others_share": max(0.0, share), "clock_probe_ms": clock_ms}


def run_sluice(options, words):
    command = [options.sluice, "bench", "--only", options.only, "--json", "--quiet", "--match", *words]
    return run(command, {})


def run_torch(options, rows):
    command = [options.python, os.path.abspath(__file__), "--torch-worker"]
    wanted = ("group", "type", "direction", "batch", "rows", "in", "out", "heads", "key_heads",
              "head_width")
    text = json.dumps([{key: row[key] for key in wanted if key in row} for row in rows])
    return run(command, torch_environment(options), text)


def measure_pairs(options, words):
    """The rows of one type of one model, with the rates of both sides in each pair."""
    rows, machine = None, {}
    for pair in range(options.pairs):
        torch_first = pair % 2 == 1
        if torch_first:
            other, other_state = run_torch(options, rows)
        said, state = run_sluice(options, words)
        if rows is None:
            rows = [{**row, "pairs": []} for row in said["rows"]]
            machine = {key: said[key] for key in ("cpu", "kernels", "version", "thread_count")}
        if not torch_first:
            other, other_state = run_torch(options, rows)
        machine["torch"] = other["version"]
        for row, ours, seconds in zip(rows, said["rows"], other["seconds"]):
            flops = ours["median"] * ours["seconds"]
            row["pairs"].append({"sluice": ours["median"], "torch": flops / seconds, "roof": ours.get("roof"),
                                 "sluice_state": state, "torch_state": other_state})
    return rows, machine


def sum_up(row):
    """The row with medians over its pairs; others' work is kept as its largest share."""
    pairs = row["pairs"]
    kept = {key: row[key] for key in ("group", "type", "name", "model", "part", "direction", "batch", "rows",
                                      "in", "out", "heads", "key_heads", "head_width") if key in row}
    states = [pair[side] for pair in pairs for side in ("sluice_state", "torch_state")]
    ratios = [pair["sluice"] / pair["torch"] for pair in pairs]
    roofs = [pair["roof"] for pair in pairs if pair["roof"]]
    sluice, torch = (statistics.median(pair[side] for pair in pairs) for side in ("sluice", "torch"))
    return {**kept, "unit": "FLOP/s", "sluice": sluice, "torch": torch, "ratio": statistics.median(ratios),
            "ratio_by_pair": ratios, "roof": statistics.median(roofs) if roofs else None,
            "others_share": max(state["others_share"] for state in states)}


def print_rows(rows):
    for row in rows:
        share = f"{100 * row['sluice'] / row['roof']:3.0f}% {100 * row['torch'] / row['roof']:3.0f}%" if row["roof"] else ""
        print(f"{row['type']:4} {row['name']:52} {row['sluice'] / 1e9:7.1f} {row['torch'] / 1e9:7.1f} "
              f"{share:9} {row['ratio']:6.2f}{'  disturbed' if row['others_share'] > OTHERS_LIMIT else ''}", flush=True)


def print_summary(rows):
    print("\nmedian ratio, least, largest")
    keys = sorted({(row["type"], row["group"], row["direction"]) for row in rows})
    for key in keys:
        ratios = [row["ratio"] for row in rows if (row["type"], row["group"], row["direction"]) == key]
        print(f"{key[0]:4} {key[1]:9} {key[2]:8} {statistics.median(ratios):6.2f} {min(ratios):6.2f} {max(ratios):6.2f}")


def parse():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["gpt2", "llama-3.2-1b"],
                        help="(gpt2 llama-3.2-1b)")
    parser.add_argument("--types", nargs="+", choices=("fp32", "bf16", "fp16"), default=["bf16", "fp32"],
                        help="(bf16 fp32)")
    parser.add_argument("--only", default="product,attention", help="(product,attention)")
    parser.add_argument("--match", nargs="+", default=[], metavar="WORD", help="more words for sluice's --match")
    parser.add_argument("--pairs", type=int, default=3, help="(3)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured here")
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"), help="the command")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch (this)")
    parser.add_argument("--allocator", choices=("auto", "jemalloc", "glibc", "plain"), default="auto",
                        help="PyTorch's: jemalloc where installed, else tuned glibc")
    parser.add_argument("--mkl-vendor-override", metavar="LIB",
                        help="preload LIB, which makes MKL take its Intel paths on other processors")
    parser.add_argument("--torch-worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("at least one pair")
    return options


def main():
    options = parse()
    if options.torch_worker:
        torch_worker()
        return
    print(f"{'':57} {'GFLOP/s':>15} {'of roof':>9}\n{'':57} {'sluice':>7} {'torch':>7} {'':9} {'ratio':>6}")
    all_rows, machine = [], {}
    for model in options.models:
        for kind in options.types:
            rows, machine = measure_pairs(options, [kind, model, *options.match])
            rows = [sum_up(row) for row in rows]
            print_rows(rows)
            all_rows += rows
    print_summary(all_rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **machine, "commit": read_commit(),
                       "machine": describe_machine(), "pairs": options.pairs,
                       "torch_environment": {key: value for key, value in torch_environment(options).items()
                                             if key != "LD_PRELOAD"},
                       "rows": all_rows}, file, indent=1)


if __name__ == "__main__":
    main()
