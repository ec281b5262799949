#!/usr/bin/env python3
"""What fits where: plans models for described GPUs that are not here, and writes the page about it.

    scripts/what_fits.py SLUICE --output docs/what-fits.md    plans everything, half an hour on two cores
    scripts/what_fits.py SLUICE --again docs/what-fits.md     makes the kept choices again, some minutes
    scripts/what_fits.py SLUICE --check docs/what-fits.md     plans a part again; SL_TEST_FULL=1: everything
    scripts/what_fits.py --page docs/what-fits.md             the page alone, of the plans that are kept

SLUICE is a build with CUDA: its kernels say what they take of a GPU. Beside the page lies what was
planned, with exact bytes, as the same name with .tsv: one plan a line, with the options that make it
again. The page is made of that file alone, and the same inputs give the same bytes of both."""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GIB, MIB = 1 << 30, 1 << 20

# name: layers, width, heads. The first four are GPT-2's; the others have the layers and widths of
# GPT-3's table 2.1 and of OPT-30B; heads of 128 features, which the fast attention takes.
MODELS = {
    "124M": (12, 768, 12),
    "355M": (24, 1024, 16),
    "774M": (36, 1280, 20),
    "1.5B": (48, 1600, 25),
    "2.7B": (32, 2560, 20),
    "6.7B": (32, 4096, 32),
    "13B": (40, 5120, 40),
    "30B": (48, 7168, 56),
}
MACHINES = ("rtx-4060-8gb", "rtx-4070-12gb", "rtx-4080-16gb", "rtx-4090-24gb", "l40s-48gb", "a100-80gb")
HOSTS = (16, 32, 64, 128, 256)  # GB of host memory
MICRO_BATCH, ACCUMULATE, SEQ, VOCAB = 4, 16, 1024, 50257
TOKENS = MICRO_BATCH * ACCUMULATE * SEQ
USABLE = 0.8  # of the host's memory: sluice's own limit
SLOWER = 1.02  # a kept choice whose step became longer than this is searched again
STATE_BYTES = 16  # a parameter at least: bf16 weight and gradient, fp32 master and two moments

COLUMNS = ("gpu", "model", "drive", "host_gb", "device_bytes", "host_bytes", "disk_bytes", "written_bytes",
           "step_ms", "options")
SHARES = [f"{way}-{kind}" for way in ("offload", "nvme")
          for kind in ("params", "grads", "optimizer", "activations")] + ["offload-updates"]
DOES_NOT_FIT = "-"


def fail(text):
    raise SystemExit(f"what_fits.py: {text}")


def read_machine(name):
    with open(os.path.join(ROOT, "examples", "machines", name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def count_parameters(model):
    layers, width, _ = MODELS[model]
    return layers * (12 * width * width + 13 * width) + (VOCAB + SEQ) * width + 2 * width


# ---- planning ----


def budgets(name, host_gb, drive):
    """Bytes of each tier that a plan may take."""
    machine = read_machine(name)
    device = machine["gpu"]["memory_bytes"] - machine["gpu"]["reserved_bytes"]
    disk = int(0.9 * machine["drives"]["bytes"]) if drive else 0
    return device, int(USABLE * host_gb * GIB), disk


def command_of(sluice, name, model, host_gb, drive, options):
    layers, width, heads = MODELS[model]
    device, host, disk = budgets(name, host_gb, drive)
    threads = read_machine(name)["node"]["cores"]
    words = [sluice, "plan", "--layers", layers, "--width", width, "--heads", heads, "--context", SEQ,
             "--vocab", VOCAB, "--seq", SEQ, "--micro-batch", MICRO_BATCH, "--accumulate", ACCUMULATE,
             "--precision", "bf16", "--device", "cuda", "--threads", threads,
             "--machine", os.path.join(ROOT, "examples", "machines", name + ".json"),
             "--device-memory", f"{device // MIB}M", "--host-memory", f"{host // MIB}M"]
    if drive:
        words += ["--disk-dir", ".", "--disk-space", f"{disk // MIB}M"]
    return [str(word) for word in words + options] + ["--json"]


def run_plan(sluice, name, model, host_gb, drive, options=()):
    """The plan as an object; None: it does not fit."""
    words = command_of(sluice, name, model, host_gb, drive, list(options))
    with tempfile.TemporaryDirectory() as directory:  # without a configuration and a profile
        result = subprocess.run(words, capture_output=True, text=True, cwd=directory,
                                env={**os.environ, "HOME": directory, "XDG_CONFIG_HOME": directory})
    if result.returncode not in (0, 69):
        fail(f"{' '.join(words)}: {result.stderr.strip()}")
    plan = json.loads(result.stdout)
    return plan if plan["fits"] else None


def options_of(choice):
    """The words that make this plan again, without a search."""
    words = []
    for key in ("policy", "recompute", "accumulation", "adam"):
        words += [f"--{key}", choice[key]]
    for share in SHARES:
        value = choice[share.replace("-", "_")]
        if value:
            words += [f"--{share}", f"{value:g}"]
    if choice["prefetch"] != "auto":
        words += ["--prefetch", str(choice["prefetch"])]
    return words


def line_of(name, model, drive, host_gb, plan, options):
    tiers = plan["tiers"]
    return {"gpu": name, "model": model, "drive": "drive" if drive else "none", "host_gb": str(host_gb),
            "device_bytes": str(tiers["device"]["peak_bytes"]), "host_bytes": str(tiers["host"]["peak_bytes"]),
            "disk_bytes": str(tiers["disk"]["peak_bytes"]),
            "written_bytes": str(plan["moved_bytes_per_step"]["write"]),
            "step_ms": f"{plan['predicted_step_ms']:.6g}", "options": " ".join(options)}


def missing_line(name, model, drive):
    line = dict.fromkeys(COLUMNS, DOES_NOT_FIT)
    return {**line, "gpu": name, "model": model, "drive": "drive" if drive else "none"}


def can_hold(name, model, host_gb, drive):
    return sum(budgets(name, host_gb, drive)) >= STATE_BYTES * count_parameters(model)


def search_cell(sluice, name, model, drive):
    """The fastest plan with the least host memory of HOSTS that has one."""
    for host_gb in HOSTS:
        plan = can_hold(name, model, host_gb, drive) and run_plan(sluice, name, model, host_gb, drive)
        if plan:
            options = options_of(plan["choice"]) + ["--chunk-size", str(plan["chunk_elements"])]
            return line_of(name, model, drive, host_gb, plan, options)
    return missing_line(name, model, drive)


def search_row(sluice, name, model):
    """Without a drive, and with one where that needs less of the host."""
    lines = [search_cell(sluice, name, model, False)]
    if lines[0]["host_gb"] != str(HOSTS[0]):
        lines.append(search_cell(sluice, name, model, True))
    print(f"{name} {model}: " + "; ".join(f"{it['drive']} {it['host_gb']} GB {it['step_ms']} ms"
                                          for it in lines), file=sys.stderr, flush=True)
    return lines


def search_all(sluice, jobs):
    rows = [(name, model) for name in MACHINES for model in MODELS]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda row: search_row(sluice, *row), rows)
        return [line for lines in found for line in lines]


def choose_again(sluice, line):
    """The kept choice as it is planned now; a search, where it does not fit any more or became slower."""
    drive, words = line["drive"] == "drive", line["options"].split()
    if line["host_gb"] == DOES_NOT_FIT:
        return line
    plan = run_plan(sluice, line["gpu"], line["model"], int(line["host_gb"]), drive, words)
    if not plan or plan["predicted_step_ms"] > SLOWER * float(line["step_ms"]):
        print(f"{line['gpu']} {line['model']} {line['drive']}: searched again", file=sys.stderr, flush=True)
        return search_cell(sluice, line["gpu"], line["model"], drive)
    return line_of(line["gpu"], line["model"], drive, line["host_gb"], plan, words)


def choose_all_again(sluice, page, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda line: choose_again(sluice, line), read_plans(plans_beside(page))))


def check_sense(lines):
    """Of each plan: budgets hold, states are all there, no product is faster than assumed, and a drive does
    not need more of the host."""
    least = {}
    for it in lines:
        if it["host_gb"] == DOES_NOT_FIT:
            continue
        has_drive = it["drive"] == "drive"
        gpu, parameters = read_machine(it["gpu"])["gpu"], count_parameters(it["model"])
        peaks = [int(it[tier + "_bytes"]) for tier in ("device", "host", "disk")]
        flops = 6 * parameters * TOKENS / (float(it["step_ms"]) / 1e3)
        host_gb = least.setdefault((it["gpu"], it["model"]), int(it["host_gb"]))
        if any(p > b for p, b in zip(peaks, budgets(it["gpu"], int(it["host_gb"]), has_drive))):
            fail(f"a budget does not hold: {it}")
        if sum(peaks) < STATE_BYTES * parameters:
            fail(f"less than {STATE_BYTES} bytes a parameter: {it}")
        if flops > gpu["flop_rate"]["bf16"] * gpu["gemm_efficiency"]:
            fail(f"faster than its products: {it}")
        if int(it["host_gb"]) > host_gb:
            fail(f"more of the host than without a drive: {it}")


# ---- the kept plans ----


def format_plans(lines):
    return "".join("\t".join(row) + "\n" for row in [COLUMNS] + [[it[c] for c in COLUMNS] for it in lines])


def read_plans(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    if not rows or tuple(rows[0]) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        fail(f"{path} is no table of plans")
    return [dict(zip(COLUMNS, row)) for row in rows[1:]]


def plans_beside(page):
    return os.path.splitext(page)[0] + ".tsv"


# ---- the page ----


def three_digits(value):
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e" in text or float(text) >= 100 else text


def gib(text):
    value = int(text) / GIB
    return "0" if value < 0.05 else f"{value:.0f}" if value >= 99.5 else f"{value:.1f}"


def describe_policy(options):
    words = options.split()
    chosen = dict(zip(words[::2], words[1::2]))
    return chosen["--policy"] + {"none": "", "selective": ", some", "full": ", full"}[chosen["--recompute"]]


def speed(line):
    return three_digits(TOKENS / (float(line["step_ms"]) / 1e3))


def format_cell(line, tiers):
    if line is None:
        return ["not needed"] + [""] * 3
    if line["host_gb"] == DOES_NOT_FIT:
        return ["no"] + [""] * 3
    return [line["host_gb"] + " GB", describe_policy(line["options"]),
            " / ".join(gib(line[tier + "_bytes"]) for tier in tiers), speed(line)]


def format_table(name, lines):
    machine = read_machine(name)
    gpu, link = machine["gpu"], machine["host_link"]
    head = (f"**{machine['name']}**: {(gpu['memory_bytes'] - gpu['reserved_bytes']) / GIB:.1f} GiB for plans; "
            f"{gpu['flop_rate']['bf16'] / 1e12:.0f} TFLOP/s, {gpu['byte_rate'] / 1e9:.0f} GB/s; link "
            f"{link['byte_rate'] / 1e9:.2f} GB/s; host {machine['node']['byte_rate'] / 1e9:.1f} GB/s; drive "
            f"{machine['drives']['read_rate'] / 1e9:.1f} read, {machine['drives']['write_rate'] / 1e9:.1f} written")
    text = [head, "", "| model | no drive: host | policy | device / host GiB | tokens/s "
            "| with a drive: host | policy | device / host / disk GiB | tokens/s |",
            "|---|---|---|---|--:|---|---|---|--:|"]
    for model in MODELS:
        found = {it["drive"]: it for it in lines if it["gpu"] == name and it["model"] == model}
        cells = format_cell(found["none"], ("device", "host"))
        cells += format_cell(found.get("drive"), ("device", "host", "disk"))
        text.append("| " + " | ".join([model] + cells) + " |")
    return text + [""]


INTRODUCTION = f"""# What fits on a GPU

<!-- Written by scripts/what_fits.py from what-fits.tsv. Do not edit: the end of this page says how it is renewed. -->

**No GPU has run this engine yet ([gpu.md](gpu.md)).** The bytes are the planner's: a run takes no more of a tier. The speeds are predictions from
data sheets, not measurements.

Each row is a plan of `--policy auto`: training in bf16 with fp32 master weights and AdamW, rows of {SEQ:,} tokens, {ACCUMULATE} micro-batches
of {MICRO_BATCH} rows. That is {TOKENS:,} tokens a step; a step takes {TOKENS:,} seconds divided by tokens/s.

- *Host* is the least memory, of {", ".join(map(str, HOSTS[:-1]))} and {HOSTS[-1]} GB, with which a plan was found. A fifth of it is left to the
  system. "no": not with {HOSTS[-1]} GB either. "not needed": {HOSTS[0]} GB are enough without a drive.
- *Policy* says where the states live ([choosing.md](choosing.md)). "some" and "full": how much of the activations is computed again.
- *GiB* are the peaks of device, host and disk. States take at least {STATE_BYTES} bytes a parameter: 2 for the weight, 2 or 4 for the gradient, 12 for
  the master weight and both moments. The rest are activations.
- *tokens/s* is the speed with the least host memory. With more memory less lies on the drive, and the run is faster.

GPUs, hosts and drives are described, not measured: [examples/machines/](../examples/machines) names the source of each figure. Assumed besides:

- 768 MiB of a GPU's memory are kept for its context and for libraries, and no display is attached.
- Products reach 54 % of the tensor peak, and the time for their bytes is added. One published run of 1.7 B on an A100 fixed this share
  ([cluster.md](cluster.md)). Attention reaches what our kernels are compiled to.
- The GPU's memory and links reach 80 % of their rates, the host's memory 75 %. Copies and the host's AdamW do not slow each other.
- A desktop's drive writes at the rate that it keeps up for hours. Such runs wear drives: `sluice plan` prints the bytes a day.
"""

ENDING = """## Your own case

In a build with CUDA, without a GPU, and with a description of your machine, copied from the nearest one:

<!-- not run: needs a build with CUDA -->

    sluice plan --model gpt2-xl --micro-batch 4 --accumulate 16 --device cuda --machine examples/machines/rtx-4090-24gb.json \\
        --device-memory 23G --host-memory 51G --disk-dir . --disk-space 1800G

`--device-memory` is what `nvidia-smi` shows as free, less 768 MiB. Without `--disk-dir` there is no drive. `--explain` says why the plan is so, and
`--compare host,nvme` what other policies take. On the machine itself `sluice bench` measures what is assumed here ([machine.md](machine.md)).

[what-fits.tsv](what-fits.tsv) has each plan with exact bytes, what a step writes to the drive, and the options that make the plan again.
`scripts/what_fits.py SLUICE --output docs/what-fits.md` renews both files. With `--again` for `--output` it makes the kept choices
again, and searches where one became 2 % slower. The test `what_fits` makes a part of the plans again.
"""


def format_page(lines):
    text = INTRODUCTION.splitlines() + [""]
    for name in MACHINES:
        text += format_table(name, lines)
    return "\n".join(text + ENDING.splitlines()) + "\n"


# ---- the test ----


def replay(sluice, line):
    """What is wrong with a kept plan; "": nothing."""
    drive = line["drive"] == "drive"
    if line["host_gb"] == DOES_NOT_FIT:
        fits = can_hold(line["gpu"], line["model"], HOSTS[-1], drive)
        return "fits now" if fits and run_plan(sluice, line["gpu"], line["model"], HOSTS[-1], drive) else ""
    words = line["options"].split()
    plan = run_plan(sluice, line["gpu"], line["model"], int(line["host_gb"]), drive, words)
    if not plan:
        return "does not fit any more"
    again = line_of(line["gpu"], line["model"], drive, line["host_gb"], plan, words)
    wrong = [f"{c} {again[c]}, not {line[c]}" for c in COLUMNS if again[c] != line[c]]
    return "; ".join(wrong)


def sample_of(lines, is_full):
    """Each GPU with each fifth model, shifted from GPU to GPU, so that each model comes up too."""
    order = list(MODELS)
    return [it for it in lines if is_full or it["host_gb"] != DOES_NOT_FIT and
            (MACHINES.index(it["gpu"]) + order.index(it["model"])) % 5 == 0]


def check(sluice, page, jobs):
    renew = f"scripts/what_fits.py {sluice} --output {os.path.relpath(page, ROOT)}"
    lines = read_plans(plans_beside(page))
    check_sense(lines)
    with open(page, encoding="utf-8") as file:
        written = file.read()
    expected = format_page(lines)
    if written != expected:
        pairs = zip(written.splitlines() + [""], expected.splitlines() + [""])
        here, there = next(((a, b) for a, b in pairs if a != b), ("its length", "that of the plans"))
        fail(f"{page} is not what {plans_beside(page)} says:\n  {here}\n  {there}\nrenew both: {renew}")
    sample = sample_of(lines, os.environ.get("SL_TEST_FULL") == "1")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda line: replay(sluice, line), sample))
    wrong = [f"{it['model']} on {it['gpu']}, {it['drive']}: {result}"
             for it, result in zip(sample, results) if result]
    if wrong:
        fail("plans have changed:\n  " + "\n  ".join(wrong) + f"\nrenew the page: {renew}")
    print(f"{len(sample)} of {len(lines)} plans were made again")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", nargs="?")
    what = parser.add_mutually_exclusive_group(required=True)
    for option in ("--output", "--again", "--check", "--page"):
        what.add_argument(option, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if asked.page:
        return write(asked.page, format_page(read_plans(plans_beside(asked.page))))
    if not asked.sluice:
        parser.error("SLUICE is missing")
    sluice = os.path.abspath(asked.sluice)
    if asked.check:
        return check(sluice, os.path.abspath(asked.check), asked.jobs)
    page = asked.output or asked.again
    lines = choose_all_again(sluice, page, asked.jobs) if asked.again else search_all(sluice, asked.jobs)
    check_sense(lines)
    write(plans_beside(page), format_plans(lines))
    return write(page, format_page(lines))


if __name__ == "__main__":
    main()
