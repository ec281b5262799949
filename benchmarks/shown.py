#!/usr/bin/env python3
"""What a profile and a plan promise, against runs: three parts, each in interleaved repetitions.

  predicted  the step time that `plan` predicts beside the median of `train`: 48 cases of model,
             policy, budget, rows, accumulation and recomputation
  budgets    the change of a step that `plan` predicts for another budget of a tier, beside the change
             that `train` shows with it
  profile    the step of `profile` beside the step of `train` in pairs: what profiling costs

A case counts where its own repetitions differ by less than 5 % (largest less least, of the median);
one that differs more is measured anew up to --retries times, and then counted as excluded. Run
`sluice bench --disk-dir DIR` before, or let --profile-every measure the machine anew as the script
goes: the speed of a shared machine moves within minutes.
--minutes bounds all of it: cases that no time is left for are said to be left out."""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import predict
import steps

NOISE = 0.05
GPT2 = ["--model", "gpt2", "--micro-batch", "2", "--seq", "128"]


def list_predicted():
    """The cases of predict.py, and more rows, accumulation, recomputation and budgets."""
    cases = predict.list_cases()
    for precision in ("fp32", "bf16"):
        for name, words in (
                ("device 1 row", ["--policy", "device", "--micro-batch", "1", "--seq", "128"]),
                ("device 4 rows", ["--policy", "device", "--micro-batch", "4", "--seq", "64"]),
                ("device accumulates 4", ["--policy", "device", "--micro-batch", "1", "--seq", "64",
                                          "--accumulate", "4"]),
                ("device recomputes", ["--policy", "device", "--micro-batch", "2", "--seq", "128",
                                       "--recompute", "full"]),
                ("host recomputes", ["--policy", "host", "--micro-batch", "2", "--seq", "128",
                                     "--recompute", "selective"]),
                ("host 600M accumulates 2", ["--policy", "host", "--micro-batch", "2", "--seq", "64",
                                             "--accumulate", "2", "--device-memory", "600M"]),
                ("host activations", ["--policy", "host", "--micro-batch", "2", "--seq", "128",
                                      "--offload-activations", "1"]),
                ("static half", ["--policy", "static", "--micro-batch", "1", "--seq", "256",
                                 "--offload-optimizer", "0.5"]),
                ("auto 1G", ["--policy", "auto", "--micro-batch", "2", "--seq", "128",
                             "--device-memory", "1G"]),
                ("auto 700M recomputes", ["--policy", "auto", "--micro-batch", "4", "--seq", "64",
                                          "--recompute", "full", "--device-memory", "700M"]),
                ("nvme accumulates 4", ["--policy", "nvme", "--micro-batch", "1", "--seq", "64",
                                        "--accumulate", "4"]),
                ("nvme recomputes", ["--policy", "nvme", "--micro-batch", "2", "--seq", "128",
                                     "--recompute", "full"])):
            cases.append((f"{precision} {name}", ["--model", "gpt2", "--precision", precision, *words]))
        for name, words in (("medium device", ["--policy", "device"]),
                            ("medium auto 2G", ["--policy", "auto", "--device-memory", "2G"])):
            cases.append((f"{precision} {name}", ["--model", "gpt2-medium", "--precision", precision,
                                                  "--micro-batch", "1", "--seq", "128", *words]))
    return cases


def list_budgets():
    """Name, options, and the budget before and after."""
    cases = []
    for precision in ("fp32", "bf16"):
        for policy in ("host", "auto"):
            for before, after in (("500M", "1524M"), ("700M", "1724M"), ("1G", "2G"), ("2G", "1G"),
                                  ("1200M", "700M")):
                cases.append((f"{precision} {policy} {before} to {after}",
                              [*GPT2, "--precision", precision, "--policy", policy],
                              ["--device-memory", before], ["--device-memory", after]))
    return cases


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default="build/sluice")
    parser.add_argument("--disk-dir", help="of the disk tier (else cases with one are left out)")
    parser.add_argument("--parts", nargs="+", default=["predicted", "budgets", "profile"])
    parser.add_argument("--only", default="", metavar="PART", help="cases whose name has this in it")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--retries", type=int, default=1, help="of a case that is noisy")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--profile-every", type=int, default=0, metavar="N",
                        help="measure the machine's profile before each N cases (0: use the present one)")
    parser.add_argument("--json", help="file for everything measured")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[],
                        help="for every run, at the end: a smaller model, say")
    return parser.parse_args()


class Shown:
    """Repeats, filters and counts."""

    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.data = steps.write_tokens(directory)
        self.end = time.monotonic() + 60 * options.minutes
        self.machine, self.rows, self.profiled_cases = [], [], 0

    def measure_machine(self):
        """A new profile where the last one has served its cases."""
        if self.options.profile_every == 0 or self.profiled_cases % self.options.profile_every:
            return
        path = os.path.join(self.directory, "machine.json")
        disk = ["--disk-dir", self.options.disk_dir] if self.options.disk_dir else []
        steps.call([self.options.binary, "bench", "--quiet", "--output", path, *disk])
        self.machine = ["--machine", path]

    def train(self, words):
        words = [*words, *self.machine, *self.options.options]
        return steps.train(self.options.binary, words, self.data, self.directory, 4, 1)["median"]

    def plan(self, words):
        return steps.plan(self.options.binary,
                          [*words, *self.machine, *self.options.options])["predicted_step_ms"]

    def profile(self, words):
        path = os.path.join(self.directory, "profile.json")
        steps.call([self.options.binary, "profile", *words, *self.machine, *self.options.options, "--quiet",
                    "--profile-steps", "3", "--json", path])
        with open(path) as file:
            return json.load(file)["step_ms"]

    def repeat(self, *runs):
        """The medians of runs that take turns, and the largest of their spreads."""
        times = [[run() for run in runs] for _ in range(self.options.repetitions)]
        columns = list(zip(*times))
        medians = [statistics.median(column) for column in columns]
        spread = max((max(column) - min(column)) / median for column, median in zip(columns, medians))
        return medians, spread

    def show(self, part, cases, limit):
        """`cases` are names and calls that return a ratio, whose best is 1, and the noise."""
        close = counted = excluded = left_out = 0
        for name, call in (case for case in cases if self.options.only in case[0]):
            if time.monotonic() > self.end:
                left_out += 1
                continue
            self.measure_machine()
            self.profiled_cases += 1
            for _ in range(1 + self.options.retries):
                ratio, spread = call()
                self.rows.append({"part": part, "case": name, "ratio": ratio, "noise": spread})
                if spread < NOISE:
                    break
            is_noisy = spread >= NOISE
            excluded += is_noisy
            counted += not is_noisy
            close += not is_noisy and abs(ratio - 1) <= limit
            print(f"{part:10} {name:36} ratio {ratio:5.3f}, own noise {100 * spread:4.1f} %"
                  f"{' excluded' if is_noisy else ''}", flush=True)
        print(f"{part}: {close} of {counted} within {100 * limit:.0f} %; {excluded} excluded as noisy, "
              f"{left_out} left out for time", flush=True)

    def predicted(self):
        def call(words):
            (median,), spread = self.repeat(lambda: self.train(words))
            return self.plan(words) / median, spread
        self.show("predicted", self.bind(call, list_predicted()), 0.10)

    def budgets(self):
        def call(words, before, after):
            medians, spread = self.repeat(lambda: self.train(words + before),
                                          lambda: self.train(words + after))
            told = self.plan(words + after) / self.plan(words + before)
            return told / (medians[1] / medians[0]), spread
        self.show("budgets", [(name, lambda rest=rest: call(*rest)) for name, *rest in list_budgets()],
                  0.10)

    def profiled(self):
        def call(words):
            medians, spread = self.repeat(lambda: self.train(words), lambda: self.profile(words))
            return medians[1] / medians[0], spread
        self.show("profile", self.bind(call, predict.list_cases()), 0.02)

    def bind(self, call, cases):
        """Those of the cases that can be run here."""
        disk = ["--disk-dir", self.options.disk_dir] if self.options.disk_dir else []
        return [(name, lambda words=words: call([*words, *(disk if {"nvme", "auto"} & {*words} else [])]))
                for name, words in cases if "nvme" not in words or disk]


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="sluice-shown-") as directory:
        shown = Shown(options, directory)
        parts = {"predicted": shown.predicted, "budgets": shown.budgets, "profile": shown.profiled}
        for part in options.parts:
            parts[part]()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": shown.rows, "options": vars(options)}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
