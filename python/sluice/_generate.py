"""Text of a trained model, by the command: the C library has no call for it yet."""

import os
import shutil
import subprocess

from ._errors import CLASSES, Error, make_error
from ._library import library_path


def find_command():
    """The command beside the library, else on the path; None: there is none."""
    folder = os.path.dirname(library_path)
    beside = os.path.join(os.path.realpath(folder), "sluice") if folder else None
    if beside and os.access(beside, os.X_OK) and os.path.isfile(beside):
        return beside
    return shutil.which("sluice")


def list_words(name, value):
    """An option as words of a command line."""
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [f"{option}={item}" for item in values]


def make_command_error(code, message):
    """The first status with this exit code, as an exception; exit codes are fewer than statuses."""
    for status in CLASSES:
        error = make_error(status, message)
        if error.exit_code == code:
            return error
    return Error(-5, message)


def generate(checkpoint, prompt, **options):
    """Continues `prompt` by the model of a checkpoint and returns the text, the prompt included.

    There is no C function for this yet, so it runs the command `sluice generate` as a process: the
    model is loaded anew by each call. Options are those of the command, such as tokens=100,
    temperature=0.8, seed=1, device="cpu".
    """
    command = find_command()
    if command is None:
        raise FileNotFoundError("the command sluice is neither beside the library nor on the path")
    words = [command, "generate", os.fspath(checkpoint), f"--prompt={prompt}"]
    for name, value in options.items():
        words += list_words(name, value)
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise make_command_error(done.returncode, lines[-1].removeprefix("sluice: "))
    return done.stdout.decode("utf-8", "replace").removesuffix("\n")
