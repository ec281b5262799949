"""A checkpoint without a session: its text (sl_generate), its loss (sl_evaluate)."""

import ctypes

from ._errors import SL_ERROR_DATA, check, make_error
from ._library import SL_OK, TEXT_SINK, encode, library, take_json


class Text:
    """Takes the text of samples; `on_text(sample, text)` hears of it as it comes."""

    def __init__(self, on_text):
        self._on_text = on_text
        self._exception = None
        self.bytes = {}
        self.callback = TEXT_SINK(self._call)

    def _call(self, user, sample, data, count):
        del user
        try:
            piece = ctypes.string_at(data, count)
            self.bytes[sample] = self.bytes.get(sample, b"") + piece
            if self._on_text:
                self._on_text(sample, piece.decode("utf-8", "replace"))
            return SL_OK
        except BaseException as exception:  # C has no other way to learn of it
            self._exception = exception
            return library.sl_status_set(SL_ERROR_DATA, b"the function for text failed")

    def check(self, status):
        if status != SL_OK and self._exception is not None:
            raise self._exception
        check(status)


def list_settings(options):
    """Options as C takes them: name, value, name, value ... NULL."""
    words = []
    for name, value in options.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is not None:
                words += [name.encode(), encode(item)]
    return (ctypes.c_char_p * (len(words) + 1))(*words)


def run(function, prompt, on_text, options):
    """The text behind a prompt; a list of texts with several samples."""
    prompt = prompt.encode() if isinstance(prompt, str) else prompt
    if b"\0" in prompt:
        raise ValueError("a zero byte in the prompt")
    text = Text(on_text)
    text.check(function(list_settings(options), prompt, text.callback, None))
    count = int(options.get("samples") or 1)
    texts = [text.bytes.get(i, b"").decode("utf-8", "replace") for i in range(count)]
    return texts if count > 1 else texts[0]


def generate(checkpoint, prompt, *, on_text=None, **options):
    """What the model of a checkpoint says behind `prompt`; a list with samples=2 or more.

    Options are those of `sluice generate`, such as tokens=100, temperature=0.8, seed=1. The model
    is loaded anew by each call. `on_text(sample, text)` is called with each piece as it comes.
    """
    options = {"checkpoint": checkpoint, **options}
    return run(library.sl_generate, prompt, on_text, options)


def evaluate(checkpoint, data, **options):
    """The loss of a checkpoint over files, as a dict: "loss" in nats a token, "perplexity" and more.

    `data` is a path or a list of paths. Options are those of `sluice eval`, such as overlap=64; with
    last_word=True "accuracy". The model is loaded anew by each call.
    """
    text = ctypes.c_void_p()
    settings = list_settings({"checkpoint": checkpoint, "data": data, **options})
    check(library.sl_evaluate(settings, ctypes.byref(text)))
    return take_json(text)
