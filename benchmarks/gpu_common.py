"""What the benchmarks for GPUs share: options; plans that tell how many rows fit, and with how little memory
states have to move; runs of `sluice train` whose steps are timed as they are reported; the driver's count of
memory; results that are kept if a later part fails."""

import argparse
import json
import os
import subprocess
import tempfile
import threading
import time

import steps
import torch_pair

MOVED = ("h2d_bytes", "d2h_bytes", "disk_read_bytes", "disk_written_bytes")  # of a step's log
LANE_BYTES = {"h2d": "h2d_bytes", "d2h": "d2h_bytes", "read": "disk_read_bytes",
              "write": "disk_written_bytes"}  # a lane that moves chunks, and its bytes in a step's log
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def open_parser(doc, **defaults):
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(ROOT, "build/sluice"), help="the command")
    parser.add_argument("--device", default="cuda", help="cuda[:N] or cpu (cuda)")
    parser.add_argument("--device-memory", metavar="SIZE", help="for each run (what is free)")
    parser.add_argument("--host-memory", metavar="SIZE", help="for each run (80 %% of what is free)")
    parser.add_argument("--disk-space", metavar="SIZE", help="for each run with a drive (90 %% of it)")
    parser.add_argument("--json", metavar="FILE", help="file for everything measured")
    parser.add_argument("--sluice-option", action="append", default=[], metavar="WORD",
                        help="one more word of each sluice command, any number of times")
    parser.set_defaults(**defaults)
    return parser


def add_shape(parser, models, batch, seq, steps_count, precision="bf16"):
    parser.add_argument("--models", nargs="+", default=models, metavar="NAME")
    parser.add_argument("--batch", type=int, default=batch, help=f"rows ({batch})")
    parser.add_argument("--seq", type=int, default=seq, help=f"tokens of a row ({seq})")
    parser.add_argument("--steps", type=int, default=steps_count,
                        help=f"of a run, the first two not counted ({steps_count})")
    parser.add_argument("--precision", default=precision, help=f"({precision})")


def copy_options(options, **changed):
    return argparse.Namespace(**{**vars(options), **changed})


def keep(options, result):
    """Written after every part, so that nothing is lost when a later one fails."""
    if not options.json:
        return
    with open(options.json + ".tmp", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(options.json + ".tmp", options.json)


def train_words(options, model, words):
    """Options of `train` and `plan`; budgets that `words` name come before those of all runs."""
    shape = ["--model", model] if isinstance(model, str) else list(model)
    budgets = []
    for name in ("device-memory", "host-memory", *(["disk-space"] if "--disk-dir" in words else [])):
        size = getattr(options, name.replace("-", "_"))
        if size and f"--{name}" not in words:
            budgets += [f"--{name}", size]
    return [*shape, "--device", options.device, "--precision", options.precision, "--micro-batch",
            str(options.batch), "--seq", str(options.seq), *words, *budgets, *options.sluice_option]


# ---- plans: a run follows its plan, so a plan tells what the run will move ----


def plan(options, model, words):
    """The plan that `sluice plan` prints, or None if it does not fit."""
    command = [options.sluice, "plan", "--json", *train_words(options, model, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()}") from None
    return found if found.get("fits") else None


def squeeze(options, model, words):
    """A budget of the device's memory, as options. It holds activations, workspaces and half of everything
    else that a run with more room keeps there, so chunks have to leave the device and come back."""
    found = plan(options, model, words)
    if not found:
        return []
    device = found["tiers"]["device"]
    needed = sum(device[name] for name in ("activation", "workspace", "staging"))
    return ["--device-memory", str(needed + (device["peak_bytes"] - needed) // 2)]


def fit_rows(options, model, words):
    """The options with --batch halved until the run fits; None if one row does not fit."""
    rows = options.batch
    while rows > 0:
        fewer = copy_options(options, batch=rows)
        if plan(fewer, model, words):
            return fewer
        rows //= 2
    return None


def check_lanes(lanes, moved):
    """Raises SystemExit if a lane that the run has to measure was idle. `moved` has each lane's bytes in the
    step's log, or its busy seconds."""
    idle = [lane for lane in lanes if moved.get(lane) == 0]
    if idle:
        raise SystemExit(f"idle lanes: {', '.join(idle)}: what they had to move stayed on the device, whose "
                         "memory or budget is too large")


def read_moved(event):
    """Bytes by lane, for the lanes that the step's log has."""
    return {lane: event[name] for lane, name in LANE_BYTES.items() if name in event}


def time_steps(options, name, command, environment=None):
    """Median seconds and tokens a second of a command that prints a line a step; its losses; bytes
    that its last step moved, where it says so."""
    run = torch_pair.measure(name, command, environment or {}, options)
    counted = sorted(run["step_seconds"][1:]) or run["step_seconds"]
    seconds = counted[len(counted) // 2]
    return {"step_seconds": seconds, "tokens_per_s": options.batch * options.seq / seconds,
            "spread": (counted[-1] - counted[0]) / seconds,
            "all_step_seconds": run["step_seconds"], "losses": run["losses"],
            "moved": {name: run["last"][name] for name in MOVED if name in run["last"]},
            "peak_rss_bytes": run["peak_rss_bytes"], "version": run["version"]}


def time_sluice(options, model, words, tokens):
    command = [options.sluice, "train", *train_words(options, model, words), "--data", tokens,
               "--steps", str(options.steps), "--quiet", "--log-json", "/dev/stdout"]
    return time_steps(options, "sluice", command)


def read_bench(options):
    """The report of `sluice bench --json`, or what can be said without one."""
    if options.bench and os.path.exists(options.bench):
        with open(options.bench) as file:
            return json.load(file)
    gpu = query_gpu("name") if options.device.startswith("cuda") else None
    return {"gpu": gpu, "rows": [], "missing": f"{options.bench or '--bench'} is not there"}


def attempt(function, *arguments):
    """The result, or {"failed": why}: one part that fails is a result too."""
    try:
        return function(*arguments)
    except SystemExit as end:
        text = str(end)
        print(f"  failed: {text[:300]}", flush=True)
        return {"failed": text[:2000]}


def with_tokens(function, *arguments):
    with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as directory:
        return function(*arguments, directory, steps.write_tokens(directory))


# ---- what the driver says ----


def query_gpu(what):
    """Of the first GPU; None where nothing can say."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={what}",
                               "--format=csv,noheader,nounits", "--id=0"],
                              capture_output=True, text=True, timeout=10)
        return done.stdout.strip() if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError):
        return None


def query_used_bytes():
    used = query_gpu("memory.used") or ""
    return int(used) * 2 ** 20 if used.isdigit() else None


class MemoryWatch:
    """The most that the GPU's memory had in use beyond what it had before."""

    def __enter__(self):
        self.before, self.most, self.is_over = query_used_bytes(), None, False
        self.thread = threading.Thread(target=self.watch, daemon=True)
        if self.before is not None:
            self.thread.start()
        return self

    def watch(self):
        while not self.is_over:
            used = query_used_bytes()
            if used is not None:
                self.most = max(self.most or 0, used - self.before)
            time.sleep(0.1)

    def __exit__(self, *_):
        self.is_over = True
        if self.thread.is_alive():
            self.thread.join()
