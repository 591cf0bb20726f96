"""What tests of the shells share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """The operator takes over the process's logging."""
    root, kopf = logging.getLogger(), logging.getLogger("kopf")
    before = (root.handlers[:], root.level, kopf.level)
    yield
    root.handlers[:], level, kopf_level = before
    root.setLevel(level)
    kopf.setLevel(kopf_level)
    structlog.reset_defaults()
