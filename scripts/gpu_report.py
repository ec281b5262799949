#!/usr/bin/env python3
"""Writes report.json and report.md of scripts/gpu_check.sh from what its stages left behind.

usage: gpu_report.py WORK OUT

WORK holds facts.tsv (name, value), stages.tsv (stage, result, seconds, note), and whatever of tests.xml,
gpu.xml (JUnit, from ctest), sanitizer.tsv (tool, program, result), proof.json, bench.json, memory.json,
agreement.json, pair.json, offload.json, largest.json its stages came to. What is missing or half
written is left out and said."""

import json
import os
import sys
import xml.etree.ElementTree

RESULTS = ("proof", "bench", "memory", "agreement", "pair", "offload", "largest")
SHOWN_ROWS = 12  # of a group of the bench


def read_table(path, names):
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    return [dict(zip(names, row + [""] * len(names))) for row in rows]


def read_junit(path):
    """Counts, and the names of what failed or was skipped with the last line that it said."""
    if not os.path.exists(path):
        return None
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except xml.etree.ElementTree.ParseError as error:
        return {"unreadable": str(error)}
    found = {"passed": 0, "failed": [], "skipped": [], "seconds": {}}
    for case in root.iter("testcase"):
        said = (case.findtext("system-out") or "").strip().splitlines()
        name, last = case.get("name"), (said[-1] if said else "")[:200]
        found["seconds"][name] = float(case.get("time") or 0)
        if case.find("skipped") is not None or case.get("status") == "notrun":
            found["skipped"].append({"name": name, "said": last})
        elif case.find("failure") is not None or case.get("status") == "fail":
            found["failed"].append({"name": name, "said": last})
        else:
            found["passed"] += 1
    return found


def read_json(path):
    if not os.path.exists(path):
        return None
    try:
        with open(path) as file:
            return json.load(file)
    except ValueError as error:
        return {"unreadable": str(error)}


def read_work(work):
    facts = {row["name"]: row["value"].strip()
             for row in read_table(os.path.join(work, "facts.tsv"), ("name", "value"))}
    report = {"facts": facts,
              "stages": read_table(os.path.join(work, "stages.tsv"),
                                   ("stage", "result", "seconds", "note")),
              "tests": read_junit(os.path.join(work, "tests.xml")),
              "gpu_tests": read_junit(os.path.join(work, "gpu.xml")),
              "sanitizer": read_table(os.path.join(work, "sanitizer.tsv"),
                                      ("tool", "program", "result"))}
    for name in RESULTS:
        report[name] = read_json(os.path.join(work, name + ".json"))
    return report


# ---- the page ----


def table(head, rows):
    if not rows:
        return []
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head),
            *("| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |"
              for row in rows), ""]


def percent(share):
    return "" if share is None else f"{100 * share:.1f} %"


def ratio(value):
    return "" if value is None else f"{value:.3f}"


def write_tests(title, found):
    if not found:
        return []
    if "unreadable" in found:
        return [f"## {title}", "", f"not readable: {found['unreadable']}", ""]
    lines = [f"## {title}", "", f"{found['passed']} passed, {len(found['failed'])} failed, "
             f"{len(found['skipped'])} skipped.", ""]
    rows = [("failed", one["name"], one["said"]) for one in found["failed"]]
    rows += [("skipped", one["name"], one["said"]) for one in found["skipped"]]
    return lines + table(("", "test", "its last line"), rows)


def write_sanitizer(rows):
    if not rows:
        return []
    bad = [row for row in rows if row["result"] not in ("pass", "skipped")]
    tools = sorted({row["tool"] for row in rows})
    lines = ["## compute-sanitizer", "",
             f"{len(rows) - len(bad)} of {len(rows)} runs clean, by {', '.join(tools)}.", ""]
    return lines + table(("tool", "program", "result"),
                         [(row["tool"], row["program"], row["result"]) for row in bad])


def write_proof(found):
    """Of what doctor found, the parts of the self-test: "cuda:0 kernels"."""
    if not found:
        return []
    if "unreadable" in found:
        return ["## The self-test", "", f"not readable: {found['unreadable']}", ""]
    words = {"ok": "passed", "degraded": "not tested", "missing": "failed"}
    rows = [(name, words[one["state"]], one["value"]) for name, one in found.items()
            if name.startswith("cuda:") and " " in name]
    return ["## The self-test", "", *table(("part", "", "what was done, or found"), rows)]


def bench_row(row):
    unit, scale = ("TFLOP/s", 1e12) if row["unit"] == "FLOP/s" else ("GB/s", 1e9)
    share = row["median"] / row["roof"] if row.get("roof") else None
    return (row["type"], row["name"], f"{row['median'] / scale:.1f}",
            f"{row['p10'] / scale:.1f} .. {row['p90'] / scale:.1f}", unit, percent(share))


def write_bench(found):
    if not found or "rows" not in found:
        return []
    lines = ["## Rates", "", f"{found.get('gpu') or found['cpu']}; kernels: {found['kernels']}. The "
             "first rows of each group; all are in report.json.", ""]
    for group in dict.fromkeys(row["group"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["group"] == group]
        lines += [f"### {group}", "", *table(
            ("type", "what", "median", "p10 .. p90", "", "of its roof"),
            [bench_row(row) for row in rows[:SHOWN_ROWS]])]
    return lines


def write_memory(found):
    if not found or "runs" not in found:
        return []
    rows = [(one["model"], one["place"], f"{one['planned_bytes'] / 2 ** 20:.1f}",
             f"{one['overhead_bytes'] / 2 ** 20:.1f}", f"{one['apart_bytes'] / 2 ** 20:+.1f}",
             one["by"], "ok" if one["passed"] else "FAILED") if "failed" not in one else
            (one["model"], one["place"], "", "", "", one["failed"][:100], "FAILED")
            for one in found["runs"]]
    return ["## The plan and the driver, in MiB", "", *table(
        ("model", "place", "planned", "context", "apart", "by", ""), rows)]


def agreement_row(precision, name, one):
    """A policy beside everything on the device."""
    if "not_run" in one:
        return (precision, name, one["not_run"], "not run")
    said = one.get("different") or one.get("failed", "")
    return (precision, name, str(said)[:100], "ok" if one.get("passed") else "FAILED")


def write_agreement(found):
    if not found:
        return []
    rows, by_step = [], []
    for precision, one in (found.get("devices") or {}).items():
        if "failed" in one:
            rows.append((precision, "the cpu's losses", one["failed"][:100], "FAILED"))
        for name, text in (("loss", "losses"), ("grad_norm", "norms of gradients")):
            if name not in one:
                continue
            apart, bound = one[name]["relative"], one[name]["bound"]
            worst = max(apart)
            rows.append((precision, f"the cpu's {text}", f"{worst:.2e} of {bound:.2e}, in step "
                         f"{apart.index(worst) + 1} of {len(apart)}",
                         "ok" if one[name]["passed"] else "FAILED"))
            by_step.append((precision, text, " ".join(f"{each:.1e}" for each in apart)))
    for precision, places in (found.get("policies") or {}).items():
        rows += [agreement_row(precision, name, one) for name, one in places.items()]
    return ["## The same numbers", "", *table(("type", "against", "apart", ""), rows),
            *table(("type", "", "apart from the cpu's, relative, by step"), by_step)]


def say_tokens(found):
    """The tokens of a step of each model, whose rows are as many as fitted."""
    options = found["options"]
    return "; ".join(
        f"{model}: {rows * options['seq']} tokens a step ({rows} rows of {options['seq']})"
        for model, one in found["models"].items()
        for rows in [one.get("rows", options["batch"])]) + f"; {options['precision']}"


def write_failed(rounds):
    """What of them did not run or failed, and why, once each."""
    rows = [(model, side, run["failed"].strip().splitlines()[-1][:160])
            for model, runs in rounds for one in runs for side, run in one.items()
            if "failed" in run]
    return table(("model", "without", "because"), dict.fromkeys(rows))


def write_pair(found):
    if not found or "models" not in found:
        return []
    lines = ["## Training, beside PyTorch", "", f"{say_tokens(found)}, everything on the "
             "device. Rows named after a switch of sluice's are sluice with it.", ""]
    rows = [(model, side, f"{one['tokens_per_s']:.0f}", percent(one.get("spread")),
             f"{one['flops_per_s'] / 1e12:.1f}", percent(one.get("share_of_roof")),
             percent(one.get("mfu")), ratio(one.get("ratio")))
            for model, runs in found["models"].items() for side, one in runs["summary"].items()]
    lines += table(("model", "", "tokens/s", "steps apart", "TFLOP/s", "of the roof", "MFU",
                    "sluice to it"), rows)
    return lines + write_failed([(model, runs.get("rounds", []))
                                 for model, runs in found["models"].items()])


def lane_text(lane):
    at = f" at {100 * lane['of_roof']:.0f}" if lane.get("of_roof") is not None else ""
    return f"{100 * lane['busy']:.0f}{at}"


def write_lanes(models):
    names = ("compute", "h2d", "d2h", "host", "read", "write")
    rows = [(model, place, *(lane_text(one["lanes"][name]) if name in one["lanes"] else ""
                             for name in names))
            for model, runs in models.items() for place, one in runs["summary"].items()
            if one.get("lanes")]
    if not rows:
        return []
    return ["Lanes: the part of a step that each was busy, and its rate while busy beside its roof "
            "(host: AdamW beside host memory), both in percent.", "",
            *table(("model", "where", *names), rows)]


def write_offload(found):
    if not found or "models" not in found:
        return []
    lines = ["## Training with states away from the device", "",
             f"{say_tokens(found)}, recompute {found['options']['recompute']}. The limit "
             "is the least time by the roofs; the resident limit that with products as fast as the "
             "resident run's.", ""]
    missing = [f"- missing: {line}" for line in found.get("missing", [])]
    lines += [*missing, ""] if missing else []
    rows = [(model, place, f"{one['tokens_per_s']:.0f}", f"{one['step_seconds'] * 1e3:.0f}",
             percent(one.get("mfu")), ratio(one["to_resident"]), ratio(one["to_limit"]),
             ratio(one.get("to_own_limit")),
             "the same" if runs.get("losses_are_the_same") else "DIFFER")
            for model, runs in found["models"].items() for place, one in runs["summary"].items()]
    lines += table(("model", "where", "tokens/s", "step, ms", "MFU", "to resident", "to the limit",
                    "to the resident limit", "losses"), rows) + write_lanes(found["models"])
    return lines + write_failed([(model, [*runs.get("rounds", []), runs.get("traced", {})])
                                 for model, runs in found["models"].items()])


def write_largest(found):
    if not found or "largest" not in found:
        return []
    lines = ["## The largest model", ""]
    for title, one in (("planned", found["largest"]), ("ran", found.get("ran"))):
        if one:
            step = f", one step in {one['step_ms']:.0f} ms" if "step_ms" in one else ""
            lines.append(f"- {title}: {one['layers']} blocks of width {one['width']}, "
                         f"{one['parameters'] / 1e9:.2f} G parameters{step}")
    return lines + [""]


def write_page(report):
    facts, lines = report["facts"], ["# sluice on a GPU", ""]
    lines += table(("", ""), [(name.replace("_", " "), value) for name, value in facts.items()
                              if value])
    lines += ["## Stages", "", *table(("stage", "result", "seconds", "why"), [
        (row["stage"], row["result"], row["seconds"], row["note"]) for row in report["stages"]])]
    lines += write_tests("Tests on the processor", report["tests"])
    lines += write_tests("Tests on the GPU", report["gpu_tests"])
    for write, name in ((write_proof, "proof"), (write_sanitizer, "sanitizer"),
                        (write_bench, "bench"),
                        (write_memory, "memory"), (write_agreement, "agreement"),
                        (write_pair, "pair"), (write_offload, "offload"),
                        (write_largest, "largest")):
        try:
            lines += write(report[name])
        except (KeyError, TypeError, ValueError) as error:
            lines += [f"## {name}", "", f"half written: {error!r}", ""]
    return "\n".join(lines).rstrip() + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    work, out = sys.argv[1:]
    report = read_work(work)
    os.makedirs(out, exist_ok=True)
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"),
                       ("report.md", write_page(report))):
        with open(os.path.join(out, name + ".tmp"), "w") as file:
            file.write(text)
        os.replace(os.path.join(out, name + ".tmp"), os.path.join(out, name))


if __name__ == "__main__":
    main()
