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
from ._library import (
    BUILD,
    SL_OK,
    AttentionSpec,
    Embedding,
    LinearSpec,
    RmsSpec,
    RotarySpec,
    Tensor,
    library,
)

SPLITS = {"columns": 0, "qkv": 1, "rows": 2, "gathered": 3}
SCALINGS = {"plain": 0, "linear": 1, "llama3": 2}


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

    def rms_norm(self, name, x, epsilon, head=0, weight_offset=0.0):
        """x / sqrt(mean(x^2) + epsilon) * (weight_offset + weight), over all features or over each
        `head` of them."""
        spec = RmsSpec(epsilon, head, weight_offset)
        return library.sl_rms_norm_sized(
            self._handle, self._name(name), x, ctypes.byref(spec), ctypes.sizeof(spec)
        )

    def linear(
        self,
        name,
        x,
        out,
        split="columns",
        heads=0,
        deviation=0.02,
        bias=True,
        column_heads=0,
        shares_heads=False,
    ):
        """x * weight + bias. `split` over tensor-parallel ranks: columns (in whole heads, if
        their number is given as `column_heads`; with `shares_heads` several ranks may have the
        same head), qkv (by `heads`), rows, gathered."""
        if split not in SPLITS:
            raise ValueError(f"no split {split!r}; there are {', '.join(SPLITS)}")
        spec = LinearSpec(
            out, SPLITS[split], heads, deviation, not bias, column_heads, bool(shares_heads)
        )
        return library.sl_linear_sized(
            self._handle, self._name(name), x, ctypes.byref(spec), ctypes.sizeof(spec)
        )

    def attention(self, name, qkv, heads):
        """Causal attention; `qkv` is the output of a linear with split="qkv"."""
        return library.sl_attention(self._handle, self._name(name), qkv, heads)

    def rotary(self, name, x, heads, context, base, scaling="plain", **numbers):
        """Rotary positions. `scaling`: plain, linear (`factor`), llama3 (`factor`,
        `low_frequency_factor`, `high_frequency_factor`, `original_context`)."""
        if scaling not in SCALINGS:
            raise ValueError(f"no scaling {scaling!r}; there are {', '.join(SCALINGS)}")
        spec = RotarySpec(heads, context, base, SCALINGS[scaling], **numbers)
        return library.sl_rotary_sized(
            self._handle, self._name(name), x, ctypes.byref(spec), ctypes.sizeof(spec)
        )

    def attend(self, name, q, k, v, heads, kv_heads=None):
        """Causal attention of `heads` heads of q that share `kv_heads` heads of k and v."""
        spec = AttentionSpec(heads, kv_heads or heads)
        return library.sl_attend_sized(
            self._handle,
            self._name(name),
            (Tensor * 3)(q, k, v),
            ctypes.byref(spec),
            ctypes.sizeof(spec),
        )

    def swiglu(self, name, gate, up):
        """gate / (1 + exp(-gate)) * up."""
        return library.sl_swiglu(self._handle, self._name(name), gate, up)

    def geglu(self, name, gate, up):
        """gelu(gate) * up, with GELU's tanh form."""
        return library.sl_geglu(self._handle, self._name(name), gate, up)

    def scale(self, name, x, factor):
        """x * factor."""
        return library.sl_scale(self._handle, self._name(name), x, factor)

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
