#!/usr/bin/env python3
"""Speed and memory of a training step, sluice beside PyTorch, in alternating pairs.

Runs `sluice train` and the same step in PyTorch in separate processes in turn (A B A B), because a
machine's speed moves within seconds; what counts is the ratio inside a pair. Both report each step
as a line on a pipe, and this script takes the time between lines: nobody measures himself. The time
up to the end of the first step is left out. Memory is the peak resident set of the whole process.
Other work on the machine spoils a run, PyTorch's spinning threads most of all: its share of the
processors is measured and printed, and runs with more than 3 % of it are called disturbed.

PyTorch gets the settings that were fastest of those tried: fused AdamW, scaled_dot_product_attention,
bound OpenMP threads that do not sleep, an allocator that keeps its pages and uses huge ones, and a
vocabulary padded to 50304. --python names the interpreter that has torch. See benchmarks/README.md.
"""

import argparse
import array
import fnmatch
import glob
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024), "gpt2-large": (36, 20, 1280),
          "gpt2-xl": (48, 25, 1600), "bytes-3m": (4, 4, 256)}
# Of transformers' own classes: the class, sluice's words, the configuration.
OF_TRANSFORMERS = {
    "qwen3-0.6b-8": ("Qwen3", ["--model", "qwen3-0.6b", "--layers", "8"],
                     {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
                      "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8,
                      "head_dim": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
                      "use_cache": False}),
}
TOKENS = 1 << 20
VOCAB, PADDED_VOCAB, CONTEXT = 50257, 50304, 1024
BYTES_VOCAB = 257  # bytes-3m: 3 million parameters, where the time of an op counts, not its work
JEMALLOC = "/usr/lib/*/libjemalloc.so.2"
OTHERS_LIMIT = 0.03
KEEP_PAGES = "34359738368"  # 32 GiB: the heap is never trimmed, nothing is mapped on its own

# ---- the PyTorch side: a process of its own ----


def vocab_of(options):
    return BYTES_VOCAB if options.model == "bytes-3m" else VOCAB


def padded_vocab_of(options):
    if options.torch_vocab is not None:
        return options.torch_vocab
    return BYTES_VOCAB if options.model == "bytes-3m" else PADDED_VOCAB


def build_of_transformers(options):
    import torch
    import transformers
    kind, _, words = OF_TRANSFORMERS[options.model]
    config = getattr(transformers, kind + "Config")(**words, attn_implementation="sdpa")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = getattr(transformers, kind + "ForCausalLM")(config)
            if options.torch_recompute:
                self.inner.gradient_checkpointing_enable()

        def forward(self, tokens, targets):
            logits = self.inner(tokens).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Model().train()


def build_model(options):
    if options.model in OF_TRANSFORMERS:
        return build_of_transformers(options)
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
    layers, heads, width = SHAPES[options.model]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            query, key, value = (part.unflatten(2, (heads, -1)).transpose(1, 2)
                                 for part in self.c_attn(self.ln_1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.attn_proj(y.transpose(1, 2).flatten(2))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(padded_vocab_of(options), width)
            self.wpe = nn.Embedding(CONTEXT, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if options.torch_recompute else block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Model()


def freeze(model, patterns):
    """Of whole blocks, wte, wpe and ln_f, whose names are sluice's but for `h`."""
    for name, parameter in model.named_parameters():
        own = name.replace("blocks.", "h.")
        parameter.requires_grad = not any(fnmatch.fnmatchcase(own, it) for it in patterns)


def open_adamw(model):
    import torch
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def torch_worker(options):
    """Trains and prints a line a step, as sluice's log has them."""
    import torch
    torch.manual_seed(1)
    model = build_model(options)
    freeze(model, options.freeze)
    adamw = open_adamw(model)
    call = torch.compile(model) if options.torch_compile else model
    for step in range(1, options.steps + 1):
        rows = torch.randint(0, vocab_of(options), (options.batch, options.seq + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            loss = call(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        print(json.dumps({"event": "step", "step": step, "loss": loss.item()}), flush=True)
    print(json.dumps({"event": "end", "version": torch.__version__}), flush=True)


def torch_environment(options):
    """What is set for PyTorch beyond the caller's environment."""
    # The count is taken here: once OpenMP has bound its threads, the worker sees its own core only.
    added = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "OMP_WAIT_POLICY": "active",
             "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    preload = [options.mkl_vendor_override] if options.mkl_vendor_override else []
    found = sorted(glob.glob(JEMALLOC))
    if options.allocator == "jemalloc" and not found:
        raise SystemExit(f"{JEMALLOC} is not there: install libjemalloc2, or --allocator glibc")
    if options.allocator == "jemalloc" or (options.allocator == "auto" and found):
        preload.insert(0, found[0])
        added["MALLOC_CONF"] = ("thp:always,metadata_thp:always,dirty_decay_ms:-1,"
                                "muzzy_decay_ms:-1,oversize_threshold:0")
    elif options.allocator != "plain":
        added["GLIBC_TUNABLES"] = ("glibc.malloc.hugetlb=1:"
                                   f"glibc.malloc.mmap_threshold={KEEP_PAGES}:"
                                   f"glibc.malloc.trim_threshold={KEEP_PAGES}:"
                                   "glibc.malloc.top_pad=268435456")
    if preload:
        added["LD_PRELOAD"] = ":".join(preload)
    return added


# ---- measuring a process ----


def probe_clock():
    """Milliseconds of a fixed piece of work on one core: shows when the machine changed speed."""
    start = time.perf_counter()
    total = 0
    for i in range(2_000_000):
        total += i & 7
    return (time.perf_counter() - start) * 1e3


def read_busy_seconds():
    """Processor seconds of everything on this machine since it started, waiting left out; what a
    hypervisor took (steal) counts as others' work."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    user, nice, system, _, _, interrupt, soft_interrupt, steal = ticks[:8]
    return (user + nice + system + interrupt + soft_interrupt + steal) / os.sysconf("SC_CLK_TCK")


def measure(name, command, environment, options):
    """Runs `command`, which writes one JSON line a step to its standard output."""
    clock_ms = probe_clock()
    arrivals, losses, last, end = [], [], {}, {}
    busy_seconds, start = -read_busy_seconds(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, **environment})
    for line in process.stdout:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "step":
            arrivals.append(time.perf_counter())
            losses.append(event["loss"])
            last = event
        elif event.get("event") == "end":
            end = event
    _, status, usage = os.wait4(process.pid, 0)
    busy_seconds += read_busy_seconds() - usage.ru_utime - usage.ru_stime
    wall_seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or len(arrivals) != options.steps:
        raise SystemExit(f"{name} ended with {process.returncode} after {len(arrivals)} steps: "
                         f"{' '.join(command)}")
    seconds = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    return {"name": name, "step_seconds": seconds, "losses": losses, "last": last,
            "tokens_per_s": options.batch * options.seq / statistics.median(seconds),
            "peak_rss_bytes": usage.ru_maxrss * 1024, "clock_probe_ms": clock_ms,
            "others_share": max(0.0, busy_seconds / wall_seconds / os.cpu_count()),
            "version": end.get("version")}


def write_tokens(path, vocab):
    values = random.Random(1)
    with open(path, "wb") as file:
        array.array("H", (values.randrange(vocab) for _ in range(TOKENS))).tofile(file)


def sluice_shape(options):
    if options.model in OF_TRANSFORMERS:
        return OF_TRANSFORMERS[options.model][1]
    if options.model != "bytes-3m":
        return ["--model", options.model]
    layers, heads, width = SHAPES[options.model]
    return ["--layers", str(layers), "--heads", str(heads), "--width", str(width), "--context",
            str(CONTEXT), "--tokenizer", "byte"]


def sluice_command(options, tokens):
    return [options.sluice, "train", *sluice_shape(options), "--data", tokens, "--device", "cpu",
            "--policy", "device", "--micro-batch", str(options.batch), "--seq", str(options.seq),
            "--steps", str(options.steps), "--precision", options.precision, "--quiet",
            "--log-json", "/dev/stdout", *(["--freeze"] if options.freeze else []), *options.freeze,
            *options.sluice_option]


def torch_command(options):
    command = [options.python, os.path.abspath(__file__), "--torch-worker", "--model",
               options.model, "--batch", str(options.batch), "--seq", str(options.seq), "--steps",
               str(options.steps), "--precision", options.precision, "--torch-vocab",
               str(padded_vocab_of(options))]
    command += ["--torch-compile"] if options.torch_compile else []
    command += ["--torch-recompute"] if options.torch_recompute else []
    return command + (["--freeze", *options.freeze] if options.freeze else [])


def measure_pair(options, tokens):
    return {"sluice": measure("sluice", sluice_command(options, tokens), {}, options),
            "torch": measure("torch", torch_command(options), torch_environment(options), options)}


# ---- the report ----


def describe_machine():
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def read_commit():
    try:
        return subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe",
                               "--always", "--dirty"], capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def summarise(pairs):
    speed = {side: statistics.median(pair[side]["tokens_per_s"] for pair in pairs)
             for side in ("sluice", "torch")}
    peak = {side: max(pair[side]["peak_rss_bytes"] for pair in pairs)
            for side in ("sluice", "torch")}
    ratios = [pair["sluice"]["tokens_per_s"] / pair["torch"]["tokens_per_s"] for pair in pairs]
    return {"tokens_per_s": speed, "speed_ratio_by_pair": ratios,
            "speed_ratio": statistics.median(ratios),
            "disturbed_pairs": sum(is_disturbed(pair) for pair in pairs), "peak_rss_bytes": peak,
            "memory_ratio": peak["sluice"] / peak["torch"]}


def is_disturbed(pair):
    return any(run["others_share"] > OTHERS_LIMIT for run in pair.values())


def print_pair(index, pair):
    sluice, torch = pair["sluice"], pair["torch"]
    print(f"{index:4d} {sluice['tokens_per_s']:10.1f} {torch['tokens_per_s']:10.1f} "
          f"{sluice['tokens_per_s'] / torch['tokens_per_s']:7.3f} "
          f"{sluice['peak_rss_bytes'] / 2 ** 30:9.2f} {torch['peak_rss_bytes'] / 2 ** 30:9.2f} "
          f"{sluice['peak_rss_bytes'] / torch['peak_rss_bytes']:7.3f} "
          f"{sluice['clock_probe_ms']:6.0f} {torch['clock_probe_ms']:6.0f} "
          f"{sluice['others_share']:7.0%} {torch['others_share']:6.0%}"
          f"{'  disturbed' if is_disturbed(pair) else ''}", flush=True)


def print_summary(summary):
    speed, peak = summary["tokens_per_s"], summary["peak_rss_bytes"]
    print(f" all {speed['sluice']:10.1f} {speed['torch']:10.1f} {summary['speed_ratio']:7.3f} "
          f"{peak['sluice'] / 2 ** 30:9.2f} {peak['torch'] / 2 ** 30:9.2f} "
          f"{summary['memory_ratio']:7.3f}")
    if summary["disturbed_pairs"]:
        print(f"{summary['disturbed_pairs']} pairs are disturbed by other work: run it again alone")


def run_pairs(options):
    print(f"{options.model}, {options.batch} rows of {options.seq} tokens, {options.precision}, "
          f"{options.steps} steps a run, the first left out")
    print(f"{'':4s} {'tokens/s':>21s} {'':7s} {'peak GiB':>19s} {'':7s} {'clock probe ms':>13s} "
          f"{'others work':>14s}")
    print(f"pair {'sluice':>10s} {'torch':>10s} {'ratio':>7s} {'sluice':>9s} {'torch':>9s} "
          f"{'ratio':>7s} {'sluice':>6s} {'torch':>6s} {'sluice':>7s} {'torch':>6s}", flush=True)
    pairs = []
    with tempfile.TemporaryDirectory() as directory:
        tokens = os.path.join(directory, "tokens.bin")
        write_tokens(tokens, vocab_of(options))
        for index in range(1, options.pairs + 1):
            pairs.append(measure_pair(options, tokens))
            print_pair(index, pairs[-1])
    summary = summarise(pairs)
    print_summary(summary)
    return {"options": {key: value for key, value in vars(options).items()
                        if key not in ("torch_worker", "json")},
            "machine": describe_machine(), "commit": read_commit(),
            "torch_environment": torch_environment(options), "summary": summary, "pairs": pairs}


def parse():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted([*SHAPES, *OF_TRANSFORMERS]),
                        default="gpt2", help="(gpt2)")
    parser.add_argument("--batch", type=int, default=4, help="rows (4)")
    parser.add_argument("--seq", type=int, default=256, help="tokens of a row (256)")
    parser.add_argument("--pairs", type=int, default=3, help="(3)")
    parser.add_argument("--steps", type=int, default=6, help="of a run, the first left out (6)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--json", metavar="FILE", help="write everything measured here")
    parser.add_argument("--sluice", default=os.path.join(root, "build/sluice"), help="the command")
    parser.add_argument("--sluice-option", action="append", default=[], metavar="OPTION",
                        help="one more word for sluice train, as --sluice-option=--threads=2")
    parser.add_argument("--freeze", nargs="+", default=[], metavar="PATTERN",
                        help="tensors that keep their values, of whole blocks, wte, wpe and ln_f")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch (this)")
    parser.add_argument("--torch-compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--torch-recompute", action="store_true",
                        help="PyTorch recomputes each block's activations (torch.utils.checkpoint)")
    parser.add_argument("--torch-vocab", type=int,
                        help=f"PyTorch's padded vocabulary ({PADDED_VOCAB}; {BYTES_VOCAB} for bytes-3m)")
    parser.add_argument("--allocator", choices=("auto", "jemalloc", "glibc", "plain"),
                        default="auto", help="PyTorch's: jemalloc where installed, else tuned glibc")
    parser.add_argument("--mkl-vendor-override", metavar="LIB",
                        help="preload LIB, which makes MKL take its Intel paths on other processors")
    parser.add_argument("--torch-worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 2 or options.pairs < 1:
        parser.error("at least one pair and two steps")
    if options.freeze and options.model in OF_TRANSFORMERS:
        parser.error("--freeze knows the names of GPT-2 alone")
    return options


def main():
    options = parse()
    if options.torch_worker:
        torch_worker(options)
        return
    result = run_pairs(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
