#!/usr/bin/env python3
"""Makes the files of this folder from a run of run.py, finished or not: the configuration, the log
with fewer steps, the page, what it cost (cost.json), and the tables of README.md.

usage: collect.py RUN_FOLDER [OUT_FOLDER]    OUT_FOLDER: this folder

RUN_FOLDER holds tiny.json, tiny.jsonl, report.html, pieces.jsonl, and step0.txt: what the model says
before the first step. The folder's own path is taken out of all files."""

import json
import os
import re
import sys
import time

LOG_BYTES_MOST = 150_000
SAMPLES_SHOWN = 5
SAMPLE_CHARACTERS = 300
TIERS = ("device", "host", "disk")


def read_lines(path):
    """The objects of a file of JSON lines; a last line that is being written is left out."""
    objects = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    objects.append(json.loads(line))
                except ValueError:
                    pass
    return objects


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- the log


def steps_of(events):
    """The record of each step; of a step that ran twice the later one counts."""
    return list({event["step"]: event for event in events if event["event"] == "step"}.values())


def thin(events):
    """All events but steps, and so many steps, evenly spread, that the log has LOG_BYTES_MOST."""
    steps = steps_of(events)
    others = sum(len(json.dumps(event)) for event in events if event["event"] != "step")
    room = max(LOG_BYTES_MOST - others, 20_000)
    whole = sum(len(json.dumps(step)) for step in steps)
    stride = -(-whole // room) if whole else 1
    kept = {step["step"] for index, step in enumerate(steps) if index % stride == 0}
    if steps:
        kept |= {steps[-1]["step"]}
    return [event for event in events if event["event"] != "step" or event["step"] in kept]


# ---- what it cost


def cost_of_running(folder):
    """The piece of a run that goes on, from /proc; None: there is none."""
    try:
        pid = int(read_text(os.path.join(folder, "pid")))
        fields = read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
        uptime = float(read_text("/proc/uptime").split()[0])
        status = read_text(f"/proc/{pid}/status")
    except (OSError, ValueError, IndexError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = uptime - int(fields[19]) / ticks
    return {
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() - seconds)),
        "seconds": round(seconds, 1),
        "processor_seconds": (int(fields[11]) + int(fields[12])) / ticks,
        "peak_resident_bytes": 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1]),
        "exit_code": None,
    }


def peaks(events):
    """Planned and measured peak of each tier: of the last start's end, else of its plan and steps."""
    start = [event for event in events if event["event"] == "start"][-1]
    steps, ends = steps_of(events), [event for event in events if event["event"] == "end"]
    result = {}
    for tier in TIERS:
        planned = start["plan"]["tiers"][tier]["peak_bytes"]
        measured = max(step[f"{tier}_bytes"] for step in steps)
        if ends:
            measured = max(measured, ends[-1]["tiers"][tier]["measured_peak_bytes"])
        result[tier] = {"planned_bytes": planned, "measured_bytes": measured}
    return result


def count_cost(folder, events):
    steps = steps_of(events)
    pieces = read_lines(os.path.join(folder, "pieces.jsonl"))
    running = cost_of_running(folder)
    pieces += [running] if running else []
    evals = [event for event in events if event["event"] == "eval"]
    starts = [event for event in events if event["event"] == "start"]
    ends = [event for event in events if event["event"] == "end"]
    total = lambda key: sum(step[key] for step in steps)
    return {
        "is_finished": bool(ends) and not running and ends[-1]["reason"] in ("done", "patience"),
        "steps": steps[-1]["step"],
        "tokens": total("tokens"),
        "parameters": starts[-1]["plan"]["trained_parameters"],
        "first_loss": steps[0]["loss"],
        "last_loss": steps[-1]["loss"],
        "evaluations": [{key: e[key] for key in ("step", "loss", "perplexity")} for e in evals],
        "starts": pieces,
        "seconds": round(sum(piece["seconds"] for piece in pieces)),
        "processor_seconds": round(sum(piece["processor_seconds"] for piece in pieces)),
        "step_ms_median": sorted(step["step_ms"] for step in steps)[len(steps) // 2],
        "tiers": peaks(events),
        "disk_read_bytes": total("disk_read_bytes"),
        "disk_written_bytes": total("disk_written_bytes"),
        "checkpoint_seconds": round(total("checkpoint_ms") / 1e3, 1),
    }


# ---- the page


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"


def format_cost(cost):
    rows = [
        ("steps, tokens", f"{cost['steps']:,} steps, {cost['tokens']:,} tokens"),
        ("training loss", f"{cost['first_loss']:.3f} at first, {cost['last_loss']:.3f} at last"),
        ("time", f"{clock(cost['seconds'])} by the clock, {clock(cost['processor_seconds'])} of one "
                 f"processor; half of the steps took {cost['step_ms_median'] / 1e3:.1f} s or less"),
    ]
    for tier, of in cost["tiers"].items():
        planned, measured = of["planned_bytes"], of["measured_bytes"]
        rows.append((f"{tier}, at most", f"planned {planned:,} bytes, measured {measured:,} bytes"))
    rows.append(("the whole process", f"{max(p['peak_resident_bytes'] for p in cost['starts']) / 2**20:.0f} "
                 "MiB resident, with code, the text's index and files that are mapped"))
    rows.append(("disk tier", f"{cost['disk_read_bytes'] / 2**30:.1f} GiB read, "
                 f"{cost['disk_written_bytes'] / 2**30:.1f} GiB written"))
    lines = ["| | |", "|---|---|"] + [f"| {name} | {value} |" for name, value in rows]
    if not cost["is_finished"]:
        lines += ["", "*The run was stopped here, before its last step; `run.py` goes on with it.*"]
    return "\n".join(lines)


def format_starts(cost):
    lines = ["| start (UTC) | took | processor | ended |", "|---|---|---|---|"]
    for piece in cost["starts"]:
        code = piece["exit_code"]
        ended = "goes on" if code is None else f"exit code {code}"
        lines.append(f"| {piece['began']} | {clock(piece['seconds'])} | "
                     f"{clock(piece['processor_seconds'])} | {ended} |")
    return "\n".join(lines)


def format_evaluations(cost):
    lines = ["| step | loss | perplexity of a byte |", "|---|---|---|"]
    lines += [f"| {e['step']} | {e['loss']:.4f} | {e['perplexity']:.2f} |" for e in cost["evaluations"]]
    return "\n".join(lines)


def spread(items, count):
    """`count` of the items, with the first and the last one."""
    if len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def show(text):
    """A text of a model for a fenced block: no other control characters, no fence."""
    text = "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)
    return text[:SAMPLE_CHARACTERS].replace("```", "'''").rstrip()


def format_samples(folder, events):
    samples = list({e["step"]: e for e in events if e["event"] == "sample"}.values())
    shown = [(0, read_text(os.path.join(folder, "step0.txt")))]
    shown += [(e["step"], e["prompt"] + e["text"]) for e in spread(samples, SAMPLES_SHOWN)]
    return "\n\n".join(f"Step {step}:\n\n```text\n{show(text)}\n```" for step, text in shown)


def replace_part(page, name, text):
    """The part between <!-- name --> and <!-- end -->."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    assert pattern.search(page), name
    return pattern.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)


def main():
    folder = os.path.realpath(sys.argv[1])
    here = os.path.dirname(os.path.realpath(__file__))
    out = sys.argv[2] if len(sys.argv) > 2 else here
    events = read_lines(os.path.join(folder, "tiny.jsonl"))
    cost = count_cost(folder, events)

    def write(name, text):
        write_text(os.path.join(out, name), text.replace(folder + "/", "").replace(folder, "."))

    write("tiny.json", read_text(os.path.join(folder, "tiny.json")))
    write("run.jsonl", "".join(json.dumps(event) + "\n" for event in thin(events)))
    write("report.html", read_text(os.path.join(folder, "report.html")))
    write("cost.json", json.dumps(cost, indent=1) + "\n")
    page = read_text(os.path.join(here, "README.md"))
    for name, text in (
        ("cost", format_cost(cost)),
        ("starts", format_starts(cost)),
        ("evaluations", format_evaluations(cost)),
        ("samples", format_samples(folder, events)),
    ):
        page = replace_part(page, name, text)
    write("README.md", page)


if __name__ == "__main__":
    main()
