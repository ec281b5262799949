#!/usr/bin/env python3
"""Compiles what the public headers, docs/library.md and README.md show. Wrong could be: an example that no compiler
takes, or that does not train; a header that needs another one before it, or that C++ refuses; a page
docs/reference.md that is not that of the headers.

A whole program is linked with the library and run beside a small book.txt. A build function trains a
model for some steps and has to learn. Other examples are compiled as statements of a function that has
options and a session.

usage: reference.py [--self-test] REPOSITORY LIBRARY CC CXX [FLAG...]"""
import concurrent.futures
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
INCLUDES = "#include <stdio.h>\n#include <sluice/{}.h>\n"
STATEMENTS = """void example(sl_options *options, sl_session *session);
void example(sl_options *options, sl_session *session)
{{
    (void)options;
    (void)session;
    {{
{}
    }}
}}
"""
TRAINS = """
int main(void)
{
    const char *const settings[] = {"data", "book.txt", "seq", "32", "lr", "1e-2", "warmup", "0", NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    double first = 0;
    sl_status status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, settings);
    sl_options_set_model(options, build, NULL);
    if (status == SL_OK)
        status = sl_session_open(options, &session);
    for (int i = 0; i < 10 && status == SL_OK; i++) {
        status = sl_session_step(session, &step);
        first = i == 0 ? step.loss : first;
    }
    const int learns = step.loss < first - 0.5;
    printf("%s: loss %.4f, then %.4f\\n", status == SL_OK ? "trained" : sl_status_message(), first, step.loss);
    sl_session_close(session);
    sl_options_close(options);
    return status == SL_OK && learns ? 0 : 1;
}
"""


# Functions of an example that only shows them.
UNUSED = ["-Wno-unused-function", "-Wno-unused-const-variable"]


class Fault(Exception):
    pass


def load_maker(root):
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("make_reference", os.path.join(root, "scripts", "make_reference"))
    maker = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_reference", loader))
    loader.exec_module(maker)
    return maker


# ---- examples ----


class Example:
    def __init__(self, path, line, lines):
        self.path, self.line, self.text = path, line, "\n".join(lines)
        self.is_program = re.search(r"^int main\(", self.text, re.M) is not None
        self.is_build = re.search(r"^static sl_status build\(", self.text, re.M) is not None
        self.has_functions = re.search(r"^static .*\)\n\{", self.text, re.M) is not None

    def source(self, headers):
        text = f'#line {self.line} "{self.path}"\n{self.text}\n'
        if self.is_program:
            return text
        includes = "".join(INCLUDES.format(name) for name in headers)
        if self.is_build:
            return includes + text + TRAINS
        return includes + (text if self.has_functions else STATEMENTS.format(text))


def find_header_examples(maker, root):
    for name in maker.HEADERS:
        path = f"include/sluice/{name}.h"
        for part in maker.read_parts(os.path.join(root, path)):
            for is_code, first, lines in maker.split_comment(part.comment):
                if is_code:
                    yield Example(path, part.line + first, maker.unindent(lines))


def find_page_examples(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    for match in re.finditer(r"^```c\n(.*?)^```$", text, re.M | re.S):
        yield Example(path, text.count("\n", 0, match.start(1)) + 1, match[1].splitlines())


# ---- compiling and running ----


def run(what, command, directory):
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=250, check=False)
    if done.returncode != 0:
        raise Fault(f"{what}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Checker:
    def __init__(self, root, library, cc, cxx, flags, scratch):
        self.include = "-I" + os.path.join(os.path.abspath(root), "include")
        self.c, self.cxx = [cc, "-std=c11", *WARNINGS], [cxx, "-std=c++17", *WARNINGS]
        self.link = [os.path.abspath(library), "-Wl,-rpath," + os.path.dirname(os.path.abspath(library)), *flags]
        self.scratch = scratch

    def write(self, name, text):
        with open(os.path.join(self.scratch, name), "w", encoding="utf-8") as file:
            file.write(text)

    def check_header(self, name):
        for compiler, kind in ((self.c, "c"), (self.cxx, "cpp")):
            self.write(f"{name}.{kind}", f"#include <sluice/{name}.h>\n")
            run(f"{name}.h as {kind}", [*compiler, self.include, "-fsyntax-only", f"{name}.{kind}"], self.scratch)

    def check_example(self, number, example, headers):
        what, name = f"{example.path}:{example.line}", f"example{number}"
        self.write(name + ".c", example.source(headers))
        command = [*self.c, self.include, name + ".c"]
        if not example.is_program and not example.is_build:
            run(what, [*command, "-fsyntax-only", *UNUSED], self.scratch)
            return f"{what} compiles"
        run(what, [*command, "-o", name, *self.link], self.scratch)
        said = run(what, [os.path.join(self.scratch, name)], self.scratch).strip()
        if not said.startswith("trained"):
            raise Fault(f"{what}: printed {said}")
        return f"{what} {said}"


def check(root, library, cc, cxx, flags, only=""):
    """Prints what was checked; raises the first fault. What is compiled is of the file `only`, or of all."""
    maker = load_maker(root)
    if maker.main(["--check", root]) != 0:
        raise Fault("docs/reference.md")
    found = list(find_header_examples(maker, root)), list(find_page_examples(root, "docs/library.md"))
    found[1].extend(find_page_examples(root, "README.md"))
    if not all(found) or not any(example.is_program for example in found[1]):
        raise Fault("there are no examples in the headers, or no program in docs/library.md")
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checker = Checker(root, library, cc, cxx, flags, scratch)
        checker.write("book.txt", "The library trains models from a program. " * 500)
        tasks = [pool.submit(checker.check_example, number, example, maker.HEADERS)
                 for number, example in enumerate(found[0] + found[1]) if only in example.path]
        headers = [pool.submit(checker.check_header, name)
                   for name in maker.HEADERS if only in f"include/sluice/{name}.h"]
        for task in tasks:
            print(task.result())
        for task in headers:
            task.result()
    print(f"{len(headers)} headers compile alone, as C and as C++")


# ---- planted faults ----

# A file, what stands there, what stands there then, and the start of what is said.
PLANTS = [("include/sluice/options.h", '"policy", "host");', '"policy");', "include/sluice/options.h:"),
          ("include/sluice/model.h", "sl_gelu(model, ", "sl_gelo(model, ", "include/sluice/model.h:"),
          ("include/sluice/custom.h", "2 * rows->x[i]", "2 * rows->a[i]", "include/sluice/custom.h:"),
          ("include/sluice/version.h", '#include "sluice/status.h"', "", "version.h as c:"),
          ("include/sluice/device.h", "int index, sl", "int class, sl", "device.h as cpp:"),
          ("include/sluice/version.h", "*/\nSL_API", "*/\n\nSL_API", "include/sluice/version.h:"),
          ("docs/library.md", "step.loss);", "step.los);", "docs/library.md:"),
          ("docs/library.md", '"data", "book.txt"', '"data", "no.txt"', "docs/library.md:"),
          ("README.md", "sl_options_set_all(", "sl_options_set_every(", "README.md:"),
          ("docs/reference.md", "Sessions: ", "Session: ", "docs/reference.md")]


def plant(path, old, new):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if old not in text:
        raise Fault(f"{path}: there is no {old}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new, 1))


def find_fault(copy, path, arguments):
    """What is said of the file in a copy of the tree; the page of planted headers is made anew."""
    maker = load_maker(copy)
    try:
        if path.startswith("include/"):
            page = maker.make_page(copy)
            with open(os.path.join(copy, "docs", "reference.md"), "w", encoding="utf-8") as file:
                file.write(page)
        check(copy, *arguments, only=path)
    except (Fault, maker.Fault) as fault:
        return str(fault)
    return "nothing"


def self_test(root, *arguments):
    for path, old, new, start in PLANTS:
        with tempfile.TemporaryDirectory() as copy:
            for name in ("include", "scripts", "docs"):
                shutil.copytree(os.path.join(root, name), os.path.join(copy, name))
            shutil.copy(os.path.join(root, "README.md"), copy)
            plant(os.path.join(copy, path), old, new)
            said = find_fault(copy, path, arguments)
        if not said.startswith(start):
            raise Fault(f"{path} with {new!r}: said {said}")
    print(f"{len(PLANTS)} planted faults are found")


def main(arguments):
    is_self_test = arguments[:1] == ["--self-test"]
    arguments = arguments[is_self_test:]
    if len(arguments) < 4:
        print(__doc__, file=sys.stderr)
        return 64
    root, library, cc, cxx, *flags = arguments
    try:
        (self_test if is_self_test else check)(root, library, cc, cxx, flags)
    except Fault as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
