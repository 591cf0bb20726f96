"""What replicas count beside Triton's own metrics (``pod/python_model/model.py``), on the same page. Pure."""

from __future__ import annotations

import re

POSITIONS, PADDING = "enginewright_positions_total", "enginewright_padding_positions_total"
TOKENISING, TOKENISED = "enginewright_tokenising_seconds_total", "enginewright_tokenised_requests_total"
FAILED = "enginewright_failed_requests_total"


def total(page: str, name: str) -> float:
    """Since the server began, of all its models; 0 where nothing is counted."""
    return sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE)))


def tokenising_ms(before: str, after: str) -> float | None:
    """Mean milliseconds that a request waited for the tokenizer between two readings of the page; None where none
    did."""
    requests = total(after, TOKENISED) - total(before, TOKENISED)
    return (total(after, TOKENISING) - total(before, TOKENISING)) / requests * 1e3 if requests else None
