"""Reading what quality monitors report: over HTTP, and for passes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from enginewright.clients.errors import ClientError, TransientError
from enginewright.clients.quality import QualityClient
from enginewright.core.observed import ObjectView, PodView
from enginewright.observe.quality import FRESH, QualityReader
from enginewright.reconcile.http import serving
from enginewright_builder.contract import QualityReport

REPORT = QualityReport(metric="cosine", tolerance=0.01, samples=10, total=9.5, requests=4)


def view(name: str = "minilm") -> ObjectView:
    return ObjectView(name=name, namespace="prod", uid="u", generation=1, resource_version="1", deleting=False,
                      annotations={}, spec={}, status={})


def pod(name: str, **fields: object) -> PodView:
    return PodView(**{"name": name, "phase": "Running", "ready": True, "ip": f"ip-{name}", **fields})  # type: ignore[arg-type]


async def asked(body: str, status: int = 200) -> QualityReport:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    app = web.Application()
    app.router.add_get("/quality", answer)
    async with serving(app, 0) as port, QualityClient(deadline=60) as client:
        return await client.report("127.0.0.1", port)


async def test_a_report_comes_whole() -> None:
    assert await asked(REPORT.to_json()) == REPORT


async def test_a_report_in_pieces_comes_whole() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for byte in REPORT.to_json().encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(0)
        return response

    app = web.Application()
    app.router.add_get("/quality", answer)
    async with serving(app, 0) as port, QualityClient(deadline=60) as client:
        assert await client.report("127.0.0.1", port) == REPORT


@pytest.mark.parametrize(("body", "status", "says"), [
    ("", 500, "answered 500"), ("{", 200, "does not have the form"), ('{"metric":1}', 200, "does not have the form"),
    (QualityReport(metric="m", tolerance=0.1, samples=2, total=2.5).to_json(), 200, "cannot add up to 2.5"),
    (QualityReport(metric="m", tolerance=0.1, samples=2, total=-1).to_json(), 200, "cannot add up to -1"),
    ("x" * 100_000, 200, "more than 8192 bytes"),
    *((replace(REPORT, **odd).to_json(), 200, "of its captures makes no sense") for odd in (
        {"captured": -1}, {"captured_since": 2.0, "captured_until": 1.0}, {"captured_until": 1e300},
        {"captured_since": -1.0}, {"capture_digest": "sha256:x y"})),
])
async def test_what_is_no_report(body: str, status: int, says: str) -> None:
    with pytest.raises(ClientError, match=says):
        await asked(body, status)


@pytest.mark.parametrize(("problem", "shown"), [
    ("no memory", "no memory"), ("x" * 301, "its log says what is wrong"), ("a\nb", "its log says what is wrong"),
])
async def test_a_problem_is_one_short_line(problem: str, shown: str) -> None:
    assert (await asked(replace(REPORT, problem=problem).to_json())).problem == shown
    assert (await asked(replace(REPORT, capture_problem=problem).to_json())).capture_problem == shown


async def test_nobody_there() -> None:
    async with QualityClient() as client:
        with pytest.raises(TransientError):
            await client.report("127.0.0.1", 1)


@dataclass
class Told:
    silent: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    async def report(self, address: str) -> QualityReport:
        self.asked.append(address)
        await asyncio.sleep(0)
        if address in self.silent:
            raise TransientError("no answer")
        return REPORT


async def test_only_ready_pods_are_asked_and_a_silent_one_is_left_out() -> None:
    told = Told(silent={"ip-b"})
    reader = QualityReader(told, lambda: 0.0)
    pods = [pod("a"), pod("b"), pod("c", ready=False), pod("d", deleting=True), pod("e", ip="")]
    assert await reader.reports(view(), pods) == {"a": REPORT}
    assert told.asked == ["ip-a", "ip-b"]


async def test_a_reading_serves_for_a_while_unless_pods_change() -> None:
    told, now = Told(), [0.0]
    reader = QualityReader(told, lambda: now[0])
    for _ in range(3):
        await reader.reports(view(), [pod("a")])
    assert told.asked == ["ip-a"]
    await reader.reports(view("other"), [pod("a")])
    await reader.reports(view(), [pod("a"), pod("b")])
    assert told.asked == ["ip-a"] * 3 + ["ip-b"]
    now[0] += FRESH
    await reader.reports(view(), [pod("a"), pod("b")])
    assert told.asked[-2:] == ["ip-a", "ip-b"]
    assert len(told.asked) == 6


async def test_a_silent_monitor_is_asked_less_and_less_and_others_as_before() -> None:
    told, now = Told(silent={"ip-a"}), [0.0]
    reader = QualityReader(told, lambda: now[0])
    for _ in range(20):
        await reader.reports(view(), [pod("a"), pod("b")])
        now[0] += FRESH
    assert told.asked.count("ip-b") == 20
    # At 0, 10, 30, 70 and 150 seconds.
    assert told.asked.count("ip-a") == 5
    told.silent.clear()
    now[0] += 1000.0
    assert await reader.reports(view(), [pod("a"), pod("b")]) == {"a": REPORT, "b": REPORT}
