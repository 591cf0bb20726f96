"""The scraper, against real metrics endpoints on loopback addresses and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from enginewright.clients.activator import ActivatorClient
from enginewright.clients.errors import TransientError
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.core.comparison import Limits, Question
from enginewright.core.reasons import Reason
from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, decide_replicas
from enginewright.core.scaling.shown import Shown
from enginewright.core.signals import Reading, Sample, SignalWindow, Traffic
from enginewright.observe.bell import Bell
from enginewright.observe.keys import Key
from enginewright.observe.power import Drawn
from enginewright.observe.signals import TICK, Signals, Target, _Watched
from enginewright.observe.window import Window

KEY = Key("ns", "m")
LIMITS = ScaleLimits(min_replicas=1, max_replicas=8, target=4.0)
KNOWN = Capacity(throughput=10.0, curve=(), instances=1, objective_seconds=1.0, percentile=99.0,
                 cold_start_seconds=1.0, delay_seconds=0.0)


@dataclass
class Fleet:
    """Replicas on 127.0.0.x, one port: what each has queued, None for one that answers 500."""

    queued: dict[str, float | None] = field(default_factory=dict)
    port: int = 0
    joules: float = 0.0
    tails: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        sockname = request.get_extra_info("sockname")
        depth = self.queued[sockname[0]]
        if depth is None:
            return web.Response(status=500)
        return web.Response(text=f'nv_inference_pending_request_count{{model="m",version="1"}} {depth}\n'
                                 f'nv_inference_request_success{{model="m",version="1"}} {10 * depth}\n'
                                 f'nv_inference_request_duration_us{{model="m",version="1"}} {5000 * depth}\n'
                                 f'nv_inference_request_failure{{model="m",reason="BACKEND"}} {depth}\n'
                                 f'nv_inference_count{{model="m",version="1"}} {100 * depth}\n'
                                 f'nv_energy_consumption{{gpu_uuid="GPU-1"}} {self.joules}\n'
                                 f'{self.tail(sockname[0])}')

    def tail(self, address: str) -> str:
        told = self.tails.get(address)
        return f'nv_inference_request_summary_us{{model="m",quantile="0.99"}} {told}\n' if told else ""


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    app = web.Application()
    app.router.add_get("/metrics", fleet.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)
    await site.start()
    fleet.port = int(runner.addresses[0][1])
    yield fleet
    await runner.cleanup()


class PortTriton(TritonClient):
    """Triton's port is fixed in a cluster and free in a test."""

    port = 0

    async def scrape(self, address: str, port: int = 0) -> object:  # type: ignore[override]
        return await super().scrape(address, self.port)


@dataclass
class Heard:
    woken: list[Key] = field(default_factory=list)
    told: list[Key] = field(default_factory=list)
    scrapes: list[tuple[str, bool]] = field(default_factory=list)
    now: float = 100.0


@pytest.fixture
async def heard() -> Heard:
    return Heard()


@pytest.fixture
async def signals(fleet: Fleet, heard: Heard) -> AsyncIterator[Signals]:
    async with PortTriton(deadline=60) as triton, PrometheusClient() as prometheus:
        triton.port = fleet.port
        made = Signals(triton, prometheus, wake=heard.woken.append, tell=heard.told.append, clock=lambda: heard.now,
                       scraped=lambda *what: heard.scrapes.append(what), period=0.01)
        yield made
        await made.close()


def target(*addresses: str, current: int = 1, limits: ScaleLimits | None = LIMITS) -> Target:
    replicas = {f"pod-{address[-1]}": address for address in addresses}
    return Target(replicas=replicas, current=current, limits=limits)


async def test_one_round_is_one_sample_of_all_replicas(signals: Signals, fleet: Fleet, heard: Heard) -> None:
    fleet.queued = {"127.0.0.1": 3, "127.0.0.2": 0, "127.0.0.3": None}
    window = Window(0.0)
    await signals.round(KEY, target(*fleet.queued), window)
    assert window.view().samples == (
        Sample(time=100.0, ready=3, pending={"pod-1": 3.0, "pod-2": 0.0}, missing=1),
    )
    assert heard.scrapes == [("direct", True), ("direct", True), ("direct", False)]


async def test_the_slowest_replicas_own_p99_is_kept(signals: Signals, fleet: Fleet) -> None:
    """Triton says NaN where it has answered nothing in the last minute."""
    fleet.queued = dict.fromkeys(("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"), 1.0)
    fleet.tails = {"127.0.0.1": "2500", "127.0.0.2": "7500", "127.0.0.3": "NaN"}
    window = Window(0.0)
    await signals.round(KEY, target(*fleet.queued), window)
    fleet.tails = {"127.0.0.3": "NaN"}
    await signals.round(KEY, target(*fleet.queued), window)
    assert [sample.p99 for sample in window.view().samples] == [7.5, None]


async def test_what_gpus_draw_is_read_on_the_same_page_where_it_is_asked_for(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    fleet.queued = {"127.0.0.1": 3}
    for metered, rate in ((False, None), (True, 2.0)):
        fleet.queued["127.0.0.1"], fleet.joules = 3.0, 100.0
        window, asked = Window(0.0), replace(target("127.0.0.1"), metered=metered)
        await signals.round(KEY, asked, window)
        fleet.queued["127.0.0.1"], fleet.joules = 4.0, 150.0
        heard.now += 1
        await signals.round(KEY, asked, window)
        assert window.power.drawn(heard.now).inferences_per_joule == rate


async def test_only_what_is_watched_and_metered_is_told_of(signals: Signals) -> None:
    signals.watch(KEY, replace(target(), metered=True))
    signals.watch(Key("ns", "slice"), target())
    assert signals.drawn() == {KEY: Drawn()}
    await signals.forget(KEY)
    assert signals.drawn() == {}


@dataclass
class Holders(ActivatorClient):
    """What each activator holds by its address, None for one that does not answer; ``waits`` is what each was asked to
    wait. While ``patient``, one that holds nothing never answers a long poll: who needs its answer waits for ever."""

    holds: dict[str, float | None] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    patient: bool = True

    async def held(self, address: str, wait: float = 0.0, port: int = 0) -> float:
        self.waits.append(wait)
        found = self.holds[address]
        if found is None:
            raise TransientError("no answer")
        if wait and not found and self.patient:
            await asyncio.Event().wait()
        return found


def held_by(signals: Signals, **holds: float | None) -> tuple[Holders, Target]:
    signals._activators = holders = Holders(holds=dict(holds))
    return holders, replace(target(), activators={f"activator-{name}": name for name in holds})


async def test_what_activators_hold_is_known_as_soon_as_one_holds_something(signals: Signals) -> None:
    holders, nobody = held_by(signals, a=0.0, b=3.0, c=None)
    window = Window(0.0)
    await signals.round(KEY, nobody, window)
    assert window.view().samples == (Sample(time=100.0, ready=0, held=3.0),)
    assert holders.waits == [0.01] * 3, "a period long"


async def test_beside_replicas_activators_are_asked_without_waiting(signals: Signals, fleet: Fleet) -> None:
    holders, some = held_by(signals, a=0.0, b=0.0)
    fleet.queued = {"127.0.0.1": 3}
    window = Window(0.0)
    await signals.round(KEY, replace(some, replicas={"pod-1": "127.0.0.1"}), window)
    assert window.view().samples[0].held == 0.0
    assert holders.waits == [0.0, 0.0]


async def test_activators_that_do_not_answer_are_not_taken_for_idle_ones(signals: Signals, heard: Heard) -> None:
    _, silent = held_by(signals, a=None)
    window = Window(0.0)
    await signals.round(KEY, silent, window)
    assert window.view().samples[0].held is None
    assert heard.scrapes == [("activator", False)]


@pytest.mark.parametrize("replicas", [{}, {"pod-1": "127.0.0.1"}], ids=["asleep", "awake"])
@pytest.mark.parametrize(("holds", "known"), [
    ({"a": 0.0, "b": 0.0}, 0.0), ({"a": 0.0, "b": None}, None), ({"a": 2.0, "b": None}, 2.0),
    ({"a": None, "b": None}, None)], ids=str)
async def test_one_activator_that_is_silent_may_hold_requests_that_no_other_one_knows_of(
    signals: Signals, fleet: Fleet, heard: Heard, holds: dict[str, float | None], known: float | None,
    replicas: dict[str, str]
) -> None:
    holders, some = held_by(signals, **holds)
    holders.patient = False
    fleet.queued = {"127.0.0.1": 0}
    window = Window(0.0)
    for _ in range(3):  # the silent one is not asked each time
        await signals.round(KEY, replace(some, replicas=replicas), window)
    assert [one.held for one in window.view().samples] == [known] * 3


async def test_a_model_wakes_up_where_one_of_its_activators_has_been_silent_for_long(
    signals: Signals, heard: Heard
) -> None:
    holders, nobody = held_by(signals, a=0.0, b=None)
    holders.patient = False
    zero, window = ScaleLimits(min_replicas=0, max_replicas=2), Window(heard.now)
    for _ in range(12):
        await signals.round(KEY, nobody, window)
        heard.now += 1
    assert decide_replicas(window.view(), 0, zero, heard.now).replicas == 1


async def test_when_the_last_replica_has_gone_the_activator_is_asked_at_once(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    """A round that was just over would else be followed by a period in which no request is noticed."""
    signals._period = 3600.0
    holders, nobody = held_by(signals, a=0.0)
    fleet.queued = {"127.0.0.1": 0}
    signals.watch(KEY, replace(nobody, replicas={"pod-1": "127.0.0.1"}))
    await until(lambda: (window := signals.window(KEY)) and window.samples)
    signals.watch(KEY, nobody)
    await until(lambda: len(holders.waits) == 2)
    assert holders.waits == [0.0, 3600.0]


async def test_a_request_that_is_held_wakes_the_object_up(signals: Signals, heard: Heard) -> None:
    _, nobody = held_by(signals, a=1.0)
    zero = ScaleLimits(min_replicas=0, max_replicas=2)
    signals.watch(KEY, replace(nobody, current=0, limits=zero))
    await until(lambda: heard.woken)
    assert heard.woken[0] == KEY


QUESTION = Question(key="k", stable="old", candidate="new", model="m", limits=Limits(requests=10))


def asked(*addresses: str) -> Target:
    """The last address is the candidate's."""
    plain = target(*addresses, limits=None)
    revisions = dict.fromkeys(plain.replicas, "old") | {f"pod-{addresses[-1][-1]}": "new"}
    return replace(plain, revisions=revisions, question=QUESTION)


async def test_traffic_is_counted_by_revision_while_there_is_a_question(signals: Signals, fleet: Fleet) -> None:
    window = Window(0.0)
    window.analyse("k")
    for depth in (5, 7):
        fleet.queued = {"127.0.0.1": depth, "127.0.0.2": depth, "127.0.0.3": None if depth == 5 else depth}
        await signals.round(KEY, asked(*fleet.queued), window)
    first, second = window.view().rounds
    assert first.traffic == {}
    assert second.traffic == {"old": Traffic(requests=40, failed=4, busy=20_000, replicas=2)}


async def test_a_replica_that_answers_no_scrape_of_an_analysis_is_known_to_be_silent(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    window, began = Window(0.0), heard.now
    window.analyse("k")
    fleet.queued = {"127.0.0.1": 1, "127.0.0.2": None}
    for _ in range(3):
        await signals.round(KEY, asked(*fleet.queued), window)
        heard.now += 20
    assert window.view().readings == (Reading("pod-1", "old", heard.now - 20, counted=True),
                                      Reading("pod-2", "new", began, counted=False))


def _more(heard: Heard, scrapes: int) -> bool:
    return len(heard.scrapes) > scrapes + 2


async def test_a_verdict_wakes_the_object_up_once(signals: Signals, fleet: Fleet, heard: Heard) -> None:
    """Both get ten requests more between any two looks, and are as fast."""
    fleet.queued = {"127.0.0.1": 0, "127.0.0.2": 0}
    signals.watch(KEY, asked(*fleet.queued))
    for depth in range(1, 100):
        rounds = len(heard.scrapes)
        await until(functools.partial(_more, heard, rounds))
        if heard.woken:
            break
        heard.now += 1
        fleet.queued = {"127.0.0.1": depth, "127.0.0.2": depth}
    assert depth > 10
    seen = len(heard.scrapes)
    await until(lambda: len(heard.scrapes) > seen + 10)
    assert heard.woken == [KEY]


async def until(condition: Callable[[], object]) -> None:
    """The scraper says nothing when it has done a round, so it is looked at until it has, or the test fails."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_only_what_status_shows_differently_asks_for_a_pass(signals: Signals, fleet: Fleet, heard: Heard) -> None:
    """A pass in ten seconds at most; and none for a thousand queues in which nothing moves."""
    fleet.queued = {"127.0.0.1": 4}
    signals.watch(KEY, replace(target("127.0.0.1"), shown=Shown(queue_depth=4)))
    await _rounds(heard, 20)
    assert heard.told == [KEY], "once, that its queue is known"
    signals.watch(KEY, replace(target("127.0.0.1"), shown=Shown(queue_depth=0)))
    await _rounds(heard, 9)
    assert heard.told == [KEY] * 2
    await _rounds(heard, 20)
    assert heard.told == [KEY] * 4


async def test_another_reason_for_the_same_number_is_told_and_hurries_no_pass(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    """After each step the queue is as it should be: those passes would stand before the steps of others."""
    fleet.queued = {"127.0.0.1": 8}
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: heard.woken)
    fleet.queued = {"127.0.0.1": 4, "127.0.0.2": 4}
    signals.watch(KEY, target("127.0.0.1", "127.0.0.2", current=2))
    heard.woken.clear()
    heard.told.clear()
    await until(lambda: heard.told)
    assert heard.woken == []


async def test_many_queues_that_move_share_what_passes_there_may_be(
    signals: Signals, fleet: Fleet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One every twenty seconds here."""
    monkeypatch.setattr("enginewright.observe.signals.REFRESHES", 1 / 20)
    fleet.queued = {"127.0.0.1": 4}
    signals.watch(KEY, replace(target("127.0.0.1"), shown=Shown(queue_depth=0)))
    await _rounds(heard, 45)
    assert heard.told == [KEY] * 3


async def _rounds(heard: Heard, seconds: int) -> None:
    """Rounds of the one replica, a second apart by the clock that is turned by hand."""
    for _ in range(seconds):
        heard.now += 1
        read = len(heard.scrapes)
        await until(lambda read=read: len(heard.scrapes) >= read + 2)  # type: ignore[misc]


async def test_a_deep_queue_wakes_the_object_up_and_a_quiet_one_does_not(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    fleet.queued = {"127.0.0.1": 4}
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: len(heard.scrapes) > 5)
    settled = len(heard.woken)
    await until(lambda: len(heard.scrapes) > 12)
    assert len(heard.woken) == settled
    fleet.queued = {"127.0.0.1": 40}
    await until(lambda: len(heard.woken) > settled)
    assert set(heard.woken) == {KEY}


async def test_rounds_of_objects_begin_at_common_moments_and_none_drifts(
    signals: Signals, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ends = [100.013], list[float]()

    async def within(_: Bell, seconds: float) -> bool:
        clock[0] += seconds
        ends.append(clock[0])
        if len(ends) == 40:
            await asyncio.Event().wait()
        return False

    monkeypatch.setattr(Bell, "within", within)
    monkeypatch.setattr(signals, "_clock", lambda: clock[0])
    monkeypatch.setattr(signals, "_period", 0.13)
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: len(ends) == 40)
    assert [end / TICK for end in ends] == pytest.approx([round(end / TICK) for end in ends])
    assert ends[-1] == pytest.approx(100.013 + 40 * 0.13, abs=TICK)


async def test_a_queue_that_was_seen_once_is_looked_at_again_before_the_period_is_over(
    signals: Signals, fleet: Fleet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginewright.observe.signals.AGAIN", 0.0)
    monkeypatch.setattr(signals, "_period", 3600.0)
    fleet.queued = {"127.0.0.1": 40}
    signals.watch(Key("ns", "measured"), replace(target("127.0.0.1"), capacity=KNOWN))
    await until(lambda: len(heard.scrapes) == 1)
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: KEY in heard.woken and (window := signals.window(KEY)) and len(window.samples) == 2)
    assert len(heard.scrapes) == 3


async def test_a_queue_that_was_seen_once_is_not_told_of_before_it_is_looked_at_again(
    signals: Signals, fleet: Fleet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass that scales would come after the one that tells."""
    monkeypatch.setattr("enginewright.observe.signals.AGAIN", 1.0)
    signals.watch(KEY, replace(target("127.0.0.1"), shown=Shown(queue_depth=0)))
    fleet.queued = {"127.0.0.1": 40}
    await until(lambda: heard.woken)
    assert heard.told == []


async def test_with_more_replicas_than_can_be_read_it_is_looked_at_again_as_soon(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    signals._readings = 1e-6
    fleet.queued = {"127.0.0.1": 40}
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: len(heard.scrapes) == 2 and KEY in heard.woken)
    assert signals.period == 1e6


async def test_more_replicas_than_can_be_read_are_all_read_less_often(
    heard: Heard, fleet: Fleet, signals: Signals
) -> None:
    signals._readings = 200.0
    assert signals.period == 0.01
    fleet.queued = {"127.0.0.1": 0, "127.0.0.2": 0}
    signals.watch(KEY, target(*fleet.queued, limits=None))
    assert signals.period == 0.01
    other, asked = Key("ns", "other"), Key("ns", "asked-by-prometheus")
    signals.watch(other, target(*fleet.queued, limits=None))
    signals.watch(asked, replace(target(*fleet.queued, limits=None), prometheus="http://127.0.0.1:1"))
    assert signals.period == 0.02
    await until(lambda: all((window := signals.window(key)) and len(window.samples) > 3 for key in (KEY, other)))
    signals.watch(other, target("127.0.0.1", limits=None))
    assert signals.period == 0.015
    await signals.forget(other)
    assert signals.period == 0.01


async def test_a_replica_that_a_measured_capacity_judges_counts_as_much_as_it_costs(signals: Signals) -> None:
    signals._readings = 100.0
    signals.watch(KEY, target("127.0.0.1"))
    assert signals.period == 0.01
    signals.watch(KEY, replace(target("127.0.0.1"), capacity=KNOWN))
    assert signals.period == 0.02
    await signals.forget(KEY)
    assert signals.period == 0.01


@pytest.mark.parametrize("capacity", [None, KNOWN])
async def test_what_gets_no_request_is_judged_anew_now_and_then_and_at_once_when_one_waits(
    signals: Signals, fleet: Fleet, heard: Heard, monkeypatch: pytest.MonkeyPatch, capacity: Capacity | None
) -> None:
    judged: list[float] = []

    def judge(
        window: SignalWindow, current: int, limits: ScaleLimits, now: float, known: Capacity | None
    ) -> ScaleDecision:
        judged.append(now)
        return decide_replicas(window, current, limits, now, known)

    monkeypatch.setattr("enginewright.observe.signals.decide_replicas", judge)
    watched = _Watched(replace(target("127.0.0.1"), capacity=capacity), heard.now)
    signals._watched[KEY] = watched

    async def round_of(depth: float) -> None:
        heard.now += 1
        fleet.queued["127.0.0.1"] = depth
        await signals.round(KEY, watched.target, watched.window)
        signals._judge(KEY, watched)

    for _ in range(25):
        await round_of(0)
    assert judged == [101.0, 102.0, 112.0, 122.0], "the first round does not tell yet what has come"
    await round_of(40)
    await round_of(40)
    assert judged[-2:] == [126.0, 127.0]
    assert heard.woken[-1] == KEY
    signals._watched.clear()


@pytest.mark.parametrize("changed", [{"current": 2}, {"limits": replace(LIMITS, min_replicas=0)}])
async def test_only_a_model_with_its_fewest_replicas_rests(
    signals: Signals, fleet: Fleet, heard: Heard, changed: dict[str, Any]
) -> None:
    """Time alone takes replicas from another."""
    fleet.queued = {"127.0.0.1": 0}
    watched = _Watched(replace(target("127.0.0.1"), **changed), heard.now)
    for _ in range(3):
        heard.now += 1
        await signals.round(KEY, watched.target, watched.window)
        signals._judge(KEY, watched)
    assert watched.judged == heard.now


async def test_a_pass_ends_the_rest(signals: Signals, fleet: Fleet, heard: Heard) -> None:
    """Its target may have other limits, by a schedule or by the spec."""
    fleet.queued = {"127.0.0.1": 0}
    signals._watched[KEY] = watched = _Watched(target("127.0.0.1"), heard.now)
    for _ in range(3):
        heard.now += 1
        await signals.round(KEY, watched.target, watched.window)
        signals._judge(KEY, watched)
    assert watched.rests is not None
    assert heard.woken == []
    signals.watch(KEY, target("127.0.0.1", limits=replace(LIMITS, min_replicas=2)))
    signals._judge(KEY, watched)
    assert heard.woken == [KEY]
    signals._watched.clear()


async def test_without_limits_samples_are_kept_and_nobody_is_woken(
    signals: Signals, fleet: Fleet, heard: Heard
) -> None:
    fleet.queued = {"127.0.0.1": 400}
    signals.watch(KEY, target("127.0.0.1", limits=None))
    await until(lambda: (window := signals.window(KEY)) and len(window.samples) > 5)
    assert heard.woken == []


async def test_a_changed_target_goes_on_with_the_same_window(signals: Signals, fleet: Fleet, heard: Heard) -> None:
    fleet.queued = {"127.0.0.1": 1, "127.0.0.2": 2}
    signals.watch(KEY, target("127.0.0.1", limits=None))
    await until(lambda: heard.scrapes)
    heard.now = 200.0
    signals.watch(KEY, target("127.0.0.2", limits=None))
    await until(lambda: (window := signals.window(KEY)) and window.samples and "pod-2" in window.samples[-1].pending)
    window = signals.window(KEY)
    assert window is not None
    assert window.started == 100.0
    assert len(signals) == 1


async def test_both_wishes_of_a_decision_are_kept(
    signals: Signals, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ScaleDecision(replicas=2, recommendation=3, up=2, reason=Reason.STEADY, message="")
    monkeypatch.setattr("enginewright.observe.signals.decide_replicas", lambda *_: made)
    fleet.queued = {"127.0.0.1": 1}
    signals.watch(KEY, target("127.0.0.1"))
    await until(lambda: (window := signals.window(KEY)) and window.recommendations)
    window = signals.window(KEY)
    assert window is not None
    assert {replicas for _, replicas in window.recommendations} == {2, 3}


async def test_forgetting_stops_the_task_and_drops_the_window(signals: Signals, fleet: Fleet) -> None:
    fleet.queued = {"127.0.0.1": 1}
    signals.watch(KEY, target("127.0.0.1"))
    await signals.forget(KEY)
    await signals.forget(KEY)
    assert signals.window(KEY) is None
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("scraper")]
    signals.recommend(KEY, 3)
    assert len(signals) == 0


class Clinging(TritonClient):
    """A scrape that takes its time to end when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.cancelled, self.let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def scrape(self, address: str, port: int = 0) -> ReplicaMetrics:
        self.asked.set()
        try:
            never: asyncio.Future[ReplicaMetrics] = asyncio.get_running_loop().create_future()
            return await never
        finally:
            self.cancelled.set()
            await self.let_go.wait()


async def test_a_pass_that_is_cancelled_while_it_forgets_ends() -> None:
    """As on SIGTERM: a worker that took the cancellation for its scraper's would go on for ever."""
    async with Clinging() as triton, PrometheusClient() as prometheus:
        signals = Signals(triton, prometheus, wake=lambda _: None, clock=lambda: 0.0, scraped=lambda *_: None)
        signals.watch(KEY, target("127.0.0.1"))
        await triton.asked.wait()

        async def work() -> None:
            await signals.forget(KEY)
            await asyncio.get_running_loop().create_future()

        worker = asyncio.create_task(work())
        await triton.cancelled.wait()
        worker.cancel()
        triton.let_go.set()
        _, running = await asyncio.wait({worker}, timeout=240)
        worker.cancel()
    assert not running
    assert worker.cancelled()


async def test_a_defect_in_a_round_does_not_blind_the_scaler(
    signals: Signals, fleet: Fleet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.queued = {"127.0.0.1": 1}
    whole = signals.round
    broken = iter([True])

    async def once_broken(*arguments: object) -> None:
        if next(broken, False):
            raise ZeroDivisionError
        await whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(signals, "round", once_broken)
    signals.watch(KEY, target("127.0.0.1", limits=None))
    await until(lambda: heard.scrapes)


async def test_prometheus_that_is_away_is_told_once(signals: Signals, heard: Heard, unused_tcp_port: int) -> None:
    with capture_logs() as logs:
        signals.watch(KEY, Target(replicas={"pod-1": "127.0.0.1"}, current=1,
                                  prometheus=f"http://127.0.0.1:{unused_tcp_port}"))

        def asked_again() -> bool:
            heard.now += 60.0
            return len(heard.scrapes) >= 3

        await until(asked_again)
    assert [entry["event"] for entry in logs] == ["prometheus gave no queue depth"]


async def test_prometheus_that_is_away_makes_missing_samples(
    signals: Signals, heard: Heard, unused_tcp_port: int
) -> None:
    window = Window(0.0)
    away = Target(replicas={"pod-1": "127.0.0.1"}, current=1, prometheus=f"http://127.0.0.1:{unused_tcp_port}")
    await signals.round(KEY, away, window)
    assert window.view().samples == (Sample(time=100.0, ready=1, pending={}, missing=1),)
    assert heard.scrapes == [("prometheus", False)]
