#!/usr/bin/env python3
"""Runs the commands of README.md and docs/*.md. Wrong could be: an option that a page names and no command
has; a file that one command of a page writes and the next does not find; an exit code that a page tells
and that is another.

A block is of commands if a line of it begins with `sluice` or another program that is known here, or if
it is fenced as sh. It is run by sh in a directory with small fixtures; `sluice` there is small.py, which
puts a model of milliseconds in the place of the page's. A comment in the line before a block says
otherwise:

    <!-- exits 69 -->             what its only command ends with
    <!-- not run: why -->         its commands of sluice are given to the option parser alone

A block that is neither run nor marked fails. So does a marker without such a block behind it. What was
run, parsed and left out is counted and printed.

usage: run.py SLUICE REPOSITORY [PAGE...] | run.py --self-test SLUICE REPOSITORY"""

import gzip
import json
import os
import random
import re
import shlex
import signal
import shutil
import subprocess
import sys
import tempfile

# Programs of a block that are simply run; they and `sluice` make a block one of commands.
RUN = {"cat", "cd", "cmp", "cp", "cut", "diff", "echo", "export", "find", "grep", "head", "ls",
       "mkdir", "mpirun", "mv", "printf", "rm", "sed", "sort", "srun", "tail", "tee", "test",
       "timeout", "touch", "wc", "xargs"}
# Programs that are left out, with the reason; of ours the file has to be there.
LEFT_OUT = [("scripts/", "builds, tests or measures for minutes"),
            ("benchmarks/", "measures for minutes"),
            ("examples/", "trains for minutes"),
            ("cmake", "builds"), ("cpack", "builds"), ("ctest", "tests"), ("git", "reads the network"),
            ("apt", "installs"), ("apt-get", "installs"), ("dpkg", "installs"), ("sudo", "installs"),
            ("pip", "installs"), ("tensorboard", "serves until it is stopped"),
            ("man", "pages on a terminal"), ("sbatch", "needs Slurm")]
SAME = "--same-as-before" # small.py fills it in
# Paths of the pages, and where they are among the fixtures.
PATHS = [(re.compile(r"(?<![\w/.])/(mnt|scratch|usr/share|usr/include|usr/lib|data)\b"), r"root/\1"),
         (re.compile(r"(?<![\w/.-])build/(?:[a-z]+/)?sluice\b"), "sluice")]
LIMIT_S = 200 # of one block, under sanitizers too


class Fault(Exception):
    pass


# ---- blocks of a page ----


class Block:
    def __init__(self, page, line, language, lines, marker):
        self.page, self.line, self.language, self.lines = page, line, language, lines
        self.marker = marker # ("exits", code), ("not run", why) or None

    @property
    def where(self):
        return f"{self.page}:{self.line}"

    def commands(self):
        """Logical lines: what a backslash continues is one; comments and empty lines are none. If there is
        a prompt, "$ ", what stands on other lines was printed."""
        joined = re.sub(r"\\\n", " ", "\n".join(self.lines))
        lines = [line.strip() for line in joined.split("\n")
                 if line.strip() and not line.strip().startswith("#")]
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return prompted or lines


def first_word(line):
    words = line.strip().removeprefix("$ ").split()
    while words and re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0]):
        words = words[1:]
    return words[0] if words else ""


def find_left_out(word):
    return next((why for name, why in LEFT_OUT
                 if word == name or name.endswith("/") and word.removeprefix("./").startswith(name)), None)


def is_known(word):
    return word in RUN or os.path.basename(word) == "sluice" or find_left_out(word) is not None


def is_of_commands(block):
    if block.language in ("sh", "bash", "console"):
        return True
    if block.language:
        return False
    lines = [line for line in block.lines if line.strip()]
    return bool(lines) and (is_known(first_word(lines[0])) or
                            any(re.match(r"(\$ )?sluice [a-z-]", line) for line in lines))


def read_marker(text):
    if match := re.fullmatch(r"<!-- exits (\d+) -->", text):
        return ("exits", int(match[1]))
    if match := re.fullmatch(r"<!-- not run: (\S.*) -->", text):
        return ("not run", match[1])
    return None


def read_fenced(lines, at):
    """The lines in a fence that begins at `at`, and the index behind it."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), len(lines))
    return [line[indent:] if not line[:indent].strip() else line for line in lines[at + 1:end]], end + 1


def read_indented(lines, at):
    end = at
    while end < len(lines) and lines[end].startswith("    ") and lines[end].strip():
        end += 1
    return [line[4:] for line in lines[at:end]], end


def read_blocks(page, text):
    """Every block of code of a page: fenced, or four columns in behind an empty line."""
    lines, blocks, marker, marked_at, at = text.split("\n"), [], None, 0, 0
    while at < len(lines):
        line, begin, found = lines[at], at, None
        if line.lstrip().startswith("```"):
            language = line.strip().strip("`").strip()
            found, at = read_fenced(lines, at)
        elif line.startswith("    ") and line.strip() and (at == 0 or not lines[at - 1].strip()):
            language = ""
            found, at = read_indented(lines, at)
        else:
            at += 1
        if found is not None:
            block = Block(page, begin + 1, language, found, marker)
            if marker and not is_of_commands(block):
                raise Fault(f"{page}:{marked_at}: the marker has no block of commands behind it")
            blocks.append(block)
            marker = None
        elif line.strip():
            if marker:
                raise Fault(f"{page}:{marked_at}: the marker has no block of commands behind it")
            marker, marked_at = read_marker(line.strip()), begin + 1
            if marker is None and re.match(r"<!-- (exits|not run)", line.strip()):
                raise Fault(f"{page}:{begin + 1}: a marker says `exits CODE` or `not run: WHY`")
    return blocks


# ---- the fixtures ----


def make_text(seed, words):
    source = random.Random(seed)
    return " ".join(source.choice("the a lock boat gate water rises falls and then keeper opens "
                                  "closes slowly canal".split()) for _ in range(words)) + ".\n"


def write_zstandard(path, data):
    """A frame of one block that is not compressed, of at most 128 KiB of text."""
    header = b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little")
    with open(path, "wb") as file:
        file.write(header + (len(data) << 3 | 1).to_bytes(3, "little") + data)


def write_texts(root):
    for name in ("text", "corpus", "tokens", "held", "nvme", "root/mnt/nvme", "root/mnt/nvme0",
                 "root/mnt/nvme1", "root/data"):
        os.makedirs(f"{root}/{name}")
    documents = [make_text(seed, 400) for seed in range(40)]
    lines = "".join(json.dumps({"text": make_text(seed, 90)}) + "\n" for seed in range(180)).encode()
    for name in ("text/a.txt", "text/b.txt", "book.txt", "held/a.txt", "held-out.txt", "corpus/a.txt",
                 "FILE"):
        with open(f"{root}/{name}", "w", encoding="ascii") as file:
            file.write("".join(documents[:20]))
    with open(f"{root}/letter.txt", "w", encoding="ascii") as file:
        file.write("The lock keeper")
    write_zstandard(f"{root}/corpus/b.txt.zst", "".join(documents[:20]).encode())
    write_zstandard(f"{root}/web.jsonl.zst", lines)
    for name in ("web.jsonl.gz", "books.jsonl.gz", "corpus/c.jsonl.gz"):
        with gzip.open(f"{root}/{name}", "wb") as file:
            file.write(lines)
    with open(f"{root}/mine.jsonl", "wb") as file:
        file.write(lines)
    with open(f"{root}/lambada.jsonl", "wb") as file:
        file.write(b"".join(json.dumps({"text": make_text(seed, 12)}).encode() + b"\n"
                            for seed in range(4)))
    for folder in ("share/doc", "include", "lib/python3", "share/perl"):
        os.makedirs(f"{root}/root/usr/{folder}")
        for i in range(60):
            with open(f"{root}/root/usr/{folder}/{i}.txt", "w", encoding="ascii") as file:
                file.write(documents[i % 40])


def write_settings(root, repository):
    with open(f"{root}/ds_config.json", "w", encoding="ascii") as file:
        json.dump({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
                   "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.02}},
                   "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, file)
    with open(f"{root}/hosts", "w", encoding="ascii") as file:
        file.write("localhost slots=2\n")
    os.symlink(f"{repository}/examples", f"{root}/examples")
    shutil.copy(f"{repository}/examples/clusters/dgx-a100-80gb.json", f"{root}/a100.json")
    shutil.copy(f"{repository}/examples/clusters/dgx-a100-80gb.json", f"{root}/cluster.json")


MODEL = "--layers 4 --width 32 --heads 4 --context 32 --micro-batch 2"
FIXTURES = f"""
tokenize --learn 300 --tokenizer vocabulary --data text --output corpus.bin --quiet
tokenize --tokenizer vocabulary --data book.txt --output tokens/a.bin --quiet
tokenize --tokenizer vocabulary --data book.txt --output tokens.bin --quiet
train {MODEL} --tokenizer vocabulary --data corpus.bin --steps 2 --save checkpoints --log-json run.jsonl --quiet
train {MODEL} --data text --steps 2 --log-json other.jsonl --quiet
convert --from checkpoints --to hf-gpt2 --quiet
convert --from checkpoints --to gpt2_124M.bin --format llmc --quiet
convert --from checkpoints --to megatron-345m --format megatron --tp 2 --pp 2 --quiet
bench --quick --quiet --output trial.json
"""


def make_fixtures(sluice, repository, root):
    write_texts(root)
    write_settings(root, repository)
    for line in FIXTURES.strip().split("\n"):
        done = subprocess.run([sluice, *line.split()], cwd=root, env=environment(root, sluice),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Fault(f"the fixtures: sluice {line}: {done.stderr}")
    os.makedirs(f"{root}/home/.config/sluice")
    shutil.copy(f"{root}/trial.json", f"{root}/home/.config/sluice/machine.json")


def list_models(sluice):
    """Names of the built-in shapes. Without them a command would train the page's own model."""
    text = subprocess.run([sluice, "help", "models"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^ +(gpt\S+) +\d", text, re.MULTILINE)
    if len(names) < 4:
        raise Fault(f"sluice help models names {names}")
    return " ".join(names)


def environment(root, sluice):
    keep = {name: value for name, value in os.environ.items()
            if not name.startswith(("SLUICE_", "XDG_", "OMPI_", "PMI", "SLURM_"))}
    return keep | {"HOME": f"{root}/home", "LC_ALL": "C", "TERM": "dumb", "PAGES_SLUICE": sluice,
                   "PAGES_LOG": f"{root}/ran.log", "PAGES_MODELS": list_models(sluice)}


def make_programs(folder):
    """`sluice`, `mpirun` and `srun`, before others of that name in PATH."""
    os.makedirs(folder)
    small = os.path.join(os.path.dirname(os.path.abspath(__file__)), "small.py")
    with open(small, encoding="utf-8") as file:
        text = f"#!{sys.executable} -IS\n" + file.read()
    for name in ("sluice", "mpirun", "srun"):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(f"{folder}/{name}", 0o755)


# ---- running ----


def split_command(line):
    """The commands of a line, each a list of words, without what is redirected."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    commands, is_redirected = [[]], False
    for word in lexer:
        if re.fullmatch(r"[|&;()]+", word):
            commands.append([])
        elif re.fullmatch(r"[<>]+", word):
            is_redirected = True
        elif is_redirected:
            is_redirected = False
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def find_sluice(words):
    """The words of the command of sluice that a command is or starts: behind timeout, mpirun, launch."""
    at = next((i for i, word in enumerate(words) if os.path.basename(word) == "sluice"), None)
    if at is None or at + 1 == len(words):
        return []
    rest = words[at + 1:]
    if rest[0] != "launch" or "--" not in rest:
        return [rest]
    end = rest.index("--")
    launched = rest[end + 1:]
    return [rest[:end], *([launched] if launched else [])]


def replace_ellipsis(line):
    return re.sub(r"…[^…#]*…|…|(?<!\S)\.\.\.(?!\S)", f" {SAME} ", line)


def replace_paths(line):
    for pattern, text in PATHS:
        line = pattern.sub(text, line)
    return line


class Runner:
    def __init__(self, sluice, repository, scratch):
        self.sluice, self.repository, self.scratch = sluice, repository, scratch
        self.ran, self.parsed, self.left = [], [], []
        self.fixtures = f"{scratch}/fixtures"
        os.makedirs(self.fixtures)
        make_fixtures(sluice, repository, self.fixtures)
        make_programs(f"{scratch}/bin")

    def parse(self, block, line, why):
        """Its options are known to the parser; nothing is computed."""
        found = [words for command in split_command(line) for words in find_sluice(command)]
        for words in found:
            words = [word for word in words if word != SAME]
            done = subprocess.run([self.sluice, *words, "--help"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Fault(f"{block.where}: sluice {shlex.join(words)}: {done.stderr.strip()}")
            self.parsed.append((block.where, shlex.join(words), why))
        if not found:
            self.left.append((block.where, line, why))

    def check_left_out(self, block, line):
        """Whether the line has a program that is left out; scripts of ours have to be there."""
        words = [first_word(part) for part in re.split(r"&&|;|\|", line.partition(" #")[0])]
        word = next((word for word in words if find_left_out(word)), None)
        if word is None:
            return False
        why = find_left_out(word)
        if "/" in word and not os.path.exists(os.path.join(self.repository, word.removeprefix("./"))):
            raise Fault(f"{block.where}: there is no {word}")
        self.left.append((block.where, line, why))
        return True

    def run_shell(self, block, lines, home):
        log = f"{home}/ran.log"
        open(log, "w", encoding="utf-8").close()
        names = environment(home, self.sluice)
        names["PATH"] = f"{self.scratch}/bin:{names['PATH']}"
        try:
            done = subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=home, env=names,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Fault(f"{block.where}: not over after {LIMIT_S} s") from error
        with open(log, encoding="utf-8") as file:
            ran = [json.loads(line) for line in file]
        expected = block.marker[1] if block.marker else 0
        # The reader of a pipe may have what it wants before sluice has written all.
        piped = -signal.SIGPIPE if any("|" in line for line in lines) else expected
        wrong = [f"sluice {shlex.join(words)} ended with {code}" for words, code in ran
                 if code not in (expected, piped)]
        if done.returncode != expected or wrong:
            raise Fault(f"{block.where}: exit code {done.returncode}, not {expected}\n    " +
                        "\n    ".join(wrong + done.stderr.strip().split("\n")[-6:]))
        self.ran += [(block.where, shlex.join(words)) for words, code in ran]

    def run_block(self, block, home):
        lines = [replace_paths(replace_ellipsis(line)) for line in block.commands()]
        if block.marker and block.marker[0] == "not run":
            for line in lines:
                self.parse(block, line, block.marker[1])
            return
        unknown = [word for line in lines if not is_known(word := first_word(line))]
        if unknown:
            raise Fault(f"{block.where}: neither run nor marked: {unknown[0]}")
        lines = [line for line in lines if not self.check_left_out(block, line)]
        if lines:
            self.run_shell(block, lines, home)

    def run_page(self, page, text):
        """Returns the faults of a page; its blocks share a directory."""
        home = tempfile.mkdtemp(prefix="page-", dir=self.scratch)
        shutil.copytree(self.fixtures, home, symlinks=True, dirs_exist_ok=True)
        faults = []
        try:
            blocks = read_blocks(page, text)
        except Fault as fault:
            return [str(fault)]
        for block in blocks:
            try:
                if is_of_commands(block):
                    self.run_block(block, home)
            except Fault as fault:
                faults.append(str(fault))
        shutil.rmtree(home)
        return faults


def list_pages(repository):
    docs = sorted(name for name in os.listdir(f"{repository}/docs") if name.endswith(".md"))
    return ["README.md"] + [f"docs/{name}" for name in docs]


def run_pages(runner, pages):
    faults = []
    for page in pages:
        with open(f"{runner.repository}/{page}", encoding="utf-8") as file:
            faults += runner.run_page(page, file.read())
    for where, line, why in runner.parsed:
        print(f"parsed   {where}: sluice {line} ({why})")
    for where, line, why in runner.left:
        print(f"left out {where}: {line} ({why})")
    for fault in faults:
        print(f"FAILED   {fault}")
    print(f"{len(pages)} pages: {len(runner.ran)} commands of sluice run, {len(runner.parsed)} parsed, "
          f"{len(runner.left)} lines left out, {len(faults)} blocks failed")
    return 1 if faults else 0


# ---- planted faults ----

FENCE = "```"
PLANTED = [
    (True, f"{FENCE}\nsluice train --model gpt2 --data text …\n{FENCE}"),
    (True, f"{FENCE}\nsluice plan --layers 2 --width 32 --heads 2 --json | head -c 1 >/dev/null\n{FENCE}"),
    (True, f"{FENCE}text\nsluice train --no-such-option\n{FENCE}"),
    (True, f"<!-- not run: a cluster -->\n{FENCE}\nmpirun -n 64 sluice train --tp 8 …\n{FENCE}"),
    (True, f"<!-- exits 64 -->\n{FENCE}\nsluice train --model nothing\n{FENCE}"),
    (True, "words\n\n    sluice train --policy host …\n\nwords"),
    (True, f"{FENCE}\n$ sluice doctor \\\n   --json\n…\nok  memory\n$ sluice help words\n{FENCE}"),
    (True, "words\n\n    sluice plan --policy host …\n\n    param 239.3 MiB\n\nwords"),
    (False, f"{FENCE}\n$ sluice doctor --no-such-option\nok  memory\n{FENCE}"),
    (False, f"{FENCE}\nsluice train --no-such-option 1 …\n{FENCE}"),
    (False, f"{FENCE}\nsluice train … | cat\nsluice train --no-such-option 1 … | cat\n{FENCE}"),
    (False, "words\n\n    sluice train --no-such-option 1 …\n\nwords"),
    (False, f"<!-- not run: a cluster -->\n{FENCE}\nmpirun -n 64 sluice train --no-such-option …\n{FENCE}"),
    (False, f"<!-- not run: a cluster -->\n{FENCE}\nsluice launch -n 4 --no-such-option -- train …\n{FENCE}"),
    (False, f"<!-- not run: -->\n{FENCE}\nsluice train …\n{FENCE}"),
    (False, "<!-- not run: words -->\nwords"),
    (False, f"<!-- exits 69 -->\n{FENCE}\nsluice train …\n{FENCE}"),
    (False, f"{FENCE}\nsluice train --model no-such-model …\n{FENCE}"),
    (False, f"{FENCE}\nsluice train --device no-such-device …\n{FENCE}"),
    (False, f"{FENCE}\nsluice bench --only no-such-figure\n{FENCE}"),
    (False, f"{FENCE}\nsluice generate no-such-model --prompt x\n{FENCE}"),
    (False, f"{FENCE}sh\nno-such-program\n{FENCE}"),
    (False, f"{FENCE}\nscripts/no_such_script.sh\n{FENCE}"),
]


def self_test(runner):
    for is_right, text in PLANTED:
        faults = runner.run_page("planted.md", text)
        if bool(faults) == is_right:
            print(f"FAILED: {'refused' if is_right else 'accepted'}:\n{text}\n" + "\n".join(faults))
            return 1
    print("pages: what is planted is found")
    return 0


def main():
    words = [word for word in sys.argv[1:] if word != "--self-test"]
    sluice, repository = os.path.abspath(words[0]), os.path.abspath(words[1])
    scratch = tempfile.mkdtemp(prefix="sluice-pages-")
    try:
        runner = Runner(sluice, repository, scratch)
        if "--self-test" in sys.argv:
            return self_test(runner)
        return run_pages(runner, words[2:] or list_pages(repository))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main())
