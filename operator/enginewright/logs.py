"""Structured logs: one JSON object a line, for our own code and for the libraries'."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from enginewright import tracing


def _trace(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Whose trace the line belongs to, while one is recorded."""
    line.update(tracing.identity())
    return line


_OURS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    _trace,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def set_up(level: str, stream: TextIO | None = None) -> None:
    """``level`` as ``logging`` names it (``INFO``). Logs go to standard error, or to ``stream``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_OURS, structlog.stdlib.ExtraAdder(allow=())],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.dict_tracebacks,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kopf says a line for each event that it hands us; the passes say what came of it.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(max(logging.getLevelName(level), logging.INFO))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_OURS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
