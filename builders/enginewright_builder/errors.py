"""Errors of the builder, each of one family: the user's to mend, transient, or ours.

* :class:`UserError`: bad spec, source or data. Exit code 2; the operator waits for a change.
* :class:`TransientError`: network, store, node. Exit code 3; the Job is tried again.
* anything else: a bug. Exit code 1, with the traceback in the log.
"""

from __future__ import annotations

import errno
import re

from enginewright_builder.contract import (
    EXIT_BUG,
    EXIT_OK,
    EXIT_TRANSIENT,
    EXIT_USER,
    ContractError,
    ErrorFamily,
    ErrorReport,
    Outcome,
    as_written,
)

EXIT_CODES: dict[ErrorFamily, int] = {"user": EXIT_USER, "transient": EXIT_TRANSIENT, "bug": EXIT_BUG}


class BuilderError(Exception):
    """An error with a reason (CamelCase, shown in a condition), the field it concerns, its value as users write it
    (None: no value), and the remedy."""

    family: ErrorFamily = "bug"
    exit_code = EXIT_BUG

    def __init__(self, reason: str, message: str, *, field: str = "", value: object = "", remedy: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.field, self.remedy = reason, message, field, remedy
        self.value = "" if value is None else as_written(value)

    def report(self) -> ErrorReport:
        return ErrorReport(family=self.family, reason=self.reason, message=self.message, field=self.field,
                           value=self.value, remedy=self.remedy)


class UserError(BuilderError):
    family: ErrorFamily = "user"
    exit_code = EXIT_USER


class TransientError(BuilderError):
    family: ErrorFamily = "transient"
    exit_code = EXIT_TRANSIENT


def classify(error: BaseException) -> BuilderError:
    """Any exception as one of the three families; what was not foreseen is a bug, with its own text."""
    if isinstance(error, BuilderError):
        return error
    if isinstance(error, ContractError):
        return UserError("RequestInvalid", str(error), field="request",
                         remedy="operator and builder must speak the same contract version: use images of one release")
    if isinstance(error, OSError):
        return _classify_os(error)
    if lacks_memory(error):
        return TransientError("OutOfMemory", f"the builder ran out of memory: {error or 'allocation failed'}",
                              remedy="give the build more memory, or lower spec.engine.maxBatchSize")
    if isinstance(error, KeyboardInterrupt):
        return TransientError("Interrupted", "the build was interrupted before it published anything")
    return BuilderError("InternalError", f"{type(error).__name__}: {error}")


def _classify_os(error: OSError) -> BuilderError:
    where = str(error.filename or "the store or the scratch volume")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError("StoreFull", f"no space left while writing {where}", field="spec.store.uri", value=where,
                         remedy="enlarge the volume or remove engines that are no longer used")
    if error.errno == errno.EROFS:
        return UserError("StoreReadOnly", f"{where} is on a read-only file system", field="spec.store.uri", value=where,
                         remedy="use a volume that the build pod may write to")
    if error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):
        return TransientError("StorageUnavailable", f"{where}: {error.strerror}")
    if error.errno == errno.ENOMEM:
        return TransientError("OutOfMemory", "the builder ran out of memory", remedy="give the build more memory")
    return BuilderError("InternalError", f"{type(error).__name__}: {error}")


# How PyTorch and C++ name the host's memory.
_HOST_ALLOCATORS = ("defaultcpuallocator", "bad_alloc", "can't allocate memory")


def lacks_memory(error: BaseException) -> bool:
    """PyTorch and ONNX Runtime report a failed allocation as plain ``RuntimeError`` or a binding's own class."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        mark in text for mark in ("can't allocate memory", "out of memory", "bad_alloc", "failed to allocate"))


def no_device_memory(error: BaseException) -> bool:
    """Whether an allocation failed that was not the host's: on a GPU, where others hold memory, too."""
    text = str(error).lower()
    ours = isinstance(error, MemoryError | OSError | BuilderError) or any(mark in text for mark in _HOST_ALLOCATORS)
    return lacks_memory(error) and not ours


def known_or(error: Exception, refusal: UserError) -> BuilderError:
    """``refusal``, which blames the model or its data, unless ``error`` says that these are not to blame: memory that
    is short, a full disk."""
    known = classify(error)
    return refusal if known.reason == "InternalError" else known


def exit_code(outcome: Outcome) -> int:
    """The process's exit status for this end: 0, or that of the error's family."""
    return EXIT_OK if outcome.error is None else EXIT_CODES[outcome.error.family]


def first_line(error: BaseException, most: int = 200) -> str:
    """What ``error`` says, as :func:`brief` does, without the stack traces that libraries put below it."""
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return _in_a_line(line, most) or type(error).__name__


def last_line(error: BaseException, most: int = 200) -> str:
    """What TorchScript says behind the stack of its own code."""
    line = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
    return _in_a_line(line, most) or type(error).__name__


def brief(error: BaseException, most: int = 300) -> str:
    """In one line of ``most`` characters, without a client's own data structures behind it, and without what addresses
    have of users and passwords. Of an error without a word it is the class."""
    return _in_a_line(str(error).partition("\n\nDebug source")[0], most) or type(error).__name__


# Of terminals, which PyTorch's exporter writes into its messages, and ONNX Runtime into its own.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


# Where in its source ONNX Runtime found what it says behind it: a file, a line, and a signature of C++.
_SIGNATURE = re.compile(r"/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[[^\]]*\])? ")


def _in_a_line(text: str, most: int) -> str:
    plain = _SIGNATURE.sub("", _COLOURS.sub("", text))
    return re.sub(r"//[^/@\s]*@", "//***@", " ".join(plain.split()))[:most]
