"""Which captured requests are removed, and when: pure, for the stores of one namespace.

Monitors remove what has expired while they run. A Job does it every few hours all the same, as no replica may be there.
Where neither an object asks for captures any more nor a Deployment makes them, another Job removes all of that model:
after a while, in which the last monitor has ended. The record of the captures outlives the object and says where they
lie; it goes when they are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.captures import capture_record
from enginewright.core.manifests.gc_job import captures_job
from enginewright.core.observed import CaptureMark
from enginewright.core.plan import Action, Create, Delete, MarkRecord

# A model's name and the URI of the store that its captures lie in.
Place = tuple[str, str]
SWEEP = timedelta(hours=6)
# Longer than a pass, and than a serving pod takes to end.
SETTLE = timedelta(seconds=600)


@dataclass(frozen=True, kw_only=True)
class CapturesJob:
    """A Job that removes captures of ``place``: all of them with ``everything``, else those that have expired."""

    name: str
    uid: str
    place: Place
    everything: bool
    live: bool
    succeeded: bool = False


@dataclass(frozen=True, kw_only=True)
class CaptureReferences:
    """``capturing`` are the places that an object asks for or a Deployment writes to; ``claims`` has the UID of each
    store's claim by the store's URI, as far as it is known."""

    namespace: str
    now: datetime
    records: tuple[CaptureMark, ...] = ()
    capturing: frozenset[Place] = frozenset()
    claims: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[CapturesJob, ...] = ()


def collect_captures(seen: CaptureReferences, config: OperatorConfig) -> tuple[Action, ...]:
    return (*_finish(seen), *_recorded(seen), *(action for record in seen.records
                                                for action in _next(seen, record, config)))


def _finish(seen: CaptureReferences) -> Iterator[Action]:
    for job in seen.jobs:
        if job.live:
            continue
        for record in seen.records:
            again = record.unreferenced and record.place in seen.capturing
            if job.succeeded and record.place == job.place and not again:
                yield _done(seen, job, record)
        yield Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why="it has ended")


def _done(seen: CaptureReferences, job: CapturesJob, record: CaptureMark) -> Action:
    if job.everything and record.unreferenced:
        return Delete(api_version="v1", kind="ConfigMap", name=record.name, version=record.version,
                      why=f"Job {job.name} removed its captures")
    return MarkRecord(name=record.name, version=record.version, since=seen.now, annotation=labels.CAPTURES_SWEPT,
                      why=f"Job {job.name} removed what had expired")


def _recorded(seen: CaptureReferences) -> Iterator[Action]:
    """A pass makes the record with the Deployment; one that went just then is made here."""
    known = {record.place for record in seen.records}
    for model, store_uri in sorted(seen.capturing - known):
        if claim_uid := seen.claims.get(store_uri):
            yield Create(manifest=capture_record(seen.namespace, claim_uid, store_uri, model),
                         why=f"{model} captures requests")


def _next(seen: CaptureReferences, record: CaptureMark, config: OperatorConfig) -> Iterator[Action]:
    wanted = record.place in seen.capturing
    if wanted and record.unreferenced:  # whatever a Job does: the time until all go begins again
        yield MarkRecord(name=record.name, version=record.version, since=None, why="requests are captured again")
    elif any(job.place == record.place for job in seen.jobs):
        return
    elif not wanted and record.unreferenced is None:
        yield MarkRecord(name=record.name, version=record.version, since=seen.now, why="no requests are captured")
    elif not wanted and record.unreferenced and seen.now - record.unreferenced >= SETTLE:
        yield Create(manifest=captures_job(seen.namespace, record, config, everything=True),
                     why=f"{record.model} captures no requests any more")
    elif wanted and seen.now - record.swept >= SWEEP:
        yield Create(manifest=captures_job(seen.namespace, record, config, everything=False),
                     why="captures may have expired")
