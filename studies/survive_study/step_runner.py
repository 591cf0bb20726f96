"""Steps are done here, to whatever is there at that time."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import MERGE, KubeClient, Object
from enginewright.clients.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from support.apiserver import Models, claim_manifest, model
from survive_study import specs
from survive_study.actor import Node
from survive_study.faults import Way
from survive_study.steps import Step

T = TypeVar("T")
RESOURCES: Mapping[str, Resource] = {
    one.plural: one for one in (JOB, DEPLOYMENT, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, LEASE)}
DIGESTS = "abcdef0123"


class StepRunner:
    """``changes`` are the fields that were changed, ``done`` how often each kind of step was done, ``refused`` what the
    apiserver said to the others. Names in ``strange`` are left alone."""

    def __init__(self, kube: KubeClient, namespace: str, node: Node, way: Way) -> None:
        self.kube, self.namespace, self.node, self.way = kube, namespace, node, way
        self.models = Models(kube, namespace)
        self.changes: set[str] = set()
        self.done: Counter[str] = Counter()
        self.refused: list[str] = []
        self.strange: frozenset[str] = frozenset()
        self._cases, self._refused = specs.changes(), specs.refused()
        self._number = 0

    async def do(self, step: Step) -> None:
        """A step that finds nothing to do it to does nothing; what the apiserver refuses is refused."""
        try:
            await getattr(self, f"_{step.kind.replace('-', '_')}")(step)
            self.done[step.kind] += 1
        except ClientError as error:
            self.refused.append(f"{step.kind}: {error}")

    async def _spec(self, step: Step) -> None:
        there = await self._model(step.model)
        for case in specs.picked(self._cases, step.pick):
            if (found := specs.changed(there["spec"], case)) and found != there["spec"]:
                await self._replace(there, found)
                self.changes.add(case.field)
                return

    async def _refused_spec(self, step: Step) -> None:
        there = await self._model(step.model)
        case = specs.picked(self._refused, step.pick)[0]
        await self._replace(there, {**there["spec"], **{key: case.spec[key] for key in (case.field.split(".")[1],)
                                                       if key != "source"}})

    async def _act(self, step: Step) -> None:
        self.node.play(step.model, step.where, step.what)  # type: ignore[arg-type]

    async def _engine(self, step: Step) -> None:
        """New weights at another place, and no more of the old spec."""
        digit = DIGESTS[int(step.pick * len(DIGESTS))]
        there = await self._model(step.model)
        self.node.play(step.model, "digest", f"sha256:{digit * 64}")  # type: ignore[arg-type]
        await self._replace(there, {**specs.BASIS, "source": {"uri": f"pvc://models/minilm-{digit}"}})

    async def _fault(self, step: Step) -> None:
        self.way.now = step.what

    async def _calm(self, _: Step) -> None:
        self.way.now = ""

    async def _delete_model(self, step: Step) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": step.what}
        await self.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(self.namespace, step.model), body=body)

    async def _delete_child(self, step: Step) -> None:
        if child := await self._child(step):
            await self.kube.delete(RESOURCES[step.where], self.namespace, child["metadata"]["name"])

    async def _edit_child(self, step: Step) -> None:
        if child := await self._child(step):
            resource = RESOURCES[step.where]
            path = resource.path(self.namespace, child["metadata"]["name"])
            await self.kube._json("patch", resource, path, query={"fieldManager": "stranger"},
                                  body=_edit(step.what, step.where, child), content_type=MERGE)

    async def _delete_pods(self, step: Step) -> None:
        if pod := _one(await self._of(POD, step.model), step.pick):
            await self.kube.delete(POD, self.namespace, pod["metadata"]["name"])

    async def _evict(self, step: Step) -> None:
        if pod := _one(await self._of(POD, step.model), step.pick):
            await self.node.evict(pod["metadata"]["name"])

    async def _node(self, _: Step) -> None:
        await self.node.lose()

    async def _claim(self, step: Step) -> None:
        await self.models.delete_claim("models" if step.pick < 0.5 else "enginewright-store")

    async def _retry(self, step: Step) -> None:
        await self.retry(step.model)

    async def _rollback(self, step: Step) -> None:
        there = await self._model(step.model)
        kept = [entry["revision"] for entry in (there.get("status") or {}).get("revisions") or ()]
        if revision := _one(kept, step.pick):
            await self._annotate(step.model, labels.ROLLBACK_TO, revision)

    async def _promote(self, step: Step) -> None:
        there = await self._model(step.model)
        candidate = ((there.get("status") or {}).get("rollout") or {}).get("candidate")
        if candidate:
            await self._annotate(step.model, labels.PROMOTE, str(candidate))

    async def _suspend(self, step: Step) -> None:
        await self.models.patch({"spec": {"suspend": step.pick < 0.5}}, step.model)

    async def _scale(self, step: Step) -> None:
        body = {"spec": {"replicas": int(step.pick * 4)}}
        path = OPTIMISED_MODEL.path(self.namespace, step.model, "scale")
        await self.kube._json("patch", OPTIMISED_MODEL, path, body=body, content_type=MERGE)

    async def _two_leaders(self, _: Step) -> None:
        """The lane starts the second."""

    async def provide(self) -> None:
        """What a user would bring back: models and claims."""
        for claim in ("models", "enginewright-store"):
            with contextlib.suppress(ClientError):
                await self.kube.create(claim_manifest(claim), namespace=self.namespace)
        for name in ("minilm", "twin"):
            with contextlib.suppress(ClientError):
                await self.models.create(model(name, **specs.BASIS))

    async def heal(self) -> None:
        """Back to the basis."""
        for there in await self.kube.list_all(OPTIMISED_MODEL, self.namespace):
            await self._replace(there, specs.BASIS, annotations={labels.ROLLBACK_TO: None, labels.PROMOTE: None})

    async def retry(self, name: str) -> None:
        """What has failed is tried again."""
        await self._annotate(name, labels.RETRY)

    async def nudge(self) -> None:
        """An event that changes nothing that the operator looks at."""
        for there in await self.kube.list_all(OPTIMISED_MODEL, self.namespace):
            await self._annotate(there["metadata"]["name"], "example.com/nudge")

    async def _annotate(self, name: str, key: str, value: str = "") -> None:
        await self.models.patch({"metadata": {"annotations": {key: value or self._next()}}}, name)

    def _next(self) -> str:
        self._number += 1
        return str(self._number)

    async def _replace(self, there: Object, spec: Any, annotations: Mapping[str, str | None] | None = None) -> None:
        notes = {**(there["metadata"].get("annotations") or {}), **(annotations or {})}
        kept = {key: value for key, value in notes.items() if value is not None}
        body: Any = [{"op": "add", "path": "/metadata/annotations", "value": kept},
                     {"op": "replace", "path": "/spec", "value": spec}]
        path = OPTIMISED_MODEL.path(self.namespace, there["metadata"]["name"])
        await self.kube._json("patch", OPTIMISED_MODEL, path, body=body, content_type="application/json-patch+json")

    async def _model(self, name: str) -> Object:
        return await self.kube.get(OPTIMISED_MODEL, self.namespace, name)

    async def _of(self, resource: Resource, name: str) -> list[Object]:
        found = await self.kube.list_all(resource, self.namespace, labels=f"{labels.MODEL}={name}")
        return sorted((item for item in found if item["metadata"]["name"] not in self.strange),
                      key=lambda item: str(item["metadata"]["name"]))

    async def _child(self, step: Step) -> Object | None:
        return _one(await self._of(RESOURCES[step.where], step.model), step.pick)


def _one(found: Sequence[T], pick: float) -> T | None:
    return found[int(pick * len(found))] if found else None


def _edit(what: str, where: str, child: Object) -> Object:
    """A stranger's patch; one that does not fit the kind is a label."""
    if what == "owner":
        return {"metadata": {"ownerReferences": None}}
    if what == "hash":
        return {"metadata": {"annotations": {labels.MANIFEST_HASH: None}}}
    if where == "deployments" and what == "replicas":
        return {"spec": {"replicas": 0}}
    if where == "services" and what == "selector":
        return {"spec": {"selector": {"app": "stranger"}}}
    if where == "deployments" and what == "image":
        return {"spec": {"template": {"metadata": {"annotations": {"example.com/restarted": "now"}}}}}
    return {"metadata": {"labels": {"example.com/team": "strangers"}}}
