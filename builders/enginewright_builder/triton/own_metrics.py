"""What replicas count beside Triton's own metrics (``pod/python_model/model.py``), on the same page. Pure."""

from __future__ import annotations

import re

POSITIONS, PADDING = "enginewright_positions_total", "enginewright_padding_positions_total"
TOKENISING, TOKENISED = "enginewright_tokenising_seconds_total", "enginewright_tokenised_requests_total"
PREPROCESSING, POSTPROCESSING = "enginewright_preprocessing_seconds_total", "enginewright_postprocessing_seconds_total"
STEPPED = "enginewright_python_steps_requests_total"
FAILED = "enginewright_failed_requests_total"
# Seconds between two reports of a replica, and a margin (``Tally`` in ``model.py``).
REPORTED_AFTER = 0.25


def total(page: str, name: str) -> float:
    """Since the server began, of all its models; 0 where nothing is counted."""
    return sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE)))


def waited_ms(before: str, after: str) -> tuple[float | None, float | None]:
    """Mean milliseconds that a request waited between two readings of the page for what makes the engine's inputs, the
    tokenizer or a function of the user's own, and for what makes answers of its outputs; None where none did."""
    texts = _mean(before, after, TOKENISING, TOKENISED)
    first, last = (_mean(before, after, name, STEPPED) for name in (PREPROCESSING, POSTPROCESSING))
    known = [one for one in (texts, first) if one is not None]
    return sum(known) if known else None, last


def held_back(before: str, after: str) -> bool:
    """Whether a replica that counts requests for :func:`waited_ms` told of none between two readings: it does a few
    times a second, with the next request."""
    return any(f"{name}{{" in after and total(after, name) == total(before, name) for name in (TOKENISED, STEPPED))


def _mean(before: str, after: str, seconds: str, counted: str) -> float | None:
    """Of a replica that has no such function the seconds stay 0."""
    requests, waited = (total(after, name) - total(before, name) for name in (counted, seconds))
    return waited / requests * 1e3 if requests and waited else None
