"""Which engines no model uses any more, and what is done about them: pure, for the stores of one namespace.

An engine goes in steps that are far apart, so that a model that wants it meanwhile keeps it:

1. no model refers to it: its record is marked with the time;
2. the grace period is over: the record counts as absent, so that a model that wants the engine now starts a build Job,
   which says so in the store and finds it there;
3. every pass that still saw the record has ended, and every object has said what it wants: a Job removes the files;
4. the Job has ended well: the record goes.

A model that refers to it in steps 1 and 2 takes the mark away; from step 3 on the store itself keeps what a build
wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from enginewright.core.collect_captures import CaptureReferences
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import gc_job
from enginewright.core.manifests.common import short_hash
from enginewright.core.observed import LeaseView, RecordMark
from enginewright.core.plan import Action, Create, Delete, MarkRecord
from enginewright.core.spec.base import in_bucket

# Names of a Secret and of a ServiceAccount, as sorted pairs.
Access = tuple[tuple[str, str], ...]
# Longer than any pass: what one saw of a record is history by then.
SETTLE = timedelta(seconds=600)
# Of one Job: its arguments stay short.
ENGINES_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class CollectorJob:
    """A Job that removes ``engines`` from the store ``store_uri``."""

    name: str
    uid: str
    store_uri: str
    engines: tuple[str, ...]
    live: bool
    succeeded: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineReferences:
    """The stores of one namespace. ``referenced`` are the fingerprints that any object, revision or build names,
    whichever store it uses; ``settled`` says that every object has said what its newest spec wants. A bucket may be the
    store of several namespaces: for it count those of ``everywhere``, and ``all_settled``. ``asked`` has as whom the
    objects of this namespace use each bucket that they name, by its URI. ``captures`` is of requests that
    were captured into the namespace's stores, and ``leases`` are those of builds that have no owner: both go by rules
    of their own."""

    namespace: str
    now: datetime
    records: tuple[RecordMark, ...] = ()
    referenced: frozenset[str] = frozenset()
    settled: bool = True
    everywhere: frozenset[str] = frozenset()
    all_settled: bool = True
    asked: Mapping[str, frozenset[Access]] = field(default_factory=dict)
    jobs: tuple[CollectorJob, ...] = ()
    captures: CaptureReferences | None = None
    leases: tuple[LeaseView, ...] = ()

    def wanted(self, record: RecordMark) -> bool:
        engine = record.fingerprint
        return engine in self.referenced or (in_bucket(record.store_uri) and engine in self.everywhere)

    def reported(self, record: RecordMark) -> bool:
        """Whether every object that could ask for it has said what it asks for."""
        return self.settled and (self.all_settled or not in_bucket(record.store_uri))

    def access(self, record: RecordMark) -> Access:
        """As whom the store of ``record`` is used. A Secret that was given another name since is gone under the one
        that the record knows. Where objects differ, the record's counts as long as one of them says the same; then the
        first by name of those that ask for the same kinds of it, and of all."""
        asked = self.asked.get(record.store_uri)
        if not asked or record.access in asked:
            return record.access
        kinds = [kind for kind, _ in record.access]
        return min(asked, key=lambda access: ([kind for kind, _ in access] != kinds, access))


def named(status: Mapping[str, Any]) -> set[str]:
    """Fingerprints that an object's status refers to: of what it asks for, shows, builds, or may go back to."""
    blocks = [status, *(status.get(name) for name in ("engine", "build"))]
    revisions = status.get("revisions")
    if isinstance(revisions, list):
        blocks += [entry for entry in revisions if isinstance(entry, Mapping) and entry.get("promotionTime")]
    return {str(block["fingerprint"]) for block in blocks if isinstance(block, Mapping) and block.get("fingerprint")}


def retired(since: datetime | None, now: datetime, config: OperatorConfig) -> bool:
    """Whether a record that is marked ``since`` counts as absent."""
    return config.collect_engines and since is not None and now - since >= timedelta(seconds=config.engine_grace)


def collect(seen: EngineReferences, config: OperatorConfig) -> tuple[Action, ...]:
    if not config.collect_engines:
        return ()
    removing = {(job.store_uri, engine) for job in seen.jobs if job.live for engine in job.engines}
    marks = [
        action
        for record in seen.records
        if (record.store_uri, record.fingerprint) not in removing
        for action in _mark(seen, record)
    ]
    return (*_finish(seen), *marks, *_start(seen, config))


def _mark(seen: EngineReferences, record: RecordMark) -> Iterator[Action]:
    referenced = seen.wanted(record)
    ending = any(not job.live and job.succeeded and record.fingerprint in job.engines for job in seen.jobs)
    if referenced and record.unreferenced and not ending:
        yield MarkRecord(name=record.name, version=record.version, since=None, why="a model wants it again")
    elif not referenced and record.unreferenced is None:
        yield MarkRecord(name=record.name, version=record.version, since=seen.now, why="no model wants this engine")


def _finish(seen: EngineReferences) -> Iterator[Action]:
    """Records of engines that are gone, but none that a build has made again: those are not marked."""
    for job in seen.jobs:
        if job.live:
            continue
        for record in seen.records:
            mine = record.store_uri == job.store_uri and record.fingerprint in job.engines
            if job.succeeded and mine and record.unreferenced:
                yield Delete(api_version="v1", kind="ConfigMap", name=record.name, version=record.version,
                             why=f"Job {job.name} removed its engine")
        yield Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why="it has ended")


def _start(seen: EngineReferences, config: OperatorConfig) -> Iterator[Action]:
    """One Job a store at a time."""
    busy = {job.store_uri for job in seen.jobs}
    due: dict[tuple[str, Access], list[RecordMark]] = {}
    for record in seen.records:
        settled = record.unreferenced is not None and retired(record.unreferenced, seen.now - SETTLE, config)
        if seen.reported(record) and settled and not seen.wanted(record) and record.store_uri not in busy:
            due.setdefault((record.store_uri, seen.access(record)), []).append(record)
    # In another order each round: a Job whose Secret is gone fails forever, and must not be in the way of the others.
    for (store_uri, access), records in sorted(due.items(), key=lambda item: short_hash([str(seen.now), *item[0]], 16)):
        if store_uri in busy:  # as another, which has its turn
            continue
        busy.add(store_uri)
        chosen = records[:ENGINES_AT_ONCE]
        engines = tuple(sorted(record.fingerprint for record in chosen))
        yield Create(manifest=gc_job(seen.namespace, store_uri, chosen[0].claim_uid, engines, config,
                                     dict(access)),
                     why=f"no model has wanted {len(engines)} engines for {config.engine_grace} s")
