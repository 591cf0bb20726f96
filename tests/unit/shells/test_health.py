"""What a restart mends is unhealthy, and nothing else is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.health import Health, HealthLimits, Watching
from enginewright.reconcile.http import health_app, metrics_app, serving
from enginewright.reconcile.metered import Metered
from enginewright.reconcile.metrics import Metrics

LIMITS = HealthLimits(loop_lag=10, oldest_pass=300, resync_age=3600, watchers_missing=60)
WHOLE = Watching(True, frozenset({"pods@*", "jobs@*"}), frozenset({"pods@*", "jobs@*"}))
NO_JOBS = Watching(True, WHOLE.expected, frozenset({"pods@*"}))


@dataclass
class Process:
    now: float = 1000.0
    watching: Watching = WHOLE
    oldest: float = 0.0
    resync: float | None = 1000.0
    health: Health = field(init=False)

    def __post_init__(self) -> None:
        self.health = Health(watching=lambda: self.watching, oldest_pass=lambda: self.oldest,
                             last_resync=lambda: self.resync, limits=LIMITS, clock=lambda: self.now)


def test_idle_is_healthy() -> None:
    assert Process().health.problems() == []
    assert Process().health.unready() == []


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (Process(oldest=301), ["a pass has run for 301 s"]),
        (Process(watching=Watching(False, WHOLE.expected, frozenset())), ["the watching thread has ended"]),
        (Process(resync=-2601), ["no full resync for 3600 s"]),
    ],
)
def test_what_hangs_is_unhealthy(process: Process, expected: list[str]) -> None:
    assert process.health.problems() == expected


def test_a_watch_that_is_missing_for_long_is_unhealthy_and_unready_at_once() -> None:
    process = Process()
    process.health.tick(0.0)
    process.watching = NO_JOBS
    process.now += 59
    process.health.tick(0.0)
    assert process.health.problems() == []
    assert process.health.unready() == ["not watching yet: jobs@*"]
    process.now += 2
    assert process.health.problems() == ["no watch on jobs@*"]
    process.watching = WHOLE
    process.health.tick(0.0)
    assert process.health.problems() == []


def test_one_that_stands_by_is_ready_to_take_over() -> None:
    process = Process(watching=Watching(False, WHOLE.expected, frozenset()), resync=None)
    with process.health.standing_by():
        process.now += 100_000
        assert process.health.problems() == process.health.unready() == []
    process.watching = NO_JOBS
    process.health.tick(0)
    assert process.health.problems() == [], "its time begins when it takes over"
    process.now += 61
    assert process.health.problems() == ["no watch on jobs@*"]
    assert "the first resync is not done" in process.health.unready()


def test_a_late_loop_is_remembered_until_the_next_probe() -> None:
    process = Process()
    process.health.tick(20.0)
    process.health.tick(0.0)
    assert process.health.problems() == ["the event loop is 16.0 s late"]
    for _ in range(5):
        process.health.tick(0.0)
    assert process.health.problems() == []


def test_before_the_first_resync_it_lives_but_is_not_ready() -> None:
    process = Process(resync=None)
    assert process.health.problems() == []
    assert process.health.unready() == ["the first resync is not done"]


async def test_probes_over_http() -> None:
    process = Process(oldest=301)
    async with TestClient(TestServer(health_app(process.health))) as client:
        bad = await client.get("/healthz")
        assert (bad.status, await bad.text()) == (503, "a pass has run for 301 s\n")
        process.oldest = 0
        good = await client.get("/readyz")
        assert (good.status, await good.text()) == (200, "ok\n")


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    ours = page[page.index("## Of the operator"):page.index("## Of activators")]
    documented = set(re.findall(r"^\| `(enginewright_\w+)`", ours, re.MULTILINE))
    counters = {family.name + "_total" for family in Metrics().registry.collect() if family.type == "counter"}
    others = {family.name for family in Metrics().registry.collect() if family.type != "counter"}
    others |= {family.name for family in (*Exposed().collect(), *Metered(dict).collect())}
    runtime = (Path(__file__).parents[3] / "operator" / "enginewright" / "runtime.py").read_text()
    gauges = set(re.findall(r'gauge\("(\w+)"', runtime))
    assert {name for name in counters | others | gauges if name.startswith("enginewright_")} == documented


async def test_metrics_over_http() -> None:
    metrics = Metrics()
    metrics.acted("apply", "Deployment")
    metrics.scraped("direct", False)
    metrics.called("list", "pods", 200, 0.02)
    metrics.gauge("enginewright_queue_length", "Objects that wait for a pass.", lambda: 3)
    async with TestClient(TestServer(metrics_app(metrics.registry))) as client:
        page = await (await client.get("/metrics")).text()
    for line in (
        'enginewright_actions_total{kind="Deployment",verb="apply"} 1.0',
        'enginewright_scrapes_total{result="failed",source="direct"} 1.0',
        'enginewright_api_request_seconds_count{code="200",resource="pods",verb="list"} 1.0',
        'enginewright_reconcile_passes_total{result="bug"} 0.0',
        "enginewright_queue_length 3.0",
    ):
        assert line in page.splitlines()


async def test_the_port_that_was_picked_is_the_one_that_answers() -> None:
    """Each address family would have had another one, and which of them was told was luck."""
    async with aiohttp.ClientSession() as client:
        for _ in range(8):
            async with (
                serving(metrics_app(Metrics().registry), 0) as port,
                client.get(f"http://127.0.0.1:{port}/metrics") as answer,
            ):
                assert answer.status == 200
