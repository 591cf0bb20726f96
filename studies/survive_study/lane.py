"""One namespace, its models, its node, its operator, and a sequence of steps."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import math
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE, Resource
from enginewright.core import labels
from support.apiserver import NAMESPACE, manifest
from survive_study import oracles
from survive_study.actor import Node
from survive_study.faults import Way
from survive_study.operators import Operators, Zygote
from survive_study.record import Told
from survive_study.step_runner import StepRunner
from survive_study.steps import Step
from survive_study.world import World, look

# Seconds in which everything has come to rest; then so many passes must write nothing.
BOUND, QUIET_PASSES = 90.0, 3
PERIOD = 0.15
PODS: Mapping[str, Any] = {"metadata": {"labels": {"app": "stranger"}},
                           "spec": {"containers": [{"name": "a", "image": "a"}]}}
# What is not the operator's, some of it nearly as the operator would call or mark it.
FOREIGN: tuple[tuple[Resource, dict[str, Any]], ...] = (
    (CONFIG_MAP, {"metadata": {"name": "minilm-notes", "labels": {labels.MODEL: "minilm"}}, "data": {"a": "b"}}),
    (CONFIG_MAP, {"metadata": {"name": "minilm-resolve-notes"}, "data": {"a": "b"}}),
    (SERVICE, {"metadata": {"name": "minilm-old"}, "spec": {"selector": {"app": "stranger"}, "ports": [{"port": 80}]}}),
    (DEPLOYMENT, {"metadata": {"name": "minilm-stranger", "labels": {labels.MODEL: "minilm"}}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "stranger"}}, "template": PODS}}),
    (SECRET, {"metadata": {"name": "minilm-key"}, "stringData": {"a": "b"}}),
)


@dataclass
class Lane:
    kube: KubeClient
    runner: StepRunner
    node: Node
    way: Way
    operators: Operators
    foreign: Mapping[str, Mapping[str, Any]]
    log: Path
    bound: float = BOUND
    told: Told = field(default_factory=Told)
    # What was done when, beside the times in logs and objects.
    _happened: list[str] = field(default_factory=list)
    _seen: World = field(default_factory=lambda: World({}))

    async def run(self, steps: Sequence[Step], *, rest_every: int, until: float = math.inf) -> Told:
        """Ends at the first alarm: what comes after it may come of it. On the monotonic clock ``until`` is from when on
        it ends after a rest."""
        await self.runner.provide()
        await self.operators.start()
        try:
            for number, step in enumerate(steps):
                await self._step(step)
                self._alarm(number, oracles.always(await self.see()))
                rests = (number + 1) % rest_every == 0
                if not self.told.alarms and rests:
                    await self._rest(number, heal=step.pick < 0.4)
                if self.told.alarms:
                    self._keep_what_was(steps[:number + 1], await self._look())
                if self.told.alarms or (rests and time.monotonic() > until):
                    break
        finally:
            await self.operators.stop()
        self.told.kills, self.told.deaths = self.operators.kills, self.operators.deaths
        self.told.done, self.told.refused = self.runner.done, self.runner.refused
        self.told.faults, self.told.fields = self.way.faults, self.runner.changes
        return self.told

    async def _step(self, step: Step) -> None:
        self._note(f"step {self.told.steps}: {json.dumps(step.as_json())}")
        self.told.steps += 1
        await self.operators.keep()
        if step.kind == "two-leaders" and len(self.operators.pids) == 1:
            await self.operators.start()
        await self.runner.do(step)
        if step.killed is not None:
            await asyncio.sleep(step.killed)
            await self.operators.kill()
            self._note("killed")
            await self.operators.keep()
        await asyncio.sleep(step.pause)

    def _note(self, what: str) -> None:
        self._happened.append(f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')} {what}")

    def _alarm(self, number: int, found: Any) -> None:
        self.told.alarms += [f"step {number}: {alarm}" for alarm in found]

    async def see(self) -> World:
        self._seen = await self._look()
        return self._seen

    async def _look(self) -> World:
        return await look(self.kube, self.runner.namespace, frozenset(self.node.proven), self.foreign)

    async def _rest(self, number: int, *, heal: bool) -> None:
        """No faults, one operator, containers that succeed: the world must come to what it should be."""
        self._note(f"rest{' and heal' if heal else ''}")
        self.told.rests += 1
        self.way.now = ""
        self.node.release()
        while len(self.operators.pids) > 1:
            await self.operators.kill()
        began = time.monotonic()
        found = ["nothing looked"]
        healed, answered = False, set[tuple[str, str]]()
        while found and time.monotonic() - began < self.bound:
            await self.operators.keep()
            with contextlib.suppress(ClientError):
                await self.runner.provide()
                if heal and not healed:
                    await self.runner.heal()
                    healed = True
            await asyncio.sleep(0.3)
            world = await self.see()
            if always := list(oracles.always(world)):
                self._alarm(number, always)
                return
            found = list(oracles.at_rest(world))
            if healed and not found:
                await self._retry(world, answered)
                found = list(oracles.healthy(world))
            # Annotations change no generation: what they ask for may still be to come.
            if not found and (wrote := await self._passes()) and not oracles.repelled(world):
                found = [f"passes that find nothing new write: {', '.join(wrote)}"]
        self.told.slowest_rest = max(self.told.slowest_rest, time.monotonic() - began)
        self._alarm(number, (f"after {self.bound:g} s {alarm}" for alarm in found))

    async def _retry(self, world: World, answered: set[tuple[str, str]]) -> None:
        """As a user does whom status tells that something has failed: once for each such word, which ``answered`` keeps
        with the model's name. A retry from before is no answer: the operator may not have seen the failure by then."""
        for name, entry in oracles.unwell(world):
            if (told := (name, str(entry.get("message")))) not in answered:
                with contextlib.suppress(ClientError):
                    await self.runner.retry(name)
                    answered.add(told)

    async def _passes(self) -> list[str]:
        """What several passes write for which nothing was changed."""
        self.way.wrote.clear()
        for _ in range(QUIET_PASSES):
            await self.runner.nudge()
            await asyncio.sleep(0.3)
        return sorted(set(self.way.wrote))

    def _keep_what_was(self, steps: Sequence[Step], later: World) -> None:
        """For who looks into an alarm: beside the operators' log, the world that raised it and the one ``later``."""
        self.log.with_name("alarm.json").write_text(json.dumps({
            "seed": self.told.seed, "alarms": self.told.alarms, "happened": self._happened,
            "steps": [step.as_json() for step in steps], "proven": sorted(self._seen.proven), "world": self._seen.of,
            "after": later.of}, indent=1))


@contextlib.asynccontextmanager
async def lane(kube: KubeClient, source: Zygote, kubeconfig: Path, folder: Path, name: str,
               seed: int, *, bound: float = BOUND) -> AsyncIterator[Lane]:
    """``kubeconfig`` is the operator's, ``bound`` in how many seconds everything comes to rest."""
    await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", name))
    foreign = await _strangers(kube, name)
    way = Way(random.Random(seed))  # noqa: S311  (no secret)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    node = Node(kube, name, folder, period=PERIOD)
    async with (
        node.running(),
        way.proxy().running(kubeconfig, folder) as through,
    ):
        runner = StepRunner(kube, name, node, way)
        runner.strange = frozenset(name for names in foreign.values() for name in names)
        yield Lane(kube, runner, node, way, Operators(source, through, name, folder / "log"), foreign,
                   folder / "log", bound, Told(seed))


async def _strangers(kube: KubeClient, namespace: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for resource, body in FOREIGN:
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        made = await kube._json("create", resource, resource.path(namespace), query={"fieldManager": "stranger"},
                                body=full)
        if resource is not SECRET:  # which the operator may not read, nor does the study
            found.setdefault(resource.plural, {})[body["metadata"]["name"]] = oracles.kept(made)
    return found
