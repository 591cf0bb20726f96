"""What a pass over a fleet may look at: the objects of its classes, its Service, and who answers behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import Object
from enginewright.clients.resources import ENDPOINT_SLICE, OPTIMISED_MODEL, SERVICE
from enginewright.core import labels
from enginewright.core.internal import joined
from enginewright.core.observed import EndpointView, FleetView, MemberView, ObjectView, ServiceView, Version
from enginewright.core.spec import Spec
from enginewright.core.spec.fleet import classes_of, member_name
from enginewright.observe.fields import (
    Raw,
    annotations_of,
    controlled_by,
    is_deleting,
    labels_of,
    name_of,
    owner_model,
    section,
    uid_of,
)
from enginewright.observe.reads import Reads
from enginewright.observe.views import endpoint_views, service_view, version_of

SERVICE_NAME = "kubernetes.io/service-name"


async def observe_members(reads: Reads, view: ObjectView, spec: Spec | None) -> FleetView:
    """Of this very fleet; and of the classes that have no object yet, whose name is taken. An object of a class that
    that lost its label or owner to an edit is the fleet's all the same, and written again."""
    found = await reads.list_all(OPTIMISED_MODEL, view.namespace, labels=f"{labels.FLEET}={view.name}")
    mine = {name_of(raw): member_view(raw) for raw in found if controlled_by(raw, view.uid)}
    taken = set()
    for entry in classes_of(spec) if spec else ():
        name = member_name(view.name, entry.name)
        raw = None if name in mine else await _get(reads, view.namespace, name)
        if raw is not None and _strayed(raw, view):
            mine[name] = replace(member_view(raw), hash="", class_name=entry.name)
        elif raw is not None:
            taken.add(name)
    return FleetView(members=tuple(mine[name] for name in sorted(mine)), taken=frozenset(taken))


@dataclass(frozen=True, kw_only=True)
class Front:
    """The Service of a fleet, None before it is there, and who is behind it; ``applied``, ``versions`` and ``specs``
    are as in ``Observed``."""

    service: ServiceView | None = None
    endpoints: tuple[EndpointView, ...] = ()
    applied: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    specs: Mapping[str, Raw] = field(default_factory=dict)


async def observe_front(reads: Reads, view: ObjectView) -> Front:
    services = await reads.list_all(SERVICE, view.namespace, labels=f"{labels.MODEL}={view.name}")
    slices = await reads.list_all(ENDPOINT_SLICE, view.namespace, labels=f"{SERVICE_NAME}={view.name}")
    versions = {f"{SERVICE.kind}/{name_of(raw)}": version_of(raw) for raw in services}
    front = _front(services, view)
    if front is None:
        return Front(versions=versions)
    key = f"{SERVICE.kind}/{view.name}"
    return Front(service=service_view(front), endpoints=endpoint_views(slices, {}),
                 applied={key: annotations_of(front).get(labels.MANIFEST_HASH, "")},
                 versions=versions, specs={key: section(front, "spec")})


def member_view(raw: Raw) -> MemberView:
    return MemberView(
        name=name_of(raw),
        uid=uid_of(raw),
        class_name=labels_of(raw).get(labels.CLASS, ""),
        generation=int(section(raw, "metadata").get("generation") or 0),
        deleting=is_deleting(raw),
        hash=annotations_of(raw).get(labels.MANIFEST_HASH, ""),
        version=version_of(raw).version,
        annotations=annotations_of(raw),
        spec=section(raw, "spec"),
        status=joined(raw.get("status")),
    )


def _front(services: Iterable[Object], view: ObjectView) -> Object | None:
    return next((raw for raw in services if name_of(raw) == view.name and controlled_by(raw, view.uid)), None)


def _strayed(raw: Raw, view: ObjectView) -> bool:
    """Of this fleet without its label, or left without an owner by one of this name (``--cascade=orphan``)."""
    orphan = not owner_model(raw) and labels_of(raw).get(labels.FLEET) == view.name
    return orphan or controlled_by(raw, view.uid)


async def _get(reads: Reads, namespace: str, name: str) -> Object | None:
    try:
        return await reads.get(OPTIMISED_MODEL, namespace, name)
    except NotFoundError:
        return None
