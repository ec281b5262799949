"""sluice: trains models whose states are larger than the memory that you have.

    import sluice

    with sluice.Session(model="gpt2", data="book.txt", policy="host") as session:
        print(session.step().loss)

A layer over the C library by ctypes, without a compiler. python/README.md explains every call,
include/sluice/*.h the C functions behind them. numpy is needed only to read and write tensors.
"""

from ._errors import (
    DataError,
    Error,
    FitError,
    MissingError,
    NonfiniteError,
    StoppedError,
    UsageError,
)
from ._generate import evaluate, generate
from ._library import commit, version as __version__
from ._model import Model
from ._session import (
    Event,
    Moves,
    Option,
    PlannedBytes,
    Session,
    Step,
    Tensor,
    Tiers,
    list_options,
    plan,
    plan_bytes,
    profile,
    widen_bf16,
)

__all__ = [
    "DataError",
    "Error",
    "Event",
    "FitError",
    "MissingError",
    "Model",
    "Moves",
    "NonfiniteError",
    "Option",
    "PlannedBytes",
    "Session",
    "Step",
    "StoppedError",
    "Tensor",
    "Tiers",
    "UsageError",
    "commit",
    "evaluate",
    "generate",
    "list_options",
    "plan",
    "plan_bytes",
    "profile",
    "widen_bf16",
]
