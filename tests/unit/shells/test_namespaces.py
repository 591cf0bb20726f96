"""An operator of several namespaces of which one is refused: deleted, or its Role was. The others do not suffer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import OPTIMISED_MODEL, Resource
from enginewright.core.config import DefaultStore
from enginewright.handlers.watch import settings
from enginewright.observe.keys import Key
from enginewright.observe.references import ReferenceReader
from enginewright.reconcile.known import Known, Needs
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.queue import WorkQueue
from enginewright.reconcile.resync import Resync


class Kube:
    """Each namespace has one object of each kind; those that begin with ``gone`` are refused."""

    async def gather(
        self, resource: Resource, namespace: str | None, keep: Callable[[Object], Any], **_: Any
    ) -> list[Any]:
        return [keep(raw) for raw in self.listed(resource, namespace)]

    def listed(self, _: Resource, namespace: str | None) -> list[Object]:
        if str(namespace).startswith("gone"):
            raise RefusedError("403 forbidden", call=f"list {namespace}", status=403)
        return [{"metadata": {"namespace": namespace, "name": "m"}}]


KUBE = cast(KubeClient, Kube())


@pytest.fixture
def resync() -> Callable[..., tuple[Resync, WorkQueue[Key], Metrics]]:
    def make(*namespaces: str) -> tuple[Resync, WorkQueue[Key], Metrics]:
        queue: WorkQueue[Key] = WorkQueue()
        known, metrics = Known(), Metrics()
        known.remember(Key("gone", "x"), Needs())
        return Resync(KUBE, queue, known, metrics, namespaces=namespaces, period=300), queue, metrics

    return make


async def test_the_others_are_looked_after(resync: Callable[..., tuple[Resync, WorkQueue[Key], Metrics]]) -> None:
    looking, queue, metrics = resync("a", "gone", "b")
    await looking.once()
    assert [await queue.get() for _ in range(len(queue))] == [Key("a", "m"), Key("b", "m")]
    assert looking.last is not None
    await looking.once()
    assert metrics.missed.labels("deleted")._value.get() == 0, "what cannot be seen is not gone"
    queue.close()


async def test_all_refused_is_no_resync(resync: Callable[..., tuple[Resync, WorkQueue[Key], Metrics]]) -> None:
    looking, _, _ = resync("gone", "gone-too")
    with pytest.raises(RefusedError):
        await looking.once()
    assert looking.last is None


async def test_unused_engines_of_the_others_are_looked_for() -> None:
    reader = ReferenceReader(KUBE, lambda: datetime.now(UTC), ("a", "gone", "b"), DefaultStore())
    assert [seen.namespace for seen in await reader.read()] == ["a", "b"]


class Served(Kube):
    """In ``b`` an object has an engine, of which the record is in ``a``."""

    def listed(self, resource: Resource, namespace: str | None) -> list[Object]:
        found = super().listed(resource, namespace)
        if resource is OPTIMISED_MODEL and namespace == "b":
            found[0]["status"] = {"engine": {"fingerprint": "f" * 64}}
        return found


@pytest.mark.parametrize(("namespaces", "complete"), [(("a", "b"), True), (("a", "gone", "b"), False)])
async def test_what_is_wanted_anywhere_is_told_to_all(namespaces: tuple[str, ...], complete: bool) -> None:
    reader = ReferenceReader(cast(KubeClient, Served()), lambda: datetime.now(UTC), namespaces, DefaultStore())
    found = {seen.namespace: seen for seen in await reader.read()}
    assert found["a"].referenced == frozenset()
    assert found["a"].everywhere == found["b"].referenced == {"f" * 64}
    assert found["a"].all_settled == complete


def test_kopf_gives_no_request_up() -> None:
    """It would end, and all its watches with it."""
    waits = settings().networking.error_backoffs
    assert not isinstance(waits, float | int)
    for _ in range(2):
        assert max(itertools.islice(waits, 1000)) == 30
        assert len(list(itertools.islice(waits, 1000))) == 1000
