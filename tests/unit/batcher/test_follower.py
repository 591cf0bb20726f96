"""The container beside a server: what it loads, and that whatever fails ends at what the build proved."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
import pytest
import structlog

from enginewright.batcher.follower import CHECK, RETRY, Follower
from enginewright.batcher.serve import Options, keep_looking, run, served
from enginewright.batcher.tally import Tally
from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.clients.model_control import ModelControl
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.follow import REFUSED
from enginewright.core.batching.safe import MICROSECONDS
from support.apiserver import eventually

SAFE = SafeSet(default=Setting(), curve=((1, 0.004), (8, 0.0042), (16, 0.0044)), max_batch=16, longest_delay_us=8800,
               load_seconds=1.0)
TOGETHER = Setting(delay_us=4300, preferred=(8, 16))


@dataclass
class Server:
    """A crowd of eight, in halves unless held back until all are there. ``now`` is the test's clock; a load takes
    ``loading`` seconds of it."""

    now: float = 0.0
    setting: Setting = field(default_factory=Setting)
    loads: list[Setting] = field(default_factory=list)
    reads: int = 0
    loading: float = 0.5
    silent: bool = False
    refuses: ClientError | None = None
    defect: Exception | None = None
    _seen: float = 0.0
    _answered: float = 0.0
    _waited: float = 0.0
    _computed: float = 0.0
    _executions: float = 0.0

    def clock(self) -> float:
        return self.now

    def restart(self) -> None:
        self._answered = self._waited = self._computed = self._executions = 0.0
        self.setting = Setting()

    async def scrape(self, address: str, port: int) -> ReplicaMetrics:
        if self.defect:
            raise self.defect
        if self.silent:
            raise TransientError("no answer")
        passed, self._seen = self.now - self._seen, self.now
        whole = self.setting == TOGETHER
        rate, waited, computed, batches = (1600, 0.0006, 0.0042, 200) if whole else (900, 0.0043, 0.0041, 225)
        self._answered += rate * passed
        self._waited += rate * passed * waited
        self._computed += rate * passed * computed
        self._executions += batches * passed
        taken = self._waited + self._computed
        return ReplicaMetrics(pending={}, failures={}, successes={"model": self._answered}, busy=taken * MICROSECONDS,
                              queued_for=self._waited * MICROSECONDS, executions=self._executions)

    async def apply(self, address: str, model: str, setting: Setting, port: int) -> bool:
        self.reads += 1
        if self.silent:
            raise TransientError("no answer")
        if setting == self.setting:
            return False
        if self.refuses:
            raise self.refuses
        self.now += self.loading
        self.loads.append(setting)
        self.setting = setting
        return True


def follower(server: Server, tally: Tally | None = None) -> Follower:
    return Follower("model", SAFE, server, server, tally or Tally(), server.clock)


async def looks(following: Follower, server: Server, count: int) -> None:
    for _ in range(count):
        server.now += 1.0
        await following.look()


async def until_trial(following: Follower, server: Server) -> None:
    for _ in range(60):
        await looks(following, server, 1)
        if following.told().phase == "trial":
            return
    raise AssertionError("nothing was tried")


def shown(tally: Tally, name: str, **labels: str) -> float | None:
    return tally.registry.get_sample_value(f"enginewright_batching_replica_{name}", labels)


async def test_a_crowd_is_let_together_and_all_is_told() -> None:
    server, tally = Server(), Tally()
    following = follower(server, tally)
    assert following.told().setting is None
    await looks(following, server, 1)
    assert (following.told().setting, following.told().phase, server.loads) == (Setting(), "default", [])
    assert shown(tally, "queue_delay_seconds") == 0.0
    await looks(following, server, 30)
    told = following.told()
    assert (told.setting, told.phase, server.loads) == (TOGETHER, "kept", [TOGETHER])
    assert "8 clients ask again as soon as they are answered" in told.why
    assert shown(tally, "queue_delay_seconds") == pytest.approx(0.0043)
    assert [shown(tally, "preferred_batch_size", size=size) for size in ("8", "16")] == [1.0, 1.0]
    assert (shown(tally, "phase", phase="kept"), shown(tally, "phase", phase="default")) == (1.0, None)
    assert (shown(tally, "loads_total", phase="trial"), shown(tally, "failed_loads_total")) == (1.0, 0.0)


@pytest.mark.parametrize("error", [RefusedError("CUDA out of memory", status=500), TransientError("no answer in time")])
async def test_what_cannot_be_loaded_is_left_for_an_hour(error: ClientError) -> None:
    server, tally = Server(refuses=error), Tally()
    following = follower(server, tally)
    await looks(following, server, 30)
    told = following.told()
    assert (told.setting, told.phase, server.setting) == (Setting(), "default", Setting())
    assert error.message in told.why
    assert shown(tally, "failed_loads_total") == 1.0
    server.refuses = None
    await looks(following, server, round(REFUSED) - 60)
    assert server.loads == []
    await looks(following, server, 120)
    assert server.loads == [TOGETHER]


async def test_a_server_that_ended_during_a_trial_is_not_tried_again_soon() -> None:
    server = Server()
    following = follower(server)
    await until_trial(following, server)
    server.restart()
    await looks(following, server, 300)
    assert server.loads == [TOGETHER]
    assert (following.told().setting, following.told().phase) == (Setting(), "default")


@pytest.mark.parametrize("on_the_way_back", [False, True])
async def test_a_server_that_each_load_takes_with_it_is_tried_less_and_less(on_the_way_back: bool) -> None:
    """The load fails since the server ends of it: that of a trial, or that of the default after one."""
    server = Server()
    following, died = follower(server), []

    async def dies() -> None:
        server.refuses = TransientError("connection lost")
        for _ in range(20_000):
            before = server.reads
            await looks(following, server, 1)
            if following.told().trouble == "connection lost" and server.reads > before:
                break
        else:
            raise AssertionError("nothing was loaded")
        died.append(server.now)
        server.refuses, server.silent = None, True
        await looks(following, server, 3)
        server.silent = False
        server.restart()
        await looks(following, server, 1)

    for _ in range(3):
        if on_the_way_back:
            for _ in range(20_000):
                if following.told().phase == "kept" and following.told().setting == TOGETHER:
                    break
                await looks(following, server, 1)
        await dies()
    first, second = (later - earlier for earlier, later in pairwise(died))
    assert first >= REFUSED
    assert second >= 2 * REFUSED


async def test_a_server_that_began_anew_gets_what_suits_it_again() -> None:
    server = Server()
    following = follower(server)
    await looks(following, server, 30)
    server.silent = True
    reads = server.reads
    with structlog.testing.capture_logs() as logs:
        await looks(following, server, 5)
    assert (following.told().setting, following.told().trouble) == (None, "no answer")
    assert server.reads == reads, "who does not answer one question is not asked another"
    assert len(logs) == 1, "it is said once"
    server.silent = False
    server.restart()
    await looks(following, server, 1)
    assert (following.told().setting, following.told().phase) == (Setting(), "default")
    await looks(following, server, 30)
    assert (following.told().setting, following.told().phase, following.told().trouble) == (TOGETHER, "kept", "")


async def test_a_load_that_came_late_after_all_is_taken_back() -> None:
    server = Server(refuses=TransientError("no answer in time"))
    following = follower(server)
    await looks(following, server, 30)
    server.refuses, server.setting = None, TOGETHER
    await looks(following, server, round(CHECK) + 1)
    assert (server.setting, server.loads) == (Setting(), [Setting()])


async def test_where_the_default_cannot_be_loaded_it_is_tried_again_and_nothing_concluded() -> None:
    server = Server()
    following = follower(server)
    await until_trial(following, server)
    following.begin_anew()
    server.refuses = RefusedError("no memory", status=500)
    before = server.reads
    await looks(following, server, 40)
    assert following.told().setting is None
    assert following.told().phase == "default"
    assert 40 / RETRY - 1 <= server.reads - before <= 40 / RETRY + 1
    server.refuses = None
    await looks(following, server, round(RETRY))
    assert following.told().setting == Setting()


async def test_a_defect_of_ours_ends_at_the_default_and_not_the_container() -> None:
    server = Server()
    following = follower(server)
    await looks(following, server, 30)
    assert server.setting == TOGETHER
    server.defect = ZeroDivisionError("a defect")

    async def fallen_back() -> bool:
        return following.told().phase == "default"

    async def in_force() -> bool:
        return server.setting == Setting()

    looking = asyncio.create_task(keep_looking(following, period=0.001))
    try:
        await eventually(fallen_back)
        server.defect = None
        await eventually(in_force)
    finally:
        looking.cancel()
        await asyncio.wait({looking})


async def test_it_ends_in_the_middle_of_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load may take a minute; the pod's time to end is for the server."""
    loading, stop = asyncio.Event(), asyncio.Event()

    async def apply(*_: object) -> bool:
        loading.set()
        await asyncio.Event().wait()
        return True

    async def scrape(*_: object) -> ReplicaMetrics:
        return await Server().scrape("", 0)

    monkeypatch.setattr(ModelControl, "apply", apply)
    monkeypatch.setattr(TritonClient, "scrape", scrape)
    running = asyncio.create_task(run(Options(model="m", safe=SAFE, key="k", host="127.0.0.1", port=0), stop))
    await asyncio.wait_for(loading.wait(), 30.0)
    stop.set()
    await asyncio.wait_for(running, 30.0)


async def test_the_page_has_figures_for_prometheus_and_words_for_people() -> None:
    server, tally = Server(), Tally()
    following = follower(server, tally)
    assert math.isnan(shown(tally, "queue_delay_seconds") or 0.0)
    await looks(following, server, 30)
    async with served(following.told, tally, "127.0.0.1", 0) as port, httpx.AsyncClient() as client:
        said = (await client.get(f"http://127.0.0.1:{port}/batching")).json()
        page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    assert (said["setting"], said["phase"]) == ({"delay_us": 4300, "preferred": [8, 16]}, "kept")
    assert "8 clients" in said["why"]
    assert 'enginewright_batching_replica_preferred_batch_size{size="16"} 1.0' in page
