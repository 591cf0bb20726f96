"""Server-side apply of what the operator created plainly.

To create an object that is not there costs the apiserver half as much as to apply it. It then has the operator as the
manager that updated its fields, not as the one that applied them. Were it applied as it is, a field that the manifest
does not state any more would stay, as the update still owns it. So ownership is handed over first, in a write of its
own: a kill after it leaves an object that the next pass applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from enginewright.clients.errors import ConflictError, NotFoundError, RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import DEPLOYMENT, SERVICE, resource_of_manifest
from enginewright.core.labels import FIELD_MANAGER
from enginewright.core.plan import Apply

# Kinds that are created where there is none. The operator may read each by name.
PLAIN: Final = frozenset({DEPLOYMENT.kind, SERVICE.kind})
# How often ownership is tried to be handed over while others write the object: a controller writes its status at any
# moment, which concerns nothing that is applied.
TRIES: Final = 5
log = structlog.get_logger(__name__)


async def reapply(kube: KubeClient, namespace: str, action: Apply) -> None:
    """Applies ``action``, whose object is of a kind of :data:`PLAIN`. Raises
    :class:`~enginewright.clients.errors.ClientError`."""
    version = action.version
    for tries in range(TRIES, 0, -1):
        try:
            version = await _hand_over(kube, namespace, action)
            break
        except ConflictError:
            if action.version or tries == 1:
                raise
    await kube.apply(action.manifest, namespace=namespace, force=action.force, uid=action.uid, version=version)


async def _hand_over(kube: KubeClient, namespace: str, action: Apply) -> str:
    """The resourceVersion to apply with. Raises :class:`~enginewright.clients.errors.ConflictError` where the object is
    another one than the pass saw, or was written just now."""
    resource, name = resource_of_manifest(action.manifest), str(action.manifest["metadata"]["name"])
    try:
        metadata = (await kube.get_metadata(resource, namespace, name))["metadata"]
    except NotFoundError:
        return action.version  # it is made, or refused where it was to be there
    except RefusedError as error:  # the rights are of an earlier release, which created nothing plainly
        log.warning("cannot ask for an object by name; update the operator's role", error=str(error))
        return action.version
    if (owners := handed_over(metadata)) is None:
        return action.version
    if action.version not in ("", metadata["resourceVersion"]) or action.uid not in ("", metadata["uid"]):
        raise ConflictError("the object has changed since it was read",
                            call=f"apply {resource.path(namespace, name)}", status=409)
    written = await kube.own(resource, metadata, owners)
    return str(written["metadata"]["resourceVersion"]) if action.version else ""


def handed_over(metadata: Mapping[str, Any]) -> list[Object] | None:
    """The object's managers with all that the operator owns by an update as owned by apply; None where that is so."""
    found: list[Object] = list(metadata.get("managedFields") or ())
    mine = [one for one in found if one.get("manager") == FIELD_MANAGER and not one.get("subresource")]
    if not any(one.get("operation") == "Update" for one in mine):
        return None
    fields: Object = {}
    for one in mine:
        fields = _union(fields, one.get("fieldsV1") or {})
    owned = {**mine[-1], "operation": "Apply", "fieldsV1": fields}
    return [owned, *(one for one in found if one not in mine)]


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> Object:
    return {key: _union(one.get(key) or {}, other.get(key) or {}) for key in {**one, **other}}
