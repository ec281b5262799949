#!/usr/bin/env python3
"""Whether a GPU computes what the processor does, and the same bits under every policy.

1. The same training of GPT-2 124M on the cpu and on the GPU, fp32 and bf16, side by side. In fp32 losses
   and norms of gradients differ by the order of sums alone, by the bounds of docs/decisions/0077. In bf16
   an activation whose sum lies near the middle of two numbers can be rounded to either, 2^-8 apart: each
   loss is a mean over rows of numbers that differ so now and then, and stays within 2^-8 relative.
2. The same training on the GPU under every policy, with AdamW on either side, saved: the files of the
   checkpoints are compared byte by byte, and so are the losses. The most telling policies come first;
   what --seconds do not suffice for is reported as not run, and fails nothing.

Works with --device cpu too: then 1 compares one thread with all of them, which must be the same bits."""

import array
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import gpu_common

BOUNDS = {"fp32": {"loss": 2e-6, "grad_norm": 1e-4}, "bf16": {"loss": 2.0 ** -8}}
ON_HOST, MOVES, DRIVES = ["--adam", "host"], ("h2d", "d2h"), ("read", "write")
ON_DRIVE = ["--policy", "nvme", "--host-memory", "1200M"]  # less than all states of 124M
ON_DRIVE_TOO = ["--nvme-params", "1", "--nvme-grads", "1"]
MOMENTS = ["--policy", "static", "--offload-optimizer", "1"]
PLACES = (  # name, words, whether the device's budget is squeezed, lanes that must be busy
    # What all others are compared with, then the most telling first.
    ("device", ["--policy", "device"], False, ()),
    ("host", ["--policy", "host", *ON_HOST], True, (*MOVES, "host")),
    ("nvme", [*ON_DRIVE, *ON_HOST], True, (*MOVES, "host", *DRIVES)),
    ("host, AdamW on the device", ["--policy", "host", "--adam", "device"], True, MOVES),
    ("static, half of the moments", ["--policy", "static", "--offload-optimizer", "0.5", *ON_HOST],
     False, (*MOVES, "host")),
    ("host, recomputed", ["--policy", "host", "--recompute", "full", *ON_HOST], True,
     (*MOVES, "host")),
    ("nvme, AdamW on the device", [*ON_DRIVE, "--adam", "device"], True, (*MOVES, *DRIVES)),
    ("nvme, parameters too", [*ON_DRIVE, *ON_DRIVE_TOO, *ON_HOST], True, (*MOVES, "host", *DRIVES)),
    ("device, small chunks", ["--policy", "device", "--chunk-size", "4194304"], False, ()),
    ("static, all on the host", [*MOMENTS, "--offload-grads", "1", "--offload-params", "1", *ON_HOST],
     True, (*MOVES, "host")),
    ("static, moments on the host", [*MOMENTS, "--adam", "device"], True, MOVES),
)


def write_text(directory):
    """Words that repeat: a model of them learns, so that losses fall and differences would grow."""
    draw = random.Random(3)
    words = [[draw.randrange(1, 50257) for _ in range(draw.randrange(2, 6))] for _ in range(500)]
    path = os.path.join(directory, "words.bin")
    with open(path, "wb") as file:
        for _ in range(40000):
            array.array("H", draw.choice(words)).tofile(file)
    return path


def shape_options(options, precision):
    return gpu_common.copy_options(options, batch=options.rows, precision=precision)


def train(options, steps_count, tokens, directory, words):
    """The events of the steps of a run."""
    log = os.path.join(directory, "log.json")
    if os.path.exists(log):
        os.unlink(log)
    command = [options.sluice, "train", *gpu_common.train_words(options, options.model, words),
               "--data", tokens, "--steps", str(steps_count), "--lr", "3e-4", "--warmup", "2",
               "--quiet", "--log-json", log]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()[-1500:]}")
    with open(log) as file:
        events = [json.loads(line) for line in file]
    return [event for event in events if event.get("event") == "step"]


# ---- 1: two devices ----


def compare_figure(name, bound, one, other):
    """The relative differences of a figure of the steps."""
    apart = [abs(a[name] - b[name]) / abs(a[name]) for a, b in zip(one, other)]
    largest = max(apart, default=float("inf"))
    return {"cpu": [step[name] for step in one], "device": [step[name] for step in other],
            "relative": apart, "bound": bound, "largest": largest,
            "largest_step": apart.index(largest) + 1 if apart else None,
            "passed": len(apart) == len(one) and largest <= bound}


def compare_two(options, precision, tokens, directory):
    options = shape_options(options, precision)
    cpu = gpu_common.copy_options(options, device="cpu", device_memory=None, host_memory=None)
    is_cpu = options.device == "cpu"
    one = train(cpu, options.steps, tokens, directory, ["--threads", "1"] if is_cpu else [])
    other = train(options, options.steps, tokens, directory, [])
    found = {name: compare_figure(name, 0.0 if is_cpu else bound, one, other)
             for name, bound in BOUNDS[precision].items()}
    return {**found, "passed": all(figure["passed"] for figure in found.values())}


def compare_devices(options, tokens, directory, result):
    for precision in options.precisions:
        one = gpu_common.attempt(compare_two, options, precision, tokens, directory)
        result["devices"][precision] = one
        gpu_common.keep(options, result)
        for name in (name for name in BOUNDS[precision] if name in one):
            found = one[name]
            print(f"  {precision}, {name}: cpu and {options.device} at most {found['largest']:.2e} "
                  f"apart, in step {found['largest_step']} of {len(found['relative'])}, allowed "
                  f"{found['bound']:.2e}: {'ok' if found['passed'] else 'FAILED'}; by step: "
                  f"{' '.join(f'{apart:.1e}' for apart in found['relative'])}", flush=True)


# ---- 2: one device, every policy ----


def find_step(directory):
    names = [name for name in os.listdir(directory) if name.startswith("step-")]
    return os.path.join(directory, sorted(names)[-1])


def differ(one, other):
    """Names of the files of two checkpoints that are not the same bytes; manifests hold options."""
    names = sorted(name for name in os.listdir(one) if name.endswith(".safetensors"))
    if names != sorted(name for name in os.listdir(other) if name.endswith(".safetensors")):
        return ["other files"]
    different = []
    for name in names:
        with open(os.path.join(one, name), "rb") as a, open(os.path.join(other, name), "rb") as b:
            while True:
                piece = a.read(1 << 24)
                if piece != b.read(1 << 24):
                    different.append(name)
                if not piece or different[-1:] == [name]:
                    break
    return different


def find_words(options, place):
    """Options as `train` takes them, the budget included."""
    _, words, is_squeezed, _ = place
    words = [*words, *(["--disk-dir", options.disk_dir] if "nvme" in words else [])]
    return words + (gpu_common.squeeze(options, options.model, words) if is_squeezed else [])


def run_place(options, place, tokens, directory, first):
    saved = tempfile.mkdtemp(dir=directory)
    steps = train(options, options.policy_steps, tokens, directory,
                  [*find_words(options, place), "--save", saved])
    gpu_common.check_lanes(place[-1], gpu_common.read_moved(steps[-1]))
    losses = [step["loss"] for step in steps]
    if first is None:
        return {"losses": losses, "checkpoint": find_step(saved), "passed": True}
    different = differ(first["checkpoint"], find_step(saved))
    subprocess.run(["rm", "-rf", saved], check=False)
    return {"losses": losses, "different": different,
            "passed": not different and losses == first["losses"]}


def find_excuse(options, words, deadline):
    """Why a run is not even begun; None if it is."""
    if "nvme" in words and not options.disk_dir:
        return "there is no --disk-dir"
    return "no time was left" if time.monotonic() > deadline else None


def compare_policies(options, tokens, directory, result, deadline):
    found, first = result["policies"], {}
    for precision in options.precisions:
        found[precision] = {place[0]: {"not_run": "the script was ended before"} for place in PLACES}
    for place in PLACES:
        for precision in options.precisions:
            excuse = find_excuse(options, place[1], deadline)
            one = {"not_run": excuse} if excuse else gpu_common.attempt(
                run_place, shape_options(options, precision), place, tokens, directory,
                first.get(precision))
            if "checkpoint" in one:
                first[precision] = one
            found[precision][place[0]] = one
            gpu_common.keep(options, result)
            said = "the same bytes" if one.get("passed") else "FAILED"
            print(f"  {precision}, {place[0]}: "
                  f"{'not run: ' + excuse if excuse else said} "
                  f"{one.get('different') or ''}", flush=True)


def passed(result):
    """What was not run fails nothing."""
    places = [one for part in result["policies"].values() for one in part.values()]
    ran = [one for one in places if "not_run" not in one]
    return all(one.get("passed") for one in [*result["devices"].values(), *ran])


def run(options, directory, result):
    deadline = time.monotonic() + options.seconds
    tokens = write_text(directory)
    compare_devices(options, tokens, directory, result)
    compare_policies(options, tokens, directory, result, deadline)
    result["passed"] = passed(result)
    gpu_common.keep(options, result)


def parse(words=None):
    parser = gpu_common.open_parser(__doc__)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--rows", type=int, default=4, help="of a micro-batch (4)")
    parser.add_argument("--seq", type=int, default=64, help="tokens of a row (64)")
    parser.add_argument("--steps", type=int, default=20, help="of the cpu and the GPU (20)")
    parser.add_argument("--policy-steps", type=int, default=3, help="of each policy (3)")
    parser.add_argument("--precisions", nargs="+", choices=sorted(BOUNDS),
                        default=["fp32", "bf16"])
    parser.add_argument("--disk-dir", help="a directory on a drive (else nvme is left out)")
    parser.add_argument("--seconds", type=float, default=600, help="no run starts later (600)")
    parser.add_argument("--work-dir", help="where checkpoints go, 1.5 GB each (temporary)")
    return parser.parse_args(words)


def main():
    options = parse()
    result = {"options": vars(options), "passed": False, "devices": {}, "policies": {}}
    with tempfile.TemporaryDirectory(prefix="sluice-agree-", dir=options.work_dir) as directory:
        run(options, directory, result)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
