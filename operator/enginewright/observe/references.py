"""Which model uses which engine, in all namespaces at once: what the collector of unused engines looks at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog
from pydantic import ValidationError

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, JOB, LEASE, OPTIMISED_MODEL, Resource
from enginewright.core import labels
from enginewright.core.access import access_of
from enginewright.core.collect import Access, CollectorJob, EngineReferences, named
from enginewright.core.collect_captures import CaptureReferences, CapturesJob, Place
from enginewright.core.config import DefaultStore
from enginewright.core.default_store import with_store
from enginewright.core.manifests import record_mark
from enginewright.core.manifests.captures import capture_mark
from enginewright.core.observed import LeaseView
from enginewright.core.spec import StoreSpec
from enginewright.core.spec.base import in_bucket
from enginewright.observe.fields import Raw, annotations_of, entries, is_deleting, name_of, owner_model, section, uid_of
from enginewright.observe.views import job_view, lease_view

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ReferenceReader:
    def __init__(self, kube: KubeClient, wall: Callable[[], datetime], namespaces: Sequence[str],
                 store: DefaultStore) -> None:
        """``store`` is that of objects that name none."""
        self._kube = kube
        self._store = store
        self._wall = wall
        self._namespaces = tuple(namespaces)

    async def read(self) -> list[EngineReferences]:
        """Of every namespace, with what all of them refer to. Of several that are named, those that are refused are
        left out: one that was deleted, with its Role, does not take the others along. Raises
        :class:`~enginewright.clients.errors.ClientError`."""
        found, complete = list[EngineReferences](), True
        for where in self._namespaces or (None,):
            try:
                found += await self._read(where)
            except RefusedError as error:
                if where is None:
                    raise
                complete = False
                log.warning("the collector of unused engines is off", namespace=where, error=str(error))
        everywhere = frozenset[str]().union(*(one.referenced for one in found))
        complete = complete and all(one.settled for one in found)
        return [replace(one, everywhere=everywhere, all_settled=complete) for one in found]

    async def _read(self, where: str | None) -> list[EngineReferences]:
        """Records first, then what refers to them: a model that comes later is seen. Of what carries its fingerprint as
        an annotation the apiserver sends metadata alone; of each object only what is needed here is kept."""
        records = await self._all(where, CONFIG_MAP, record_mark, f"{labels.ENGINE}=true", metadata=True)
        captures = await self._all(where, CONFIG_MAP, capture_mark, f"{labels.CAPTURES}=true", metadata=True)
        jobs = await self._all(where, JOB, carried, labels.STEP, metadata=True)
        leases = await self._all(where, LEASE, claim, f"{labels.BUILDS}=true")
        deployments = await self._all(where, DEPLOYMENT, serving, labels.MODEL, metadata=True)
        removers = await self._all(where, JOB, captures_job, f"{labels.STEP}={labels.COMPONENT_CAPTURES}")
        collectors = await self._all(where, JOB, collector_job, f"{labels.STEP}={labels.COMPONENT_GC}")
        models = await self._all(where, OPTIMISED_MODEL, partial(wish, store=self._store))
        now = self._wall()
        return [
            EngineReferences(
                namespace=name,
                now=now,
                records=tuple(filter(None, records[name])),
                referenced=frozenset().union(*(one.fingerprints for one in models[name]),
                                             (one.fingerprint for one in deployments[name]),
                                             jobs[name], (one.fingerprint for one in leases[name])) - {""},
                settled=all(one.spoken for one in models[name]),
                asked=asked(models[name]),
                jobs=tuple(filter(None, collectors[name])),
                leases=tuple(replace(one.lease, building=one.fingerprint in jobs[name])
                             for one in leases[name] if not one.owned),
                captures=CaptureReferences(
                    namespace=name, now=now,
                    records=tuple(filter(None, captures[name])),
                    capturing=frozenset(filter(None, (*(one.captures for one in models[name]),
                                                      *(one.captures for one in deployments[name])))),
                    claims={one.store_uri: one.claim_uid for one in records[name] if one and one.claim_uid},
                    jobs=tuple(filter(None, removers[name]))),
            )
            for name in sorted({*records, *collectors, *models, *captures, *deployments, *removers, *jobs, *leases})
        ]

    async def _all(self, where: str | None, resource: Resource, keep: Callable[[Raw], T], selector: str = "", *,
                   metadata: bool = False) -> defaultdict[str, list[T]]:
        """What ``keep`` makes of each object, by namespace."""
        def kept(raw: Raw) -> tuple[str, T]:
            return str(section(raw, "metadata").get("namespace")), keep(raw)

        found: defaultdict[str, list[T]] = defaultdict(list)
        for name, one in await self._kube.gather(resource, where, kept, labels=selector, metadata=metadata):
            found[name].append(one)
        return found


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What an object says: the ``fingerprints`` that its status names, whether that speaks of the newest spec, as whom
    the spec uses which bucket, and where its requests are to be captured."""

    fingerprints: frozenset[str]
    spoken: bool
    bucket: tuple[str, Access] | None
    captures: Place | None = None


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a Deployment of a model says: the ``fingerprint`` of its engine, and where its replicas capture requests."""

    fingerprint: str
    captures: Place | None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The ``lease`` of a build, of which engine, and whether an object owns it."""

    fingerprint: str
    lease: LeaseView
    owned: bool


def claim(raw: Raw) -> Claim:
    owned = bool(entries(raw, "metadata", "ownerReferences")) or is_deleting(raw)
    return Claim(fingerprint=carried(raw), lease=lease_view(raw), owned=owned)


def wish(model: Raw, store: DefaultStore) -> Wish:
    return Wish(fingerprints=frozenset(named(section(model, "status"))), spoken=has_spoken(model),
                bucket=_bucket(model, store), captures=_captures(model, store))


def serving(raw: Raw) -> Serving:
    annotations = annotations_of(raw)
    marks = section(raw, "metadata").get("labels") or {}
    model = str(marks.get(labels.FLEET) or marks.get(labels.MODEL) or "")
    place = (model, str(annotations.get(labels.STORE_URI) or "")) if labels.CAPTURES in annotations else None
    return Serving(fingerprint=carried(raw), captures=place)


def carried(raw: Raw) -> str:
    """The fingerprint on a revision, a lease or a build's Job; empty where there is none."""
    return str(annotations_of(raw).get(labels.FINGERPRINT_FULL) or "")


def asked(wishes: Iterable[Wish]) -> dict[str, frozenset[Access]]:
    """As whom the specs use each bucket that they name, by its URI."""
    found: defaultdict[str, set[Access]] = defaultdict(set)
    for uri, access in (one.bucket for one in wishes if one.bucket):
        found[uri].add(access)
    return {uri: frozenset(ways) for uri, ways in found.items()}


def _bucket(model: Raw, default: DefaultStore) -> tuple[str, Access] | None:
    """None also for a spec that makes no sense, and for an object on its way out, with its Secret perhaps."""
    try:
        store = StoreSpec.model_validate(section(dict(with_store(section(model, "spec"), default)), "store"))
    except ValidationError:
        return None
    if not in_bucket(store.uri) or is_deleting(model):
        return None
    return store.uri, tuple(sorted(access_of(store).items()))


def _captures(model: Raw, default: DefaultStore) -> Place | None:
    """That of the fleet for one of its classes. None for an object on its way out: what it captured is to go."""
    spec = section(model, "spec")
    if is_deleting(model) or section(spec, "quality").get("capture") is None:
        return None
    return owner_model(model) or name_of(model), str(section(dict(with_store(spec, default)), "store").get("uri") or "")


def has_spoken(model: Raw) -> bool:
    """Whether status speaks of the newest spec. An object on its way out wants nothing new."""
    observed, newest = section(model, "status").get("observedGeneration"), section(model, "metadata").get("generation")
    return is_deleting(model) or observed == newest


def collector_job(raw: Raw) -> CollectorJob | None:
    """None for one that goes."""
    if is_deleting(raw):
        return None
    view = job_view(raw, (), None, None)
    return CollectorJob(
        name=name_of(raw),
        uid=uid_of(raw),
        store_uri=str(annotations_of(raw).get(labels.STORE_URI) or ""),
        engines=tuple(filter(None, str(annotations_of(raw).get(labels.ENGINES) or "").split(","))),
        live=view.live,
        succeeded=view.succeeded,
    )


def captures_job(raw: Raw) -> CapturesJob | None:
    """None for one that goes."""
    if is_deleting(raw):
        return None
    view, annotations = job_view(raw, (), None, None), annotations_of(raw)
    return CapturesJob(
        name=name_of(raw), uid=uid_of(raw), live=view.live, succeeded=view.succeeded,
        place=(str(annotations.get(labels.CAPTURES_OF) or ""), str(annotations.get(labels.STORE_URI) or "")),
        everything=labels.CAPTURES_GO in annotations)
