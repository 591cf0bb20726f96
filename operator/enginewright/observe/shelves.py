"""Who uses which engine, in all namespaces at once: what the collector of unused engines looks at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import structlog
from pydantic import ValidationError

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, JOB, LEASE, OPTIMISED_MODEL, Resource
from enginewright.core import labels
from enginewright.core.access import access_of
from enginewright.core.collect import Access, CollectorJob, Shelves, named
from enginewright.core.decide.jobs import live
from enginewright.core.manifests import record_mark
from enginewright.core.spec import StoreSpec
from enginewright.core.spec.base import in_bucket
from enginewright.observe.fields import Raw, annotations_of, is_deleting, labels_of, name_of, section, uid_of
from enginewright.observe.views import job_view

log = structlog.get_logger(__name__)


class ShelfReader:
    def __init__(self, kube: KubeClient, wall: Callable[[], datetime], namespaces: Sequence[str]) -> None:
        self._kube = kube
        self._wall = wall
        self._namespaces = tuple(namespaces)

    async def read(self) -> list[Shelves]:
        """Of every namespace, with what all of them refer to. Of several that are named, those that are refused are
        left out: one that was deleted, with its Role, does not take the others along. Raises
        :class:`~enginewright.clients.errors.ClientError`."""
        found, complete = list[Shelves](), True
        for where in self._namespaces or (None,):
            try:
                found += await self._read(where)
            except RefusedError as error:
                if where is None:
                    raise
                complete = False
                log.warning("unused engines are not looked for", namespace=where, error=str(error))
        everywhere = frozenset[str]().union(*(one.referenced for one in found))
        complete = complete and all(one.settled for one in found)
        return [replace(one, everywhere=everywhere, all_settled=complete) for one in found]

    async def _read(self, where: str | None) -> list[Shelves]:
        """Records first, then who refers to them: whoever comes later is seen."""
        records = await self._all(where, CONFIG_MAP, f"{labels.ENGINE}=true")
        if not records and where is None:
            return []
        jobs = await self._all(where, JOB, labels.STEP)
        deployments = await self._all(where, DEPLOYMENT, labels.MODEL)
        leases = await self._all(where, LEASE, f"{labels.BUILDS}=true")
        models = await self._all(where, OPTIMISED_MODEL, "")
        now = self._wall()
        return [
            Shelves(
                namespace=name,
                now=now,
                records=tuple(mark for raw in records[name] if (mark := record_mark(raw)) is not None),
                referenced=referenced(models[name], [*deployments[name], *leases[name], *jobs[name]]),
                settled=all(map(has_spoken, models[name])),
                asked=asked(models[name]),
                jobs=tuple(map(collector_job, filter(is_collector, jobs[name]))),
            )
            for name in sorted({*records, *jobs, *deployments, *leases, *models})
        ]

    async def _all(self, where: str | None, resource: Resource, selector: str) -> defaultdict[str, list[Object]]:
        """By namespace."""
        found: defaultdict[str, list[Object]] = defaultdict(list)
        for raw in await self._kube.list_all(resource, where, labels=selector):
            found[str(section(raw, "metadata").get("namespace"))].append(raw)
        return found


def referenced(models: Iterable[Raw], carriers: Iterable[Raw]) -> frozenset[str]:
    """Fingerprints that a status names, and those that revisions, leases and builds carry."""
    found = {str(annotations_of(raw).get(labels.FINGERPRINT_FULL) or "") for raw in carriers}
    for raw in models:
        found |= named(section(raw, "status"))
    return frozenset(found - {""})


def asked(models: Iterable[Raw]) -> dict[str, frozenset[Access]]:
    """As whom the specs use each bucket that they name, by its URI. One that makes no sense, or is on its way out with
    its Secret perhaps, has no say."""
    found: defaultdict[str, set[Access]] = defaultdict(set)
    for raw in models:
        try:
            store = StoreSpec.model_validate(section(raw, "spec", "store"))
        except ValidationError:
            continue
        if in_bucket(store.uri) and not is_deleting(raw):
            found[store.uri].add(tuple(sorted(access_of(store).items())))
    return {uri: frozenset(ways) for uri, ways in found.items()}


def has_spoken(model: Raw) -> bool:
    """Whether status speaks of the newest spec. An object on its way out wants nothing new."""
    told, newest = section(model, "status").get("observedGeneration"), section(model, "metadata").get("generation")
    return is_deleting(model) or told == newest


def is_collector(job: Raw) -> bool:
    return labels_of(job).get(labels.STEP) == labels.COMPONENT_GC and not is_deleting(job)


def collector_job(raw: Raw) -> CollectorJob:
    view = job_view(raw, (), None, None)
    return CollectorJob(
        name=name_of(raw),
        uid=uid_of(raw),
        store_uri=str(annotations_of(raw).get(labels.STORE_URI) or ""),
        engines=tuple(filter(None, str(annotations_of(raw).get(labels.ENGINES) or "").split(","))),
        live=live(view),
        succeeded=view.succeeded,
    )
