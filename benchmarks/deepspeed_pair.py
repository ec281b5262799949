#!/usr/bin/env python3
"""What a user would pick instead: DeepSpeed's ZeRO-3 with optimizer states and parameters on NVMe (ZeRO-Infinity)
beside `sluice train --policy nvme`: the same GPT-2, rows, precision (bf16 with fp32 master weights and moments),
clipping and threads, as processes that run in turn.

DeepSpeed is told to keep nothing in host memory that it need not (max_in_cpu 0, small buckets), as sluice is by its
budgets. Reported for each run: seconds from the start to the end of the first step, seconds of a step after it
(median), tokens a second, the proportional set size of the process tree (largest sample; ten a second), bytes that
reached the drive (/proc/PID/io); then medians and ratios of neighbours. Other work is printed as the load.

    python3 -m venv VENV && VENV/bin/pip install torch wheel "setuptools<81" ninja transformers
    apt-get install libaio-dev g++ python3-dev     # DeepSpeed compiles its Adam and its disk I/O when first used
    DS_BUILD_OPS=0 VENV/bin/pip install deepspeed --no-build-isolation
    benchmarks/deepspeed_pair.py --python VENV/bin/python --disk-dir DIR --json pair.json
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
VOCAB, CONTEXT = 50257, 1024
MODELS = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--python", default=sys.executable, help="interpreter with DeepSpeed")
    parser.add_argument("--disk-dir", required=True, help="where both keep what is not in memory")
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device-memory", default="600M", help="sluice's budget (%(default)s)")
    parser.add_argument("--host-memory", default="300M", help="sluice's budget (%(default)s)")
    parser.add_argument("--json", help="everything measured")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- DeepSpeed ----


def configure(options):
    aio = {"block_size": MIB, "queue_depth": 32, "intra_op_parallelism": 1, "single_submit": False,
           "overlap_events": True}
    largest = 50304 * MODELS[options.model][1]
    return {
        "train_micro_batch_size_per_gpu": options.batch, "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8,
                                                  "weight_decay": 0.1}},
        "zero_optimization": {
            "stage": 3, "contiguous_gradients": True, "overlap_comm": False,
            "reduce_bucket_size": 4 * MIB, "stage3_prefetch_bucket_size": 4 * MIB,
            "stage3_param_persistence_threshold": 10000, "stage3_max_live_parameters": largest,
            "stage3_max_reuse_distance": 0, "sub_group_size": largest,
            "offload_param": {"device": "nvme", "nvme_path": options.disk_dir, "max_in_cpu": 0,
                              "buffer_count": 5, "buffer_size": largest, "pin_memory": False},
            "offload_optimizer": {"device": "nvme", "nvme_path": options.disk_dir,
                                  "buffer_count": 4, "pin_memory": False}},
        "aio": aio, "steps_per_print": 1000000, "wall_clock_breakdown": False}


def build_model(options):
    import torch
    from torch import nn
    from torch.nn import functional

    layers, width, heads = MODELS[options.model]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            rows, seq, _ = x.shape
            parts = self.attn(self.ln_1(x)).view(rows, seq, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(rows, seq, width))
            return x + self.out(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(50304, width), nn.Embedding(CONTEXT, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    return Model()


def work(options):
    """DeepSpeed's run: prints a line a step, as sluice's log has them."""
    import torch
    import deepspeed

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    deepspeed.init_distributed("gloo")
    config = configure(options)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = build_model(options)
    engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                           model_parameters=model.parameters())
    for step in range(1, options.steps + 1):
        rows = torch.randint(0, VOCAB, (options.batch, options.seq + 1))
        loss = engine(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        engine.backward(loss)
        engine.step()
        print(json.dumps({"event": "step", "step": step, "loss": loss.item()}), flush=True)
    print(json.dumps({"event": "end", "version": f"deepspeed {deepspeed.__version__}, torch {torch.__version__}"}),
          flush=True)


# ---- a process tree ----


def list_tree(root):
    tree, todo = [], [root]
    while todo:
        process = todo.pop()
        tree.append(process)
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
                    todo += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return tree


def read_keys(path, keys):
    found = dict.fromkeys(keys, 0)
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in found:
                    found[name] = int(rest.split()[0])
    except (OSError, ValueError):
        pass
    return found


def watch(root, seen, stop):
    """Keeps the largest sum of proportional set sizes, and each process's last word on its bytes."""
    while not stop.wait(0.1):
        total = 0
        for process in list_tree(root):
            total += read_keys(f"/proc/{process}/smaps_rollup", ["Pss"])["Pss"] * 1024
            moved = read_keys(f"/proc/{process}/io", ["read_bytes", "write_bytes"])
            if moved["read_bytes"] or moved["write_bytes"]:
                seen["io"][process] = moved
        seen["pss"] = max(seen["pss"], total)


def measure(name, command, environment, options):
    seen, stop, arrivals, losses, end = {"pss": 0, "io": {}}, threading.Event(), [], [], {}
    load, start = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env={**os.environ, **environment})
        watcher = threading.Thread(target=watch, args=(process.pid, seen, stop))
        watcher.start()
        for line in process.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "step":
                arrivals.append(time.perf_counter())
                losses.append(event["loss"])
            elif event.get("event") == "end":
                end = event
        code = process.wait()
        stop.set()
        watcher.join()
        errors.seek(0)
        if code != 0 or len(arrivals) != options.steps:
            raise SystemExit(f"{name} ended with {code} after {len(arrivals)} steps:\n"
                             f"{errors.read()[-3000:]}")
    seconds = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    run = {"name": name, "first_step_s": arrivals[0] - start, "step_s": statistics.median(seconds),
           "steps_s": seconds, "losses": losses, "pss_bytes": seen["pss"], "load": load,
           "tokens_per_s": options.batch * options.seq / statistics.median(seconds),
           "read_bytes": sum(io["read_bytes"] for io in seen["io"].values()),
           "written_bytes": sum(io["write_bytes"] for io in seen["io"].values()),
           "version": end.get("version")}
    print(f"  {name:9} start-up and first step {run['first_step_s']:6.1f} s, a step {run['step_s']:6.2f} s "
          f"({min(seconds):.2f} to {max(seconds):.2f}), {run['tokens_per_s']:6.1f} tokens/s, "
          f"{run['pss_bytes'] / MIB:6.0f} MiB, read {run['read_bytes'] / MIB:6.0f} MiB, "
          f"written {run['written_bytes'] / MIB:6.0f} MiB, load {load:.1f}", flush=True)
    return run


# ---- the pairs ----


def sluice_command(options, tokens):
    return [options.sluice, "train", "--model", options.model, "--data", tokens, "--device", "cpu",
            "--policy", "nvme", "--nvme-params", "1", "--nvme-grads", "1", "--disk-dir",
            options.disk_dir, "--device-memory", options.device_memory, "--host-memory",
            options.host_memory, "--micro-batch", str(options.batch), "--seq", str(options.seq),
            "--steps", str(options.steps), "--precision", "bf16", "--threads",
            str(options.threads), "--quiet", "--log-json", "/dev/stdout"]


def deepspeed_command(options):
    words = [options.python, os.path.abspath(__file__), "--worker", "--disk-dir", options.disk_dir]
    for name in ("model", "batch", "seq", "steps", "threads"):
        words += [f"--{name}", str(getattr(options, name))]
    return words


def deepspeed_environment(options):
    port = str(random.randrange(20000, 60000))
    binary = os.path.dirname(os.path.abspath(options.python))
    return {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0",
            "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": str(options.threads),
            "PATH": binary + os.pathsep + os.environ["PATH"]}


def compare(pairs):
    rows = [("seconds a step", "step_s", 1), ("tokens a second", "tokens_per_s", 1),
            ("start-up and first step, s", "first_step_s", 1), ("set of the tree, MiB", "pss_bytes", MIB),
            ("read in all, MiB", "read_bytes", MIB), ("written in all, MiB", "written_bytes", MIB)]
    print(f"\n{'':28} {'sluice':>10} {'DeepSpeed':>10}  DeepSpeed / sluice, in pairs")
    for title, key, unit in rows:
        ratios = [pair["deepspeed"][key] / max(pair["sluice"][key], 1e-9) for pair in pairs]
        ours, theirs = (statistics.median(pair[who][key] for pair in pairs) / unit
                        for who in ("sluice", "deepspeed"))
        print(f"{title:28} {ours:10.2f} {theirs:10.2f}  {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    options = parse()
    if options.worker:
        work(options)
        return
    os.makedirs(options.disk_dir, mode=0o700, exist_ok=True)
    pairs = []
    with tempfile.TemporaryDirectory() as scratch:
        tokens = os.path.join(scratch, "tokens.bin")
        draw = random.Random(1)
        with open(tokens, "wb") as file:
            file.write(b"".join(draw.randrange(VOCAB).to_bytes(2, "little") for _ in range(200000)))
        for index in range(options.pairs):
            print(f"pair {index + 1} of {options.pairs}", flush=True)
            runs = {"sluice": lambda: measure("sluice", sluice_command(options, tokens), {}, options),
                    "deepspeed": lambda: measure("deepspeed", deepspeed_command(options),
                                                 deepspeed_environment(options), options)}
            order = ["sluice", "deepspeed"] if index % 2 == 0 else ["deepspeed", "sluice"]
            pairs.append({who: runs[who]() for who in order})
            shutil.rmtree(os.path.join(options.disk_dir, "zero_stage_3"), ignore_errors=True)
            if options.json: # what there is, after every pair
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"options": vars(options), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                               "cores": os.cpu_count(), "pairs": pairs}, file, indent=1)
    compare(pairs)


if __name__ == "__main__":
    main()
