"""The C library: where it is found, its functions, and its log.

Functions, structs and enumerations are those of include/sluice/*.h. What they mean stands there.
"""

import ctypes
import ctypes.util
import glob
import json
import logging
import numbers
import os

SL_OK = 0
SL_LOG_WARNING = 1

ROWS = ctypes.CFUNCTYPE(
    ctypes.c_int,  # sl_status
    ctypes.c_void_p,  # user
    ctypes.c_uint64,  # first_row
    ctypes.c_uint32,  # row_count
    ctypes.c_uint32,  # token_count
    ctypes.POINTER(ctypes.c_int32),  # out_tokens
)
BUILD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)  # model, user
TEXT_SINK = ctypes.CFUNCTYPE(
    ctypes.c_int,  # sl_status
    ctypes.c_void_p,  # user
    ctypes.c_uint32,  # sample
    ctypes.c_void_p,  # bytes
    ctypes.c_uint64,  # byte_count
)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class StepResult(ctypes.Structure):
    """sl_step_result"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("step", ctypes.c_uint64),
        ("tokens", ctypes.c_uint64),
        ("tokens_total", ctypes.c_uint64),
        ("loss", ctypes.c_double),
        ("grad_norm", ctypes.c_double),
        ("learning_rate", ctypes.c_double),
        ("loss_scale", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("peak_bytes", ctypes.c_uint64 * 3),
        ("moved_bytes", ctypes.c_uint64 * 4),
        ("is_skipped", ctypes.c_int),
    ]


class TensorInfo(ctypes.Structure):
    """sl_tensor_info"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dim_count", ctypes.c_uint32),
        ("dims", ctypes.c_uint64 * 2),
        ("element_count", ctypes.c_uint64),
        ("is_trained", ctypes.c_int),
    ]


class TensorView(ctypes.Structure):
    """sl_tensor_view"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("elements", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("element_count", ctypes.c_uint64),
    ]


class OptionInfo(ctypes.Structure):
    """sl_option_info"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("initial", ctypes.c_char_p),
        ("values", ctypes.c_char_p),
        ("help", ctypes.c_char_p),
        ("is_list", ctypes.c_int),
    ]


class Tensor(ctypes.Structure):
    """sl_tensor: an activation of a model that is built"""

    _fields_ = [("index", ctypes.c_uint32)]


class Embedding(ctypes.Structure):
    """sl_embedding"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("ids", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("positions", ctypes.c_char_p),
        ("context", ctypes.c_uint64),
        ("deviation", ctypes.c_float),
    ]


class LinearSpec(ctypes.Structure):
    """sl_linear_spec"""

    _fields_ = [
        ("out", ctypes.c_uint64),
        ("parallel", ctypes.c_int),
        ("heads", ctypes.c_uint64),
        ("deviation", ctypes.c_float),
        ("no_bias", ctypes.c_uint64),
        ("column_heads", ctypes.c_uint64),
        ("shares_heads", ctypes.c_uint64),
    ]


class RmsSpec(ctypes.Structure):
    """sl_rms_spec"""

    _fields_ = [
        ("epsilon", ctypes.c_float),
        ("head", ctypes.c_uint64),
        ("weight_offset", ctypes.c_float),
    ]


class RotarySpec(ctypes.Structure):
    """sl_rotary_spec"""

    _fields_ = [
        ("heads", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("base", ctypes.c_double),
        ("scaling", ctypes.c_uint32),
        ("factor", ctypes.c_double),
        ("low_frequency_factor", ctypes.c_double),
        ("high_frequency_factor", ctypes.c_double),
        ("original_context", ctypes.c_uint64),
    ]


class AttentionSpec(ctypes.Structure):
    """sl_attention_spec"""

    _fields_ = [("heads", ctypes.c_uint64), ("kv_heads", ctypes.c_uint64)]


class PlannedBytes(ctypes.Structure):
    """sl_planned_bytes"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("peaks", ctypes.c_uint64 * 3),
        ("live_peaks", ctypes.c_uint64 * 3),
        ("budgets", ctypes.c_uint64 * 3),
        ("kinds", ctypes.c_uint64 * 3 * 8),
    ]


class Event(ctypes.Structure):
    """sl_event"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("step", ctypes.c_uint64),
        ("done", ctypes.c_uint64),
        ("total", ctypes.c_uint64),
        ("value", ctypes.c_double),
        ("text", ctypes.c_char_p),
    ]


EVENTS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))
HANDLE = ctypes.c_void_p
OUT_HANDLE = ctypes.POINTER(ctypes.c_void_p)
TEXT = ctypes.c_char_p
STATUS = ctypes.c_int
FLOATS = ctypes.POINTER(ctypes.c_float)
SETTINGS = ctypes.POINTER(ctypes.c_char_p)

# name: what it returns, what it takes
FUNCTIONS = {
    "sl_version_text": (TEXT, []),
    "sl_version_commit": (TEXT, []),
    "sl_status_message": (TEXT, []),
    "sl_status_set": (STATUS, [STATUS, TEXT]),
    "sl_status_exit_code": (ctypes.c_int, [STATUS]),
    "sl_log_set_callback": (None, [LOG, ctypes.c_void_p]),
    "sl_options_open": (STATUS, [OUT_HANDLE]),
    "sl_options_close": (None, [HANDLE]),
    "sl_options_set": (STATUS, [HANDLE, TEXT, TEXT]),
    "sl_options_unset": (STATUS, [HANDLE, TEXT]),
    "sl_options_add": (STATUS, [HANDLE, TEXT, TEXT]),
    "sl_options_read": (STATUS, [HANDLE, TEXT]),
    "sl_options_set_rows": (None, [HANDLE, ROWS, ctypes.c_void_p]),
    "sl_options_set_eval_rows": (None, [HANDLE, ROWS, ctypes.c_void_p, ctypes.c_uint64]),
    "sl_session_open": (STATUS, [HANDLE, OUT_HANDLE]),
    "sl_session_close": (STATUS, [HANDLE]),
    "sl_session_step": (STATUS, [HANDLE, ctypes.POINTER(StepResult)]),
    "sl_session_train": (STATUS, [HANDLE, ctypes.POINTER(TEXT)]),
    "sl_session_evaluate": (STATUS, [HANDLE, ctypes.POINTER(ctypes.c_double)]),
    "sl_session_save": (STATUS, [HANDLE]),
    "sl_session_stop": (None, [HANDLE]),
    "sl_session_tensor": (
        ctypes.c_int,
        [HANDLE, ctypes.c_uint32, ctypes.POINTER(TensorInfo)],
    ),
    "sl_session_read": (STATUS, [HANDLE, TEXT, ctypes.c_int, FLOATS, ctypes.c_uint64]),
    "sl_session_write": (STATUS, [HANDLE, TEXT, ctypes.c_int, FLOATS, ctypes.c_uint64]),
    "sl_session_view": (STATUS, [HANDLE, TEXT, ctypes.c_int, ctypes.POINTER(TensorView)]),
    "sl_session_account": (STATUS, [HANDLE, ctypes.POINTER(TEXT)]),
    "sl_session_plan": (STATUS, [HANDLE, OUT_HANDLE]),
    "sl_session_bytes": (STATUS, [HANDLE, ctypes.POINTER(PlannedBytes)]),
    "sl_plan_bytes": (STATUS, [HANDLE, ctypes.POINTER(PlannedBytes)]),
    "sl_profile": (STATUS, [HANDLE, ctypes.c_uint32, OUT_HANDLE]),
    "sl_evaluate": (STATUS, [SETTINGS, OUT_HANDLE]),
    "sl_session_generate": (STATUS, [HANDLE, SETTINGS, TEXT, TEXT_SINK, ctypes.c_void_p]),
    "sl_generate": (STATUS, [SETTINGS, TEXT, TEXT_SINK, ctypes.c_void_p]),
    "sl_options_at": (ctypes.c_int, [ctypes.c_uint32, ctypes.POINTER(OptionInfo)]),
    "sl_options_set_model": (None, [HANDLE, BUILD, ctypes.c_void_p]),
    "sl_block": (None, [HANDLE, TEXT, ctypes.c_uint32]),
    "sl_block_end": (None, [HANDLE]),
    "sl_embed_sized": (Tensor, [HANDLE, ctypes.POINTER(Embedding), ctypes.c_size_t]),
    "sl_norm": (Tensor, [HANDLE, TEXT, Tensor]),
    "sl_linear_sized": (
        Tensor,
        [HANDLE, TEXT, Tensor, ctypes.POINTER(LinearSpec), ctypes.c_size_t],
    ),
    "sl_attention": (Tensor, [HANDLE, TEXT, Tensor, ctypes.c_uint64]),
    "sl_rms_norm_sized": (
        Tensor,
        [HANDLE, TEXT, Tensor, ctypes.POINTER(RmsSpec), ctypes.c_size_t],
    ),
    "sl_rotary_sized": (
        Tensor,
        [HANDLE, TEXT, Tensor, ctypes.POINTER(RotarySpec), ctypes.c_size_t],
    ),
    "sl_attend_sized": (
        Tensor,
        [HANDLE, TEXT, ctypes.POINTER(Tensor), ctypes.POINTER(AttentionSpec), ctypes.c_size_t],
    ),
    "sl_swiglu": (Tensor, [HANDLE, TEXT, Tensor, Tensor]),
    "sl_geglu": (Tensor, [HANDLE, TEXT, Tensor, Tensor]),
    "sl_scale": (Tensor, [HANDLE, TEXT, Tensor, ctypes.c_float]),
    "sl_gelu": (Tensor, [HANDLE, TEXT, Tensor]),
    "sl_drop": (Tensor, [HANDLE, TEXT, Tensor]),
    "sl_drop_add": (Tensor, [HANDLE, TEXT, Tensor, Tensor]),
    "sl_head": (None, [HANDLE, TEXT, Tensor]),
    "sl_head_untied": (None, [HANDLE, TEXT, Tensor, ctypes.c_uint64, ctypes.c_float]),
    "sl_options_set_events": (None, [HANDLE, EVENTS, ctypes.c_void_p]),
    "sl_session_options": (TEXT, [HANDLE]),
}


def list_candidates():
    """Where the library may be, the first choice first."""
    given = os.environ.get("SLUICE_LIBRARY")
    if given:
        yield given
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield from sorted(glob.glob(os.path.join(here, "libsluice.so*")))
    yield "libsluice.so.0"
    found = ctypes.util.find_library("sluice")
    if found:
        yield found


def load():
    """The library, with the types of its functions, and its path or its bare name."""
    failures = []
    for path in list_candidates():
        try:
            library = ctypes.CDLL(path)
            for name, (returned, taken) in FUNCTIONS.items():
                function = getattr(library, name)
                function.restype = returned
                function.argtypes = taken
            return library, path
        except (OSError, AttributeError) as error:
            failures.append(f"  {path}: {error}")
    raise ImportError(
        "the library of sluice cannot be loaded; set SLUICE_LIBRARY to the path of libsluice.so\n"
        + "\n".join(failures)
    )


library, library_path = load()
version = library.sl_version_text().decode()
commit = library.sl_version_commit().decode()

logger = logging.getLogger("sluice")


def encode(value):
    """An option's value as on the command line."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, numbers.Real):
        return str(value).encode()
    text = os.fsencode(value)  # str, bytes or a path; also names of files that are not UTF-8
    if b"\0" in text:
        raise ValueError(f"a zero byte in {text!r}")
    return text


free = ctypes.CDLL(None).free
free.argtypes = [ctypes.c_void_p]
free.restype = None


def take_json(text):
    """What a JSON text that the library allocated says; frees it."""
    try:
        return json.loads(ctypes.string_at(text.value))
    finally:
        free(text)


@LOG
def pass_line(user, level, line):
    """One line of the library's log; from any thread of the library."""
    del user
    is_warning = level == SL_LOG_WARNING
    logger.log(
        logging.WARNING if is_warning else logging.INFO, "%s", line.decode("utf-8", "replace")
    )


library.sl_log_set_callback(pass_line, None)
