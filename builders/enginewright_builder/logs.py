"""Logs that people read on a terminal, and that quote what files and other programs say."""

from __future__ import annotations

import logging
import sys

from enginewright_builder.contract import printable


class PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_to_stderr(level: int, form: str = "%(message)s") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
