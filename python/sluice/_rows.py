"""Rows of tokens from a Python function: sl_rows of include/sluice/options.h.

The library calls from a thread of its own; ctypes takes the interpreter's lock for the call. An
exception cannot pass through C: it is kept here, and the session raises it again from the call that
failed.
"""

import array
import ctypes
import functools
import itertools
import threading

from ._errors import SL_ERROR_DATA
from ._library import ROWS, SL_OK, library

INT32_MAX = 2**31 - 1


@functools.lru_cache(maxsize=None)
def find_numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def copy_array(numpy, rows, shape, out_tokens):
    rows = numpy.asarray(rows)
    if rows.shape != shape:
        raise ValueError(f"rows of shape {rows.shape} were returned, not {shape}")
    if rows.dtype.kind not in "iu":
        raise TypeError(f"rows of type {rows.dtype} were returned, not of integers")
    if rows.min() < 0 or rows.max() > INT32_MAX:
        raise ValueError("a token is no id: below 0, or above 2147483647")
    numpy.copyto(numpy.ctypeslib.as_array(out_tokens, shape), rows, casting="unsafe")


def copy_lists(rows, shape, out_tokens):
    rows = [list(row) for row in rows]
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        raise ValueError(f"rows of lengths {[len(row) for row in rows]} were returned, not {shape}")
    tokens = array.array("i", itertools.chain.from_iterable(rows))
    ctypes.memmove(out_tokens, tokens.buffer_info()[0], len(tokens) * tokens.itemsize)


def copy_rows(rows, shape, out_tokens):
    """Writes rows that a function returned, of shape [row_count, token_count], to C's memory."""
    numpy = find_numpy()
    if numpy:
        copy_array(numpy, rows, shape, out_tokens)
    else:
        copy_lists(rows, shape, out_tokens)


class Rows:
    """A Python function in the shape of C's. It must live as long as the session."""

    def __init__(self, function):
        self._function = function
        self._exception = None
        self._thread = None  # of the call under way
        self.callback = ROWS(self._call)

    def _call(self, user, first_row, row_count, token_count, out_tokens):
        del user
        self._thread = threading.get_ident()
        try:
            rows = self._function(first_row, row_count, token_count)
            copy_rows(rows, (row_count, token_count), out_tokens)
            return SL_OK
        except BaseException as exception:  # C has no other way to learn of it
            self._exception = exception
            message = f"{type(exception).__name__}: {exception}"
            return library.sl_status_set(SL_ERROR_DATA, message.encode("utf-8", "replace"))
        finally:
            self._thread = None

    def is_calling_thread(self):
        """Whether this thread is inside a call of the function."""
        return self._thread == threading.get_ident()

    def take_exception(self):
        """The exception of the last call that failed, once."""
        exception, self._exception = self._exception, None
        return exception
