"""TensorRT's builder, kept from one build of a climb to the next where the GPU has room for it.

Making one loads its library of kernels: 4.4 of the 7.2 seconds that a rebuild with all timings at hand takes, and
1.3 GB of the GPU's memory (H200, TensorRT 10.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from enginewright_builder.engines.base import Shelf
from enginewright_builder.engines.trt_device import Gpu

# Of a device's memory, what the builder may hold while candidates are timed beside it: less than any of them needs.
_HELD_SHARE = 0.05
_NAME = "tensorrt-builder"


@dataclass(frozen=True)
class Tool:
    """A builder, and the logger that keeps its errors in ``errors``, which is empty at the start of a build."""

    builder: Any
    log: Any


def tool(trt: Any, shelf: Shelf | None, before: Gpu, now: Callable[[], Gpu]) -> Tool:
    """The one on the shelf, or a new one, put there if it takes little of the memory that was free ``before``.

    Raises :class:`NoBuilderError`: the constructor itself takes memory of the GPU, and where there is none left the
    bindings raise ``TypeError``.
    """
    held: Tool | None = shelf.get(_NAME) if shelf is not None else None
    if held is not None:
        held.log.errors.clear()
        return held
    log = error_log(trt)
    trt.init_libnvinfer_plugins(log, "")
    try:
        made = Tool(trt.Builder(log), log)
    except TypeError as error:
        raise NoBuilderError(log.errors) from error
    if shelf is not None and before.free_bytes - now().free_bytes <= _HELD_SHARE * before.memory_bytes:
        shelf.put(_NAME, made)
    return made


class NoBuilderError(Exception):
    """TensorRT's builder could not be made; ``errors`` is what TensorRT said."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


def error_log(trt: Any) -> Any:
    """TensorRT's logger that keeps errors for messages."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()
