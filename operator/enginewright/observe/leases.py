"""Leases of builds: the object's own by their label, and those of engines that it may ask for by their names. How many
others build in the namespace costs the pass nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from enginewright.clients.kube import Object
from enginewright.clients.resources import JOB, LEASE
from enginewright.core import labels
from enginewright.core.manifests import record_name
from enginewright.core.observed import LeaseView, ObjectView
from enginewright.observe.fields import annotations_of, name_of
from enginewright.observe.reads import Reads, all_of
from enginewright.observe.views import job_view, lease_view


async def own_leases(reads: Reads, view: ObjectView) -> list[Object]:
    """Also those that an object of the same name has left."""
    return await reads.list_all(LEASE, view.namespace, labels=f"{labels.MODEL}={view.name},{labels.BUILDS}=true")


async def leases_of(reads: Reads, view: ObjectView, store_uri: str, own: Iterable[Object], building: Iterable[str],
                    now: datetime) -> Mapping[str, LeaseView]:
    """By fingerprint, of builds into the store: those among the ``own``, and of the engines that others may be
    ``building``. Who looks at records of these engines looks at them later: a builder writes the record, then gives the
    lease up."""
    here = [raw for raw in own if annotations_of(raw).get(labels.STORE_URI) == store_uri]
    found = {annotations_of(raw).get(labels.FINGERPRINT_FULL, ""): raw for raw in here}
    held = {name_of(raw) for raw in here}
    names = {one: record_name(one, store_uri) for one in sorted(building)}
    asked = [one for one in names if names[one] not in held]
    others = await all_of(reads, *(reads.find(LEASE, view.namespace, names[one]) for one in asked))
    found |= {one: raw for one, raw in zip(asked, others, strict=True) if raw is not None}
    return {one: await _lease(reads, view.namespace, one, store_uri, raw, now) for one, raw in found.items()}


async def _lease(reads: Reads, namespace: str, fingerprint: str, store_uri: str, raw: Object, now: datetime
                 ) -> LeaseView:
    """Of one that ran out it counts whether its Job lives all the same: a build does not stop because the operator
    did."""
    lease = lease_view(raw)
    if now - lease.renewed <= timedelta(seconds=lease.seconds):
        return lease
    return lease_view(raw, await _builds(reads, namespace, fingerprint, store_uri))


async def _builds(reads: Reads, namespace: str, fingerprint: str, store_uri: str) -> bool:
    wanted = {labels.STEP: labels.COMPONENT_BUILD, labels.FINGERPRINT: labels.fingerprint_label(fingerprint)}
    jobs = await reads.list_all(JOB, namespace, labels=labels.as_selector(wanted))
    here = [raw for raw in jobs if annotations_of(raw).get(labels.STORE_URI) == store_uri]
    return any(job_view(raw, (), None, None).live for raw in here)
