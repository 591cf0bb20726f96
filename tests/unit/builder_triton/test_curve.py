"""How long a request takes that finds the replica idle, on a Triton that counts requests after it has answered them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from enginewright_builder.contract import ServingChoice
from enginewright_builder.load import Call, Recorder, Request
from enginewright_builder.sweep import curve
from enginewright_builder.sweep.result import ServicePoint
from enginewright_builder.tensors import Steps, Tensors

SAMPLE = {"x": np.zeros((1, 2), np.float32)}
# What an instance takes of a latency, under load and alone.
LOADED, ALONE = 0.5, 0.75
# Samples in each run of an instance.
RUN = 2


class Triton:
    """A clock of its own; each reading has what was answered before the reading before it. With ``deaf`` requests that
    come alone are never counted. Until ``busy`` other work makes all take ten times as long; ``batches`` are those that
    were asked for in closed loops."""

    grpc_url = ""

    def __init__(self, latency: float, *, deaf: bool = False, busy: float = 0.0) -> None:
        self.usual, self.deaf, self.busy = latency, deaf, busy
        self.batches: list[int] = []
        self.flying: list[int] = []
        self.now = self.loaded = 0.0
        self.alone: list[float] = []
        self._answered = self._seen = (0, 0.0)

    @property
    def latency(self) -> float:
        return self.usual * (10 if self.now < self.busy else 1)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def statistics(self, model: str) -> dict[str, Any]:
        (count, seconds), self._seen = self._seen, self._answered
        none = {"count": count, "ns": 0}
        run = {"compute_input": none, "compute_output": none, "compute_infer": {"count": count // RUN,
                                                                             "ns": round(seconds * 1e9 / RUN)}}
        return {"inference_stats": {"queue": none, "compute_input": none, "compute_output": none,
                                    "compute_infer": {"count": count, "ns": round(seconds * 1e9)}},
                "inference_count": count, "batch_stats": [run]}

    async def closed_loop(self, channels: object, requests: list[Request], *, concurrency: int, seconds: float,
                          timeout: float, max_requests: int = 0) -> Any:  # noqa: ASYNC109
        recorder = Recorder()
        recorder.begin = self.now
        latency = self.latency
        for _ in range(max_requests or max(1, int(seconds / latency))):
            recorder.add(Call(self.now, self.now + latency, 1))
            self.now += latency
        if max_requests:
            self.alone.append(self.now)
        else:
            self.loaded = self.now
            self.flying += [concurrency] * (concurrency not in self.flying[-1:])
            self.batches += [requests[0].batch] * (requests[0].batch not in self.batches[-1:])
        if not (max_requests and self.deaf):
            count = len(recorder.calls)
            share = ALONE if max_requests else LOADED
            self._answered = (self._answered[0] + count, self._answered[1] + count * share * latency)
        return recorder.result("closed", self.now)


class Open:
    def __init__(self, *_: object, **__: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def measured(triton: Triton, monkeypatch: pytest.MonkeyPatch, *, most: int = 0, seconds: float = 1,
                   shown: float = 0.0, sample: Tensors = SAMPLE) -> curve.Curve:
    monkeypatch.setattr(curve, "time", SimpleNamespace(monotonic=triton.monotonic))
    monkeypatch.setattr(curve, "asyncio", SimpleNamespace(sleep=triton.sleep))
    monkeypatch.setattr(curve, "closed_loop", triton.closed_loop)
    monkeypatch.setattr(curve, "Channels", Open)
    return await curve.service_curve(triton, "m", sample, ServingChoice(max_batch_size=most), seconds=seconds,  # type: ignore[arg-type]
                                     each=curve.CURVE_SECONDS, shown=shown)


@pytest.mark.parametrize("latency", [0.004, 0.3, 1.0, 5.0])
async def test_what_is_counted_late_is_waited_for(latency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await measured(Triton(latency), monkeypatch)
    assert [point.compute_ms for point in found.points] == pytest.approx([1e3 * LOADED * latency])
    assert found.alone is not None
    assert found.alone.compute_ms == pytest.approx(1e3 * ALONE * latency)
    assert found.alone.transport_ms == pytest.approx(1e3 * (1 - ALONE) * latency)


async def test_what_is_never_counted_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(0.01, deaf=True)
    found = await measured(triton, monkeypatch)
    assert triton.alone
    assert found.points
    assert found.alone is None


@pytest.mark.parametrize("latency", [0.004, 0.3, 0.7])
async def test_requests_alone_end_in_their_time(latency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(latency)
    await measured(triton, monkeypatch)
    assert triton.alone[-1] - triton.loaded <= curve.ALONE_SECONDS + 2 * curve.POLL_SECONDS


async def test_a_slow_model_is_asked_once_after_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(5.0)
    await measured(triton, monkeypatch)
    assert len(triton.alone) == 1
    assert triton.alone[0] - triton.loaded <= 5.0 + curve.ALONE_SECONDS


COMPUTE = 0.01 * LOADED
SHOWN = 4 / COMPUTE


@pytest.mark.parametrize(("shown", "batches"), [(0, [1, 2, 4]), (SHOWN, [1, 2, 4]), (1.3 * SHOWN, [1, 2, 4, 2, 1])])
async def test_a_curve_is_measured_again_where_the_replica_was_seen_to_do_more(
        shown: float, batches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(0.01)
    found = await measured(triton, monkeypatch, most=4, seconds=10, shown=shown)
    assert triton.batches == batches
    assert {point.batch: point.compute_ms for point in found.points} == pytest.approx(
        dict.fromkeys((1, 2, 4), 1e3 * COMPUTE))


async def test_steps_of_as_many_sequences_as_a_batch_has_samples_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four that are in flight an instance computes two runs of two: each takes what the engine computes of one."""
    triton = Triton(0.01)
    found = await measured(triton, monkeypatch, most=4, seconds=10,
                           sample=Steps(x=np.zeros((3, 1, 2), np.float32)))
    assert (triton.flying, set(triton.batches)) == ([1, 2, 4], {1})
    assert {point.batch: point.compute_ms for point in found.points} == pytest.approx(
        {1: 1e3 * COMPUTE, 2: 1e3 * COMPUTE, 4: 2e3 * COMPUTE})
    assert [point.throughput for point in found.points] == pytest.approx([100, 200, 400])


async def test_what_other_work_disturbed_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(0.01, busy=2.0)
    found = await measured(triton, monkeypatch, most=4, seconds=10, shown=SHOWN)
    assert {point.batch: point.compute_ms for point in found.points} == pytest.approx(
        dict.fromkeys((1, 2, 4), 1e3 * COMPUTE))
    assert found.throughput(1) == pytest.approx(SHOWN)
    assert found.alone is not None
    assert found.alone.compute_ms == pytest.approx(1e3 * ALONE * 0.01)


async def test_what_was_cut_short_has_its_large_batches_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(1.0)
    found = await measured(triton, monkeypatch, most=32, seconds=5, shown=32)
    assert triton.batches == [1, 2, 4, 16, 8, 4], "32 might take eight seconds, and five are left"
    assert [point.batch for point in found.points] == [1, 2, 4, 8, 16]


def point(batch: int, compute_ms: float) -> ServicePoint:
    return ServicePoint(batch=batch, p50_ms=compute_ms, throughput=0, compute_ms=compute_ms)


def test_the_quicker_of_two_counts_and_what_was_not_counted_does_not() -> None:
    first = curve.Curve((point(1, 4), point(2, 5), point(4, 0)), alone=None)
    second = curve.Curve((point(2, 7), point(4, 9), point(8, 11)), alone=point(1, 3))
    assert curve.quicker(first, second) == curve.Curve((point(1, 4), point(2, 5), point(4, 9), point(8, 11)),
                                                       alone=point(1, 3))
    assert curve.quicker(second, first) == curve.quicker(first, second)
    assert curve.Curve((point(4, 0),), alone=None).throughput(1) == 0
