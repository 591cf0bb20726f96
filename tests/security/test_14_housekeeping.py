"""Finding 14: housekeeping and the resync hold lists of whole objects, at 10,000 more than the operator's memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP, OPTIMISED_MODEL, Resource
from enginewright.core import labels
from enginewright.core.config import DefaultStore
from enginewright.observe.keys import Key
from enginewright.observe.references import ReferenceReader
from enginewright.reconcile.known import Known
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.queue import WorkQueue
from enginewright.reconcile.resync import Resync

COUNT = 10_000
# Of all that Python has allocated; the JSON of as many objects is 285 MiB of each kind.
MOST = 40 << 20
# Of a round, which reads whole objects: as many of a kind are 71 MiB of JSON. What it keeps of each is the difference.
FEWER, MOST_OF_FEWER = 2_500, 20 << 20
FILLER = json.dumps({str(number): "x" * 580 for number in range(50)})


def item(number: int, *, metadata: bool) -> str:
    """As JSON, of some 29 KiB, as a minimal object with the status of one that serves."""
    fingerprint = f"{number:064x}"
    meta = json.dumps({
        "name": f"m-{number}", "namespace": f"team-{number % 100}", "uid": f"u-{number}", "resourceVersion": "1",
        "generation": 1,
        "annotations": {labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: "pvc://store"},
        "ownerReferences": [{"kind": "PersistentVolumeClaim", "name": "store", "uid": "c"}],
    })
    if metadata:
        return f'{{"metadata":{meta}}}'
    return (f'{{"metadata":{meta},"spec":{{"store":{{"uri":"pvc://store"}}}},"status":{{"observedGeneration":1,'
            f'"fingerprint":"{fingerprint}","filler":{FILLER}}}}}')


class Pages(KubeClient):
    """``count`` objects of every kind, made page by page. ``calls`` has, of each page, the kind, whether it was of
    metadata, and its limit; ``expires`` are the calls, by number, that find their continue token expired."""

    def __init__(self, count: int = COUNT, expires: frozenset[int] = frozenset()) -> None:
        super().__init__(Configuration())
        self.count, self.expires = count, expires
        self.calls: list[tuple[str, bool, int]] = []

    async def _call(self, verb: str, resource: Resource, method: str, path: str, *,
                    query: Mapping[str, str] | None = None, accept: str = "", **_: Any) -> tuple[str, bytes]:
        query = query or {}
        metadata, limit = "PartialObjectMetadataList" in accept, int(query["limit"])
        self.calls.append((resource.plural, metadata, limit))
        if len(self.calls) in self.expires:
            raise RefusedError("410 the token has expired", call=path, status=410, reason="Expired")
        start = int(query.get("continue", 0))
        end = min(start + limit, self.count)
        if query.get("labelSelector") == f"{labels.STEP}={labels.COMPONENT_GC}":
            end = start = self.count
        body = ",".join(item(number, metadata=metadata) for number in range(start, end))
        more = {"continue": str(end)} if end < self.count else {}
        return "list", f'{{"metadata":{json.dumps(more)},"items":[{body}]}}'.encode()


@pytest.fixture
def peak() -> Any:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


async def test_a_round_over_thousands_of_each_stays_small(peak: Any) -> None:
    kube = Pages(FEWER)
    found = await ReferenceReader(kube, lambda: datetime.now(UTC), (), DefaultStore()).read()
    assert sum(len(one.records) for one in found) == FEWER
    assert sum(len(one.referenced) for one in found) == FEWER
    assert all(one.settled for one in found)
    assert peak() < MOST_OF_FEWER, f"{peak() >> 20} MiB"


async def test_the_resync_of_ten_thousand_stays_small(peak: Any) -> None:
    kube, known = Pages(), Known()
    queue: WorkQueue[Key] = WorkQueue()
    await Resync(kube, queue, known, Metrics(), namespaces=(), period=300).once()
    assert len(queue) == COUNT
    assert peak() < MOST, f"{peak() >> 20} MiB"
    assert {metadata for _, metadata, _ in kube.calls} == {True}


async def test_only_what_needs_specs_is_sent_whole() -> None:
    kube = Pages(10)
    await ReferenceReader(kube, lambda: datetime.now(UTC), (), DefaultStore()).read()
    whole = {(kind, metadata) for kind, metadata, _ in kube.calls}
    # Of Jobs only those that remove engines; of Leases, which are as small, what they were renewed at.
    assert whole == {("configmaps", True), ("jobs", True), ("deployments", True), ("leases", False),
                     ("jobs", False), ("optimisedmodels", False)}


async def test_a_list_whose_token_expired_begins_again() -> None:
    kube = Pages(250, expires=frozenset({3}))
    found = await kube.list_all(OPTIMISED_MODEL, None)
    assert [one["metadata"]["name"] for one in found] == [f"m-{number}" for number in range(250)]
    assert len(kube.calls) == 6


async def test_one_that_expires_for_ever_is_given_up_until_later() -> None:
    kube = Pages(250, expires=frozenset(range(2, 100, 2)))
    with pytest.raises(TransientError, match="expired"):
        await kube.list_all(OPTIMISED_MODEL, None)


async def test_another_refusal_is_not_tried_again() -> None:
    kube = Pages(250)

    async def forbidden(*_: Any, **__: Any) -> tuple[str, bytes]:
        kube.calls.append(("", False, 0))
        raise RefusedError("403", status=403)

    kube._call = forbidden  # type: ignore[method-assign]
    with pytest.raises(ClientError):
        await kube.list_all(CONFIG_MAP, None)
    assert len(kube.calls) == 1
