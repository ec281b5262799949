"""Sessions: options in, a trained model out. Over include/sluice/options.h and session.h.

A session lives until close(), the end of its `with` block or the end of the process, whichever
comes first. It is not closed when the last reference to it is gone: the garbage collector may run
on any thread, also on one that close() waits for.
"""

import atexit
import contextlib
import ctypes
import json
import logging
import os
import threading
import weakref
from typing import Dict, NamedTuple, Optional, Tuple

from . import _library
from ._errors import SL_ERROR_DATA, SL_ERROR_USAGE, Error, check, make_error
from ._generate import run as run_generation
from ._library import (
    SL_OK,
    OptionInfo,
    StepResult,
    TensorInfo,
    TensorView,
    encode,
    library,
    take_json,
)
from ._model import Build
from ._rows import Rows

logger = logging.getLogger("sluice")

STATES = {"parameter": 0, "moment1": 1, "moment2": 2}


class Tiers(NamedTuple):
    """Bytes in each tier."""

    device: int
    host: int
    disk: int


class Moves(NamedTuple):
    """Bytes that moved between tiers."""

    host_to_device: int
    device_to_host: int
    disk_read: int
    disk_written: int


class Step(NamedTuple):
    """What one step did."""

    step: int  # from 1; a resumed session goes on from its checkpoint
    tokens: int  # of this step, on all ranks
    tokens_total: int  # since step 1
    loss: float  # mean over the tokens, before the update
    grad_norm: float  # before clipping
    learning_rate: float
    loss_scale: float  # 1 where there is none
    seconds: float
    peak_bytes: Tiers  # measured so far
    moved_bytes: Moves  # of this step
    is_skipped: bool  # gradients were not finite, and nothing was updated


class PlannedBytes(NamedTuple):
    """The bytes of a plan."""

    peaks: Tiers  # what a session takes, to the byte
    live_peaks: Tiers  # most bytes in use at one moment of it
    budgets: Tiers  # what it may take; None: no limit
    kinds: Dict[str, Tiers]  # of BYTE_KINDS, at the moment of a step with most bytes in use


BYTE_KINDS = (
    "parameters",
    "gradients",
    "masters",
    "moment1",
    "moment2",
    "activations",
    "workspace",
    "staging",
)


def take_bytes(found):
    limits = [None if budget == 2**64 - 1 else budget for budget in found.budgets]
    return PlannedBytes(
        Tiers(*found.peaks),
        Tiers(*found.live_peaks),
        Tiers(*limits),
        {kind: Tiers(*tiers) for kind, tiers in zip(BYTE_KINDS, found.kinds)},
    )


class Tensor(NamedTuple):
    """A tensor of the model, as checkpoints have it."""

    name: str
    shape: Tuple[int, ...]
    element_count: int
    is_trained: bool  # False: "freeze"


# ---- options


def set_option(handle, name, value):
    name = name.encode()
    if value is None:
        check(library.sl_options_unset(handle, name))
        return
    if not isinstance(value, (list, tuple)):
        check(library.sl_options_set(handle, name, encode(value)))
        return
    check(library.sl_options_set(handle, name, b""))
    for item in value:
        check(library.sl_options_add(handle, name, encode(item)))


def set_options(handle, options):
    """The configuration file first: options beside it overrule it, as on the command line."""
    config = options.pop("config", None)
    if config is not None:
        check(library.sl_options_read(handle, os.fsencode(config)))
    for name, value in options.items():
        set_option(handle, name, value)


@contextlib.contextmanager
def open_options(options):
    handle = ctypes.c_void_p()
    check(library.sl_options_open(ctypes.byref(handle)))
    try:
        set_options(handle, options)
        yield handle
    finally:
        library.sl_options_close(handle)


class Event(NamedTuple):
    """What happens in a call of a session."""

    kind: str  # one of EVENT_KINDS
    step: int  # the last one that is done
    done: int  # of `total`: micro-batches of a step that have begun, tokens that are evaluated
    total: int
    value: float  # the loss of a step; of an evaluation, so far or of all
    text: str = ""  # of a sample: what the model wrote behind "sample_prompt"


EVENT_KINDS = ("in step", "step", "in evaluation", "evaluation", "saving", "saved", "sample")


class Events:
    """A Python function in the shape of C's. An exception is raised again by the call."""

    def __init__(self, function):
        self._function = function
        self._exception = None
        self.callback = _library.EVENTS(self._call)

    def _call(self, user, event):
        del user
        it = event.contents
        try:
            kind = EVENT_KINDS[it.kind] if it.kind < len(EVENT_KINDS) else str(it.kind)
            text = it.text.decode() if it.text else ""
            self._function(Event(kind, it.step, it.done, it.total, it.value, text))
        except BaseException as exception:  # C has no other way to learn of it
            self._exception = self._exception or exception

    def take_exception(self):
        exception, self._exception = self._exception, None
        return exception


class Option(NamedTuple):
    """An option of `sluice train`."""

    name: str
    default: Optional[str]  # None: there is none, or it follows from other options
    values: Optional[str]  # what it takes; None: a flag
    help: str
    is_list: bool


def list_options():
    """All options of a Session, in the order of `sluice train --help-all`."""
    info = OptionInfo(size=ctypes.sizeof(OptionInfo))
    options = []
    while library.sl_options_at(len(options), ctypes.byref(info)):
        texts = [text.decode() if text else None for text in (info.name, info.initial, info.values)]
        options.append(Option(*texts, info.help.decode(), bool(info.is_list)))
    return options


def plan(options=None, *, build=None, **more):
    """The account of the session that these options would open, as a dict. Takes no memory for the
    model. FitError: it does not fit; the message says what would."""
    return take_account(library.sl_session_plan, {**(options or {}), **more}, build)


def profile(options=None, *, steps=3, build=None, **more):
    """Runs `steps` steps of these options with everything measured, as `sluice profile`: where
    memory and time went, as a dict. Without data tokens are random; nothing is saved."""
    return take_account(library.sl_profile, {**(options or {}), **more}, build, steps)


def plan_bytes(options=None, *, build=None, **more):
    """The planned bytes of the session that these options would open, by tier and by what they are
    for (PlannedBytes). As plan(), and as quick."""
    found = _library.PlannedBytes(size=ctypes.sizeof(_library.PlannedBytes))
    call(library.sl_plan_bytes, {**(options or {}), **more}, build, ctypes.byref(found))
    return take_bytes(found)


def take_account(function, options, build, *arguments):
    text = ctypes.c_void_p()
    call(function, options, build, *arguments, ctypes.byref(text))
    return take_json(text)


def call(function, options, build, *arguments):
    """A function of the library that takes options first."""
    built = Build(build) if build is not None else None
    with open_options(options) as handle:
        if built:
            library.sl_options_set_model(handle, built.callback, None)
        check(function(handle, *arguments))


# ---- sessions

open_sessions = set()
borrowed_for_ever = []  # rows of sessions whose threads did not end


VIEW_TYPES = ("<f4", "<u2", "<f2")  # by sl_element_type


class Memory:
    """Memory of a session for numpy, which keeps this object as long as an array uses it."""

    def __init__(self, address, type_text, shape, is_of):
        self.is_of = is_of  # name and state
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),  # read-only
            "typestr": type_text,
            "shape": shape,
        }


def widen_bf16(bits):
    """A new array of float32 from the bits of bf16, as Session.view() shows them."""
    import numpy

    return (numpy.asarray(bits, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


class Session:
    """A model in training.

    `options` (a dict) and keywords are the options of `sluice train`, with "_" or "-" in their
    names: str, int, float, bool, a path, a list of these, or None for the default, also
    where the file that "config" names has another value.

    `rows(first_row, row_count, token_count)` returns training rows instead of "data": integers of
    shape [row_count, token_count]. The same row must always be the same tokens. `eval_rows` is the
    same for evaluate(), for rows 0 to `eval_row_count` - 1. Both are called on a thread of the
    library, one call at a time, and must not call this session.

    `build(model)` describes a model of your own by layers (sluice.Model).

    `on_event(event)` hears of steps, evaluations and saves, and how far each has come (Event), in
    the call that makes them. It may call stop(). If it raises, the call raises the same when it is
    complete.

    Calls of several threads wait for each other, except stop().
    """

    # No other attribute can be set: `session.lr = 1e-4` would look like a change of the option.
    __slots__ = (
        "_calls",
        "_handles",
        "_handle",
        "_rows",
        "_eval_rows",
        "_events",
        "_build",
        "_views",
        "_tensors",
        "__weakref__",
    )

    def __init__(
        self,
        options=None,
        *,
        rows=None,
        eval_rows=None,
        eval_row_count=0,
        build=None,
        on_event=None,
        **more,
    ):
        self._calls = threading.RLock()  # held during each call but stop()
        self._handles = threading.RLock()  # held while _handle is used by stop(), or taken away
        self._handle = None
        self._rows = Rows(rows) if rows is not None else None
        self._eval_rows = Rows(eval_rows) if eval_rows is not None else None
        self._events = Events(on_event) if on_event is not None else None
        self._build = Build(build) if build is not None else None
        self._views = weakref.WeakSet()  # Memory of view() that an array uses
        self._open({**(options or {}), **more}, eval_row_count)
        open_sessions.add(self)
        self._tensors = {tensor.name: tensor for tensor in self._list_tensors()}

    def _open(self, options, eval_row_count):
        session = ctypes.c_void_p()
        with open_options(options) as handle:
            if self._events:
                library.sl_options_set_events(handle, self._events.callback, None)
            if self._build:
                library.sl_options_set_model(handle, self._build.callback, None)
            if self._rows:
                library.sl_options_set_rows(handle, self._rows.callback, None)
            if self._eval_rows:
                library.sl_options_set_eval_rows(
                    handle, self._eval_rows.callback, None, eval_row_count
                )
            self._check(library.sl_session_open(handle, ctypes.byref(session)))
            self._handle = session

    def _list_sources(self):
        return [source for source in (self._rows, self._eval_rows, self._build) if source]

    def _check(self, status):
        """Raises what a status means; where a function of the caller failed, its own exception."""
        if status == SL_OK:
            return
        error = make_error(status)
        exceptions = [source.take_exception() for source in self._list_sources()]
        for exception in exceptions:
            if exception is not None and status in (SL_ERROR_DATA, SL_ERROR_USAGE):
                raise exception
        raise error

    def _check_thread(self):
        if any(source.is_calling_thread() for source in self._list_sources()):
            raise make_error(SL_ERROR_USAGE, "a function for rows must not call its session")

    def _ask(self, function, *arguments):
        """What a function of the library returns; calls of other threads wait."""
        self._check_thread()
        with self._calls:
            if self._handle is None:
                raise make_error(SL_ERROR_USAGE, "the session is closed")
            return function(self._handle, *arguments)

    def _call(self, function, *arguments):
        """The same of a function that returns a status."""
        self._check(self._ask(function, *arguments))
        exception = self._events.take_exception() if self._events else None
        if exception is not None:
            raise exception

    # ---- training

    def step(self):
        """Trains one step and returns a Step. StoppedError: stop() was called, no step was made."""
        result = StepResult(size=ctypes.sizeof(StepResult))
        self._call(library.sl_session_step, ctypes.byref(result))
        self._settle_views()
        return Step(
            step=result.step,
            tokens=result.tokens,
            tokens_total=result.tokens_total,
            loss=result.loss,
            grad_norm=result.grad_norm,
            learning_rate=result.learning_rate,
            loss_scale=result.loss_scale,
            seconds=result.seconds,
            peak_bytes=Tiers(*result.peak_bytes),
            moved_bytes=Moves(*result.moved_bytes),
            is_skipped=bool(result.is_skipped),
        )

    def train(self):
        """Trains to "steps" as `sluice train`: with save_every, save_minutes, eval_every, keep_best,
        patience and sample_every. Returns what ended it: "done", "patience", or "signal" after
        stop()."""
        reason = ctypes.c_char_p()
        self._call(library.sl_session_train, ctypes.byref(reason))
        self._settle_views()
        return reason.value.decode()

    def evaluate(self):
        """The mean loss of a token over "eval-data", the validation share of "split", or
        `eval_rows`."""
        loss = ctypes.c_double()
        self._call(library.sl_session_evaluate, ctypes.byref(loss))
        return loss.value

    def save(self):
        """Writes a checkpoint under "save", whole or not at all."""
        self._call(library.sl_session_save)

    def generate(self, prompt, *, on_text=None, **options):
        """What the model says behind `prompt`, as it is now; a list with samples=2 or more.

        Options are those of `sluice generate`, such as tokens=100, temperature=0.8, seed=1. Takes
        memory for a copy of the parameters. `on_text(sample, text)` is called with each piece."""

        def call(*arguments):
            return self._ask(library.sl_session_generate, *arguments)

        return run_generation(call, prompt, on_text, options)

    def stop(self):
        """Asks the session to stop, from any thread: the call under way ends with its step, and no
        further one begins. Does not wait."""
        with self._handles:
            if self._handle is not None:
                library.sl_session_stop(self._handle)

    # ---- tensors

    def _list_tensors(self):
        info = TensorInfo(size=ctypes.sizeof(TensorInfo))
        tensors = []
        while self._ask(library.sl_session_tensor, len(tensors), ctypes.byref(info)):
            shape = tuple(info.dims[: info.dim_count])
            tensors.append(
                Tensor(info.name.decode(), shape, info.element_count, bool(info.is_trained))
            )
        return tensors

    def tensors(self):
        """A Tensor for each tensor of the model, in the order of names."""
        return list(self._tensors.values())

    def names(self):
        """The names of the tensors."""
        return list(self._tensors)

    def _find(self, name, state):
        if name not in self._tensors:
            raise make_error(SL_ERROR_USAGE, f"the model has no tensor {name!r}; see names()")
        if state not in STATES:
            raise make_error(SL_ERROR_USAGE, f"no state {state!r}; there are {', '.join(STATES)}")
        return self._tensors[name], STATES[state]

    def read(self, name, state="parameter"):
        """A tensor as a new numpy array of float32: its "parameter", or AdamW's "moment1" or
        "moment2". The elements are copied once."""
        import numpy

        tensor, state_index = self._find(name, state)
        elements = numpy.empty(tensor.shape, numpy.float32)
        pointer = elements.ctypes.data_as(_library.FLOATS)
        self._call(
            library.sl_session_read, name.encode(), state_index, pointer, tensor.element_count
        )
        return elements

    def write(self, name, array, state="parameter"):
        """The other way: copies an array of the tensor's shape into the tensor."""
        import numpy

        tensor, state_index = self._find(name, state)
        elements = numpy.ascontiguousarray(array, numpy.float32)
        if elements.shape != tensor.shape:
            raise make_error(
                SL_ERROR_USAGE, f"{name} has the shape {tensor.shape}, not {elements.shape}"
            )
        pointer = elements.ctypes.data_as(_library.FLOATS)
        self._call(
            library.sl_session_write, name.encode(), state_index, pointer, tensor.element_count
        )

    def view(self, name, state="parameter"):
        """A tensor as a read-only numpy array over the session's own memory: nothing is copied.

        float32; of a frozen tensor in half precision float16, or uint16 with the bits of bf16, which
        widen_bf16() makes numbers of. Each step changes its elements, and returns when all updates are
        made; without views some may still be under way. UsageError: the tensor does not lie in memory
        in one piece, but on disk, on a GPU, in several parts or spread over ranks; read() copies it.
        While a view is in use, close() raises UsageError.
        """
        import numpy

        tensor, state_index = self._find(name, state)
        view = TensorView(size=ctypes.sizeof(TensorView))
        self._check_thread()
        with self._calls:  # no other thread closes the session in between
            self._call(library.sl_session_view, name.encode(), state_index, ctypes.byref(view))
            is_of = name.encode(), state_index
            memory = Memory(view.elements, VIEW_TYPES[view.type], tensor.shape, is_of)
            self._views.add(memory)
        return numpy.asarray(memory)

    def _settle_views(self):
        """Waits for the updates of a step if an array shows what they change."""
        with self._calls:
            for memory in list(self._views)[:1]:
                view = TensorView(size=ctypes.sizeof(TensorView))
                self._call(library.sl_session_view, *memory.is_of, ctypes.byref(view))

    # ---- what the session says of itself

    @property
    def account(self):
        """The plan of the session, as `sluice plan --json` prints it."""
        text = ctypes.c_char_p()
        self._call(library.sl_session_account, ctypes.byref(text))
        return json.loads(text.value)

    @property
    def planned_bytes(self):
        """The bytes of the session's plan, by tier and by what they are for (PlannedBytes)."""
        found = _library.PlannedBytes(size=ctypes.sizeof(_library.PlannedBytes))
        self._call(library.sl_session_bytes, ctypes.byref(found))
        return take_bytes(found)

    @property
    def options(self):
        """The options of the session, all of them resolved, as checkpoints record them."""
        return json.loads(self._ask(library.sl_session_options))

    # ---- the end

    def close(self):
        """Ends what runs and frees all memory. What was not saved is gone. A second call does
        nothing. UsageError: an array of view() is in use; the session stays open."""
        self._close(frees_views=False)

    def _close(self, frees_views):
        if any(source.is_calling_thread() for source in self._list_sources()):
            raise make_error(SL_ERROR_USAGE, "a function for rows must not close its session")
        with self._calls:
            if self._views and not frees_views:
                raise make_error(
                    SL_ERROR_USAGE,
                    f"views of tensors are in use ({len(self._views)}): delete them, then close",
                )
            with self._handles:
                handle, self._handle = self._handle, None
                open_sessions.discard(self)
            if handle is None:
                return
            status = library.sl_session_close(handle)
            if status != SL_OK:
                borrowed_for_ever.append(self._list_sources())
            self._check(status)

    def __enter__(self):
        return self

    def __exit__(self, kind, exception, traceback):
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except Error as error:  # the block's own exception is the one to tell
            logger.warning("the session did not close well: %s", error)


@atexit.register
def close_all():
    """No thread of the library may call Python when the interpreter is gone."""
    for session in list(open_sessions):
        session.stop()
        try:
            session._close(frees_views=True)
        except Exception as error:
            logger.warning("a session did not close well: %s", error)
    library.sl_log_set_callback(_library.LOG(), None)
