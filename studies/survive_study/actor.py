"""The node of one namespace: containers are acted, and what builds have proven is remembered."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from enginewright.clients.errors import ClientError, ConflictError, NotFoundError
from enginewright.clients.kube import Object
from enginewright.clients.resources import POD
from enginewright_builder.contract import Outcome
from support.fake_kubelet import BEAT, NODE, REFUSALS, Act, FakeKubelet, Script


@dataclass
class Node(FakeKubelet):
    """``proven`` are the fingerprints of builds that ended well."""

    proven: set[str] = field(default_factory=set)

    async def _status(self, pod: Object, step: str, act: Act) -> Object:
        """A pod without the container that would refuse crashes instead."""
        fits = act not in REFUSALS or len(pod["spec"].get("initContainers") or ()) > REFUSALS[act][0]
        return await super()._status(pod, step, act if fits else "crash")

    async def _outcome(self, pod: Object, step: str, act: Act) -> Outcome:
        outcome = await super()._outcome(pod, step, act)
        if outcome.ok and outcome.fingerprint:
            self.proven.add(outcome.fingerprint)
        return outcome

    def play(self, model: str, step: str, act: Act) -> None:
        script = self.script.models.setdefault(model, Script(digest=self.script.digest))
        setattr(script, step, act)

    def release(self) -> None:
        """From now on all succeeds."""
        for script in self.script.models.values():
            script.resolve = script.ask = script.build = script.server = script.gc = "succeed"

    async def lose(self) -> None:
        """The node goes with all its pods, and comes back empty."""
        with contextlib.suppress(ClientError):
            await self.kube._json("delete", NODE, NODE.path(None, self.node))
        for pod in await self.kube.list_all(POD, self.namespace):
            await self._let_go(pod["metadata"]["name"])
        with contextlib.suppress(ConflictError):
            await self._register(1)
        self._beaten = -BEAT

    async def evict(self, name: str) -> None:
        """As ``kubectl drain`` does it: where a budget allows it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        with contextlib.suppress(ClientError, NotFoundError):
            await self.kube._json("create", POD, POD.path(self.namespace, name, "eviction"), body=body)
