"""What a pass over a fleet may look at: the objects of its classes, its Service, and who answers behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import ENDPOINT_SLICE, OPTIMISED_MODEL, SERVICE
from enginewright.core import labels
from enginewright.core.observed import EndpointView, FleetView, MemberView, ObjectView, ServiceView
from enginewright.core.spec import Spec
from enginewright.core.spec.fleet import classes_of, member_name
from enginewright.observe.fields import (
    Raw,
    annotations_of,
    controlled_by,
    is_deleting,
    labels_of,
    name_of,
    section,
    uid_of,
)
from enginewright.observe.views import endpoint_views, service_view

SERVICE_NAME = "kubernetes.io/service-name"


async def observe_members(kube: KubeClient, view: ObjectView, spec: Spec | None) -> FleetView:
    """Of this very fleet; and of the classes that have no object yet, whose name is taken."""
    found = await kube.list_all(OPTIMISED_MODEL, view.namespace, labels=f"{labels.FLEET}={view.name}")
    mine = tuple(member_view(raw) for raw in sorted(found, key=name_of) if controlled_by(raw, view.uid))
    there = {member.name for member in mine}
    wanted = {member_name(view.name, entry.name) for entry in classes_of(spec)} if spec else set()
    taken = [name for name in sorted(wanted - there) if await _exists(kube, view.namespace, name)]
    return FleetView(members=mine, taken=frozenset(taken))


@dataclass(frozen=True, kw_only=True)
class Front:
    """The Service of a fleet, None before it is there, and who is behind it; ``applied`` is as in ``Observed``."""

    service: ServiceView | None = None
    endpoints: tuple[EndpointView, ...] = ()
    applied: Mapping[str, str] = field(default_factory=dict)


async def observe_front(kube: KubeClient, view: ObjectView) -> Front:
    services = await kube.list_all(SERVICE, view.namespace, labels=f"{labels.MODEL}={view.name}")
    slices = await kube.list_all(ENDPOINT_SLICE, view.namespace, labels=f"{SERVICE_NAME}={view.name}")
    front = _front(services, view)
    if front is None:
        return Front()
    # One that somebody has turned elsewhere is written again.
    right = section(front, "spec", "selector") == labels.fleet_selector(view.name)
    applied = {f"{SERVICE.kind}/{view.name}": annotations_of(front).get(labels.MANIFEST_HASH, "") if right else ""}
    return Front(service=service_view(front), endpoints=endpoint_views(slices, {}), applied=applied)


def member_view(raw: Raw) -> MemberView:
    return MemberView(
        name=name_of(raw),
        uid=uid_of(raw),
        class_name=labels_of(raw).get(labels.CLASS, ""),
        generation=int(section(raw, "metadata").get("generation") or 0),
        deleting=is_deleting(raw),
        hash=annotations_of(raw).get(labels.MANIFEST_HASH, ""),
        annotations=annotations_of(raw),
        spec=section(raw, "spec"),
        status=section(raw, "status"),
    )


def _front(services: Iterable[Object], view: ObjectView) -> Object | None:
    return next((raw for raw in services if name_of(raw) == view.name and controlled_by(raw, view.uid)), None)


async def _exists(kube: KubeClient, namespace: str, name: str) -> bool:
    try:
        await kube.get(OPTIMISED_MODEL, namespace, name)
    except NotFoundError:
        return False
    return True
