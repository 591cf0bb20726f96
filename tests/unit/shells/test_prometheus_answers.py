"""Queue depth out of Prometheus' answers; a real server is asked in tests/integration."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.clients.errors import TransientError
from enginewright.clients.prometheus import PrometheusClient, pending_query, read_pending
from enginewright.clients.signals import NoSignalError

AT = 1000.0


def series(pod: str, value: object, *, time: float | None = None, version: str = "1") -> list[dict[str, Any]]:
    """A value and, with ``time``, the mark that tells when it was sampled."""
    labels = {"pod": pod, "model": "m", "version": version}
    found: list[dict[str, Any]] = [{"metric": {"__name__": "nv", **labels}, "value": [AT, str(value)]}]
    if time is not None:
        found.append({"metric": {**labels, "enginewright_sample": "time"}, "value": [AT, str(time)]})
    return found


def test_fresh_values_are_summed_by_pod() -> None:
    answer = series("a", 3, time=999) + series("a", 4, time=995, version="2") + series("b", 1, time=1000)
    assert read_pending(answer, 10) == {"a": 7.0, "b": 1.0}


@pytest.mark.parametrize("answer", [series("a", 3, time=900), series("a", 3), series("a", "NaN", time=1000)])
def test_a_stale_undated_or_absent_value_is_left_out(answer: list[dict[str, Any]]) -> None:
    assert read_pending(answer, 10) == {}


@pytest.mark.parametrize(
    "answer", [[{}], [{"metric": {}, "value": [1, "1"]}], [{"metric": {"pod": "a"}, "value": [1]}]]
)
def test_an_unreadable_answer_is_no_signal(answer: list[dict[str, Any]]) -> None:
    with pytest.raises(NoSignalError):
        read_pending(answer, 10)


def test_query_quotes_what_it_is_given() -> None:
    query = pending_query('na"me', "minilm", 'cluster="eu-1"')
    wanted = 'namespace="na\\"me",pod=~"minilm-[0-9a-f]+-[a-z0-9]+-[a-z0-9]+",cluster="eu-1"'
    assert query.startswith(f"nv_inference_pending_request_count{{{wanted}}} or label_replace(timestamp(")


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with PrometheusClient() as client:
        with pytest.raises(TransientError):
            await client.pending(f"http://127.0.0.1:{unused_tcp_port}", "ns", "m")
