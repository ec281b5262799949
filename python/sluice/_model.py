"""Models of a Python function: the layers of include/sluice/model.h.

    def build(model):
        x = model.embed("wte", ids=257, width=128, positions="wpe", context=64)
        for i in range(4):
            with model.block("h", i):
                y = model.norm("ln", x)
                y = model.linear("up", y, 512, split="columns")
                y = model.linear("down", model.gelu("gelu", y), 128, split="rows")
                x = model.drop_add("drop", y, x)
        model.head("wte", model.norm("ln_f", x))

A build function describes the whole model, and knows nothing of ranks, rows or precision. It is
called many times: the same calls each time, and nothing else.
"""

import contextlib
import ctypes

from ._errors import SL_ERROR_USAGE
from ._library import BUILD, SL_OK, Embedding, LinearSpec, library

SPLITS = {"columns": 0, "qkv": 1, "rows": 2, "gathered": 3}


class Model:
    """A model while it is built; only a build function is given one."""

    def __init__(self, handle):
        self._handle = handle
        self._names = []  # C keeps names until the function returns

    def _name(self, text):
        self._names.append(text.encode())
        return self._names[-1]

    @contextlib.contextmanager
    def block(self, name, index):
        """The layers inside are block `index`: the unit of recomputation and of pipeline stages."""
        library.sl_block(self._handle, self._name(name), index)
        yield
        library.sl_block_end(self._handle)

    def embed(self, name, ids, width, positions=None, context=0, deviation=0.02):
        """The hidden states of the tokens; `positions` names a table of learnt positions."""
        table = self._name(positions) if positions else None
        embedding = Embedding(self._name(name), ids, width, table, context, deviation)
        return library.sl_embed_sized(
            self._handle, ctypes.byref(embedding), ctypes.sizeof(embedding)
        )

    def norm(self, name, x):
        """LayerNorm over the features."""
        return library.sl_norm(self._handle, self._name(name), x)

    def linear(self, name, x, out, split="columns", heads=0, deviation=0.02):
        """x * weight + bias. `split` over tensor-parallel ranks: columns, qkv (by `heads`), rows,
        gathered."""
        if split not in SPLITS:
            raise ValueError(f"no split {split!r}; there are {', '.join(SPLITS)}")
        spec = LinearSpec(out, SPLITS[split], heads, deviation)
        return library.sl_linear_sized(
            self._handle, self._name(name), x, ctypes.byref(spec), ctypes.sizeof(spec)
        )

    def attention(self, name, qkv, heads):
        """Causal attention; `qkv` is the output of a linear with split="qkv"."""
        return library.sl_attention(self._handle, self._name(name), qkv, heads)

    def gelu(self, name, x):
        """GELU, the tanh form."""
        return library.sl_gelu(self._handle, self._name(name), x)

    def drop(self, name, x):
        """Dropout, by the option "dropout"."""
        return library.sl_drop(self._handle, self._name(name), x)

    def drop_add(self, name, x, residual):
        """dropout(x) + residual."""
        return library.sl_drop_add(self._handle, self._name(name), x, residual)

    def head(self, table, x):
        """The end: the logits of x with the table of an embedding, and their loss."""
        library.sl_head(self._handle, self._name(table), x)

    def head_untied(self, name, x, ids, deviation=0.02):
        """The same with a table of its own."""
        library.sl_head_untied(self._handle, self._name(name), x, ids, deviation)


class Build:
    """A Python function in the shape of C's. It must live as long as the session."""

    def __init__(self, function):
        self._function = function
        self._exception = None
        self.callback = BUILD(self._call)

    def _call(self, model, user):
        del user
        try:
            self._function(Model(model))
            return SL_OK
        except BaseException as exception:  # C has no other way to learn of it
            self._exception = exception
            message = f"{type(exception).__name__}: {exception}"
            return library.sl_status_set(SL_ERROR_USAGE, message.encode("utf-8", "replace"))

    def take_exception(self):
        """The exception of the last call that failed, once."""
        exception, self._exception = self._exception, None
        return exception

    def is_calling_thread(self):
        return False
