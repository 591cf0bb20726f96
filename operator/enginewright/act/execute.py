"""Carries out actions in order. The first failure ends it: later ones may stand on earlier ones."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from enginewright.act.reapply import PLAIN, reapply
from enginewright.act.traced import traced
from enginewright.clients.errors import (
    AlreadyExistsError,
    ConflictError,
    LostRaceError,
    NotFoundError,
    RefusedError,
)
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, LEASE, resource_of, resource_of_manifest
from enginewright.core import labels
from enginewright.core.conditions import micro_time, timestamp
from enginewright.core.plan import (
    ABSENT,
    Action,
    Apply,
    ClaimBuild,
    Create,
    Delete,
    MakeKey,
    MarkRecord,
    ReleaseBuild,
    RenewBuild,
    Replace,
    Scale,
)
from enginewright.tracing import Attribute, handed_on, note, span

KEY_BYTES = 32  # of randomness in a key that is made


class Actor:
    """``acted`` gets the verb and the kind of each action that changed something."""

    def __init__(self, kube: KubeClient, acted: Callable[[str, str], None]) -> None:
        self._kube = kube
        self._acted = acted

    async def execute(self, namespace: str, actions: Iterable[Action], log: FilteringBoundLogger) -> None:
        """Raises :class:`~enginewright.clients.errors.ClientError` of the first action that fails."""
        for action in actions:
            verb, kind, name = describe(action)
            about = {Attribute.VERB: verb, Attribute.KIND: kind, Attribute.NAME: name, Attribute.WHY: action.why}
            with span(f"{verb} {kind}", about):
                log.info("act", verb=verb, kind=kind, name=name, why=action.why)
                changed = await self._perform(namespace, action)
                note(Attribute.CHANGED, changed)
            if changed:
                self._acted(verb, kind)

    async def _perform(self, namespace: str, action: Action) -> bool:
        match action:
            case Apply():
                await self._apply(namespace, action)
                return True
            case Create():
                return await self._create(namespace, action)
            case MakeKey():
                return await self._make_key(namespace, action)
            case Delete():
                return await self._delete(namespace, action)
            case Scale():
                await self._kube.scale(namespace, action.deployment, action.replicas, uid=action.uid,
                                       version=action.version, generation=action.generation)
                return True
            case ClaimBuild():
                return await self._claim(namespace, action)
            case RenewBuild():
                return await self._renew(namespace, action)
            case ReleaseBuild():
                return await self._release(namespace, action)
            case Replace() | MarkRecord():
                return await self._change(namespace, action)

    async def _apply(self, namespace: str, action: Apply) -> None:
        try:
            if action.manifest["kind"] not in PLAIN:
                await self._kube.apply(action.manifest, namespace=namespace, force=action.force, uid=action.uid,
                                       version=action.version)
            elif action.version == ABSENT:
                await self._kube.create(action.manifest, namespace=namespace, strict=True)
            else:
                await reapply(self._kube, namespace, action)
        except ConflictError as error:
            if action.force or await self._made_since(namespace, action):
                raise
            _, kind, name = describe(action)
            raise RefusedError(
                f"{kind} {name} is there already and has another owner; delete it, or give the OptimisedModel "
                f"another name", call=error.call, status=error.status, reason=error.reason,
            ) from error

    async def _made_since(self, namespace: str, action: Apply) -> bool:
        """Whether another operator has made the object, for the same owner, since this pass looked."""
        if not action.version:
            return False
        owners = {owner["uid"] for owner in action.manifest["metadata"]["ownerReferences"]}
        found = await self._namesakes(namespace, action.manifest)
        return any(owner["uid"] in owners for meta in found for owner in meta.get("ownerReferences") or ())

    async def _create(self, namespace: str, action: Create) -> bool:
        """Names are derived from content, so what is there already is what was wanted: a pass that was killed after its
        create finds its own work. Not so what has no owner: it would be looked for among the object's own forever."""
        manifest = traced(action.manifest, handed_on())
        try:
            await self._kube.create(manifest, namespace=namespace)
        except AlreadyExistsError:
            uid = await self._orphan(namespace, action.manifest)
            if not uid:
                return False
            await self._kube.delete(resource_of_manifest(manifest), namespace, manifest["metadata"]["name"], uid=uid)
            await self._kube.create(manifest, namespace=namespace)
        return True

    async def _make_key(self, namespace: str, action: MakeKey) -> bool:
        """Without a look before it, which the operator has no right to."""
        manifest = {**action.manifest, "stringData": {action.entry: secrets.token_hex(KEY_BYTES)}}
        try:
            await self._kube.create(manifest, namespace=namespace)
        except AlreadyExistsError:
            return False
        return True

    async def _orphan(self, namespace: str, manifest: Mapping[str, Any]) -> str:
        """UID of what an object of the same name left there without an owner (``kubectl delete --cascade=orphan``);
        empty where it has one, or was never an object's."""
        found = await self._namesakes(namespace, manifest)
        return next((meta["uid"] for meta in found if not meta.get("ownerReferences")), "")

    async def _namesakes(self, namespace: str, manifest: Mapping[str, Any]) -> list[Object]:
        """The metadata of what has the name and the model of ``manifest``; one at most."""
        wanted = manifest["metadata"]
        model = (wanted.get("labels") or {}).get(labels.MODEL)
        if not model:
            return []
        there = await self._kube.list_all(resource_of_manifest(manifest), namespace, labels=f"{labels.MODEL}={model}")
        return [raw["metadata"] for raw in there if raw["metadata"]["name"] == wanted["name"]]

    async def _claim(self, namespace: str, action: ClaimBuild) -> bool:
        """Raises :class:`LostRaceError`."""
        name = str(action.manifest["metadata"]["name"])
        try:
            if action.version:
                metadata = {**action.manifest["metadata"], "resourceVersion": action.version}
                await self._kube.patch(LEASE, namespace, name, {**action.manifest, "metadata": metadata})
            else:
                await self._kube.create(action.manifest, namespace=namespace)
        except (ConflictError, NotFoundError) as error:
            raise LostRaceError(error.message, call=error.call, status=error.status, reason=error.reason) from error
        return True

    async def _renew(self, namespace: str, action: RenewBuild) -> bool:
        body = {"metadata": {"resourceVersion": action.version}, "spec": {"renewTime": micro_time(action.time)}}
        try:
            await self._kube.patch(LEASE, namespace, action.name, body)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _release(self, namespace: str, action: ReleaseBuild) -> bool:
        try:
            await self._kube.delete(LEASE, namespace, action.name, version=action.version)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _change(self, namespace: str, action: Replace | MarkRecord) -> bool:
        """False where the object has changed since it was read: the next pass looks again."""
        if isinstance(action, MarkRecord):
            since = timestamp(action.since) if action.since else None
            body: Mapping[str, Any] = {"metadata": {"name": action.name, "annotations": {
                action.annotation or labels.UNREFERENCED: since}}}
            resource = CONFIG_MAP
        else:
            body, resource = action.manifest, resource_of_manifest(action.manifest)
        metadata = {**body["metadata"], "resourceVersion": action.version}
        try:
            await self._kube.patch(resource, namespace, metadata["name"], {**body, "metadata": metadata})
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _delete(self, namespace: str, action: Delete) -> bool:
        resource = resource_of(action.api_version, action.kind)
        try:
            await self._kube.delete(resource, namespace, action.name, uid=action.uid, version=action.version,
                                    generation=action.generation)
        except NotFoundError:
            return False
        return True


def describe(action: Action) -> tuple[str, str, str]:
    """Verb, kind and name, for logs and metrics."""
    match action:
        case ClaimBuild(manifest=manifest):
            return "claim", "Lease", str(manifest["metadata"]["name"])
        case RenewBuild(name=name):
            return "renew", "Lease", name
        case ReleaseBuild(name=name):
            return "release", "Lease", name
        case MarkRecord(name=name):
            return "mark", "ConfigMap", name
        case MakeKey(manifest=manifest):
            return "make", str(manifest["kind"]), str(manifest["metadata"]["name"])
        case Apply(manifest=manifest) | Create(manifest=manifest) | Replace(manifest=manifest):
            return type(action).__name__.lower(), str(manifest["kind"]), str(manifest["metadata"]["name"])
        case Delete(kind=kind, name=name):
            return "delete", kind, name
        case Scale(deployment=deployment):
            return "scale", "Deployment", deployment
