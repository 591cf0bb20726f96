"""When work that comes round is due again."""

from __future__ import annotations

import asyncio

import pytest

from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.reconcile.rounds import rounds

LATER = TransientError("busy", call="list pods", retry_after=7.0)
SOON = TransientError("cut off", call="list pods")
REFUSED = RefusedError("forbidden", call="list pods", status=403)


def waits(monkeypatch: pytest.MonkeyPatch, *ends: ClientError | float) -> list[float]:
    """Seconds between rounds that end with ``ends``; without chance each wait is the longest of its range."""
    waited: list[float] = []
    failed: list[tuple[ClientError, float]] = []
    left = iter(ends)

    async def once() -> float:
        if isinstance(end := next(left), ClientError):
            raise end
        return end

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == len(ends):
            raise asyncio.CancelledError

    monkeypatch.setattr("enginewright.reconcile.rounds.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rounds(once, lambda error, wait: failed.append((error, wait)), lambda: 1.0))
    assert failed == [(end, wait) for end, wait in zip(ends, waited, strict=True) if isinstance(end, ClientError)]
    return waited


def test_after_a_round_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, 30.0, 300.0) == [30.0, 300.0]


def test_after_failures_at_growing_distances_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _, again = waits(monkeypatch, SOON, REFUSED, 300.0, SOON)
    assert first == again < second


def test_not_before_the_apiserver_wants_to_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, LATER) == [7.0]
