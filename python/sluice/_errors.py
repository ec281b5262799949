"""Failures of the library as exceptions: a class for each status that callers may want to catch."""

from ._library import SL_OK, library

SL_ERROR_DATA = -2
SL_ERROR_USAGE = -1


class Error(Exception):
    """A call of the library failed. `status` is its sl_status, `exit_code` what the command would
    end with."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.exit_code = library.sl_status_exit_code(status)

    def __reduce__(self):
        return type(self), (self.status, str(self))


class UsageError(Error):
    """A wrong option, name or argument."""


class DataError(Error):
    """An input file breaks its format, or tokens are no ids of the model."""


class MissingError(Error):
    """An input file is not there."""


class FitError(Error):
    """The run does not fit its budgets; the message says what would."""


class NonfiniteError(Error):
    """A loss, gradient or weight is not finite."""


class StoppedError(Error):
    """stop() was called; nothing is lost."""


CLASSES = {
    SL_ERROR_USAGE: UsageError,
    SL_ERROR_DATA: DataError,
    -3: MissingError,
    -4: FitError,
    -9: NonfiniteError,
    -10: StoppedError,
    -11: DataError,  # a damaged checkpoint
}


def make_error(status, message=None):
    """The exception of a status; without a message, that of this thread's last failure."""
    if message is None:
        message = library.sl_status_message().decode("utf-8", "replace")
    return CLASSES.get(status, Error)(status, message)


def check(status):
    if status != SL_OK:
        raise make_error(status)
