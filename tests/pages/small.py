"""A stand-in for `sluice`, `mpirun` and `srun` while the pages' commands are run: the same command with a
model of milliseconds in the place of the page's, by the rules below, on the program that was built.
Every command that ran is a line of the log: its words, and its exit code.

Only run.py starts this file, under one of the three names. It sets PAGES_SLUICE, PAGES_LOG, and
PAGES_MODELS, the models that there are: a value that no command takes is left, to be refused."""

import json
import os
import re
import shutil
import subprocess
import sys

SHAPE = ["--layers", "4", "--width", "32", "--heads", "4", "--context", "32"]

# At most so much of each option, in a command that computes.
AT_MOST = {"--layers": 4, "--width": 32, "--heads": 4, "--context": 32, "--seq": 32, "--steps": 2,
           "--save-every": 1, "--eval-every": 1, "--eval-iters": 2, "--micro-batch": 4,
           "--overlap": 8, "--tokens": 8, "--learn": 300, "--profile-steps": 1}
# What a file of settings says is not seen here; a model that is trained by one has these.
OF_CONFIG = [["--width", "32"], ["--context", "32"], ["--seq", "32"]]
# Likewise of plan with --cluster, which searches thousands of layouts; an odd vocabulary is slow to share.
AT_MOST_CLUSTER = {"--layers": 8, "--width": 256, "--heads": 8, "--context": 256, "--vocab": 5120,
                   "--ranks": 16, "--global-batch": 16}
# In the place of a value that the page has and that matches. "product" alone stays: --match takes rows of it.
VALUE = {"--device": (r"cuda(:\d+)?", "cpu"),
         "--only": (r"((gemm|adamw|op|memory|copy|comm|disk|numa|product,attention),?)+", "comm")}
# What a command gets that does not say it.
LENGTHS = {"--epochs"} # in place of --steps
ADDED = {"train": {"--steps": "2"}, "profile": {"--profile-steps": "1"}, "generate": {"--tokens": "8"},
         "bench": {"--only": "comm"}}
COMPUTING = ("train", "profile", "generate", "eval", "tokenize", "bench")
SAME = "--same-as-before" # what run.py writes for an ellipsis


def split_words(words):
    """[[option, value...]...]; words in front of the first option are a group without one."""
    groups = [[]]
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            groups.append([name, value] if equals else [name])
        else:
            groups[-1].append(word)
    return groups


def reduce_number(group, at_most):
    if group and group[0] in at_most and group[1:] and group[1].isdigit():
        return [group[0], str(min(int(group[1]), at_most[group[0]]))] + group[2:]
    return group


def reduce_group(group):
    name, values = (group[0], group[1:]) if group else ("", [])
    if name == "--model" and values[:1] and values[0] in os.environ["PAGES_MODELS"].split():
        return SHAPE + values[1:]
    if name in VALUE and values and re.fullmatch(VALUE[name][0], values[0]):
        return [name, VALUE[name][1]] + values[1:]
    return reduce_number(group, AT_MOST)


def fill_ellipsis(command, groups):
    """The page says "the same options": a shape and data, if it does not name its own."""
    names = {group[0] for group in groups if group}
    groups = [[word for word in group if word != SAME] for group in groups]
    groups = [group for group in groups if group]
    if command in ("train", "plan", "profile") and not names & {"--model", "--layers", "--init",
                                                                "--resume", "--config"}:
        groups.append(SHAPE)
    if command == "train" and not names & {"--data", "--resume", "--config"}:
        groups.append(["--data", "text"])
    if "--cluster" in names:
        groups += [["--width", "256"], ["--vocab", "5120"]]
        groups += [["--global-batch", "16"]] if "--global-batch" not in names else []
    return groups


def reduce_command(words):
    """The words of a command of sluice, small."""
    command, groups = words[0], split_words(words[1:])
    if any(SAME in group for group in groups):
        groups = fill_ellipsis(command, groups)
    names = {group[0] for group in groups if group}
    if command == "plan": # allocates nothing: it is asked for the page's own model
        groups = [reduce_group(group) if group[:1] == ["--device"] else group for group in groups]
    if command == "plan" and "--ranks" not in names: # whatever this machine has left
        groups += [[name, "64G"] for name in ("--device-memory", "--host-memory") if name not in names]
    if command == "plan" and "--cluster" in names:
        groups = [reduce_number(group, AT_MOST_CLUSTER) for group in groups]
    if command in COMPUTING:
        groups = [reduce_group(group) for group in groups]
    if command == "train" and "--config" in names and not names & {"--init", "--model"}:
        groups += OF_CONFIG
    for name, value in ADDED.get(command, {}).items():
        if name not in names and not (name == "--steps" and names & LENGTHS):
            groups.append([name, value])
    if command == "train" and "--resume" in names: # a step more than the run that it goes on from
        groups = [group for group in groups if group[:1] != ["--steps"]] + [["--steps", "4"]]
    if command == "bench" and "--quick" not in names:
        groups.append(["--quick"])
    return [command] + [word for group in replace_outputs(command, names, groups) for word in group]


def replace_outputs(command, names, groups):
    """A page shows commands that a user chooses from: what one of them wrote is in the next one's way."""
    if command == "convert" or (command == "train" and "--save" in names and
                                not names & {"--resume", "--overwrite"}):
        return groups + [["--overwrite"]]
    if command == "tokenize" and "--learn" in names:
        learnt = [group[1] for group in groups if group[:1] == ["--tokenizer"]]
        shutil.rmtree(learnt[0], ignore_errors=True)
    return groups


def reduce_launch(words):
    """Words of the launcher, up to --, and those of its command; machines of a file are this one."""
    at = words.index("--") if "--" in words else len(words)
    groups = [group for group in split_words(words[:at]) if group[:1] != ["--hosts"]]
    launched = words[at + 1:]
    if launched and os.path.basename(launched[0]) == "sluice":
        launched = launched[1:]
    small = reduce_command(launched)
    if any(group[:1] == ["--restarts"] for group in groups): # refused beside --overwrite
        small = [word for word in small if word != "--overwrite"]
    return [word for group in groups for word in group] + ["--"] + small


def reduce_starter(words):
    """`mpirun -n N sluice train ...` is as many ranks of `sluice launch`."""
    at = next((i for i, word in enumerate(words) if os.path.basename(word) == "sluice"), None)
    if at is None:
        sys.exit("mpirun, srun: no sluice among the words")
    count = [words[i + 1] for i in range(at - 1) if words[i] in ("-n", "-np", "--ntasks")]
    return ["launch", "-n", count[0] if count else "2", "--"] + reduce_command(words[at + 1:])


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name != "sluice":
        small = reduce_starter(words)
    elif words[:1] == ["launch"]:
        small = reduce_launch(words)
    else:
        small = reduce_command(words) if words else words
    code = subprocess.run([os.environ["PAGES_SLUICE"], *small], check=False).returncode
    with open(os.environ["PAGES_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps([small, code]) + "\n")
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
