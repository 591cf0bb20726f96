"""A user of the real apiserver: what tests do to it and see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import ClientError, NotFoundError
from enginewright.clients.kube import APPLY, MERGE, KubeClient, Object
from enginewright.clients.resources import CLAIM, OPTIMISED_MODEL, POD, Resource
from enginewright.core import labels
from enginewright.core.conditions import parse_timestamp
from enginewright.core.spec.crd import crd

T = TypeVar("T")
NAMESPACE = Resource("v1", "Namespace", "namespaces")
CRD = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
ROLE = Resource("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles")
BINDING = Resource("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings")
# Seconds. Of the longest waits one takes half a minute beside all other tests of `make test`.
PATIENCE = 240.0
# Each look costs processors that the operator waits for, too: pauses between them grow, up to so many seconds.
SLOWER, LONGEST = 1.25, 0.2


async def install_crd(kubeconfig: Path) -> None:
    async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
        manifest = crd()
        path = CRD.path(None, manifest["metadata"]["name"])
        # Strict: a schema keyword that the apiserver would drop silently is a defect of ours.
        query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
        await kube._json("apply", CRD, path, query=query, body=manifest, content_type=APPLY)

        async def served() -> bool:
            try:
                await kube.list_metadata(OPTIMISED_MODEL, None)
            except NotFoundError:
                return False
            return True

        await eventually(served)


async def grant(kubeconfig: Path, rules: list[Object], user: str) -> None:
    """Lets ``user`` do what ``rules`` say, in all namespaces."""
    role = manifest("rbac.authorization.k8s.io/v1", "ClusterRole", user, rules=rules)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    binding = manifest(
        "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", user, roleRef=reference, subjects=[subject]
    )
    async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
        for resource, body in ((ROLE, role), (BINDING, binding)):
            await kube._json("create", resource, resource.path(None), body=body)


async def eventually(probe: Callable[[], Awaitable[T]], patience: float = PATIENCE, period: float = 0.05) -> T:
    """The first truthy result of ``probe``, which is asked again after ``period`` seconds at first, and then less and
    less often. An :class:`AssertionError` in it means not yet; after ``patience`` seconds the last one is raised, so
    that the test says what it waited for."""
    deadline, pause = asyncio.get_running_loop().time() + patience, period
    while True:
        try:
            result = await probe()
            problem: AssertionError | None = None if result else AssertionError(f"still {result!r}")
        except AssertionError as error:
            problem = error
        if problem is None:
            return result
        if asyncio.get_running_loop().time() > deadline:
            raise problem
        await asyncio.sleep(pause)
        pause = min(max(period, LONGEST), pause * SLOWER)


def manifest(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def claim_manifest(name: str) -> Object:
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return manifest("v1", "PersistentVolumeClaim", name, spec=wanted)


def model(name: str = "minilm", **spec: Any) -> Object:
    """The shortest good OptimisedModel, with ``spec`` over it."""
    basis: Object = {"source": {"uri": "pvc://models/minilm"}, "placement": {"accelerator": "cpu"}}
    return manifest(OPTIMISED_MODEL.api_version, OPTIMISED_MODEL.kind, name, spec={**basis, **spec})


class Models:
    """What a user does with OptimisedModels, and what they see of them."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    async def create(self, body: Object) -> Object:
        return await self.kube.create(body, namespace=self.namespace)

    async def get(self, name: str = "minilm") -> Object:
        return await self.kube.get(OPTIMISED_MODEL, self.namespace, name)

    async def patch(self, body: Object, name: str = "minilm") -> Object:
        return await self.kube.patch(OPTIMISED_MODEL, self.namespace, name, body)

    async def delete(self, name: str = "minilm") -> None:
        await self.kube.delete(OPTIMISED_MODEL, self.namespace, name)

    async def delete_claim(self, name: str) -> None:
        """Without a kubelet nobody uses it, but its protection waits all the same."""
        path = CLAIM.path(self.namespace, name)
        await self.kube._json("patch", CLAIM, path, body={"metadata": {"finalizers": None}}, content_type=MERGE)
        await self.kube.delete(CLAIM, self.namespace, name)

    async def condition(self, kind: str, name: str = "minilm") -> Object:
        """Empty before the operator has spoken about the current generation."""
        found = await self.get(name)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return {}
        return next((entry for entry in status.get("conditions", ()) if entry["type"] == kind), {})

    async def wait(self, kind: str, status: str, reason: str = "", name: str = "minilm") -> Object:
        """As ``kubectl wait`` does; the failure shows the condition as it was last."""

        async def reached() -> Object:
            found = await self.condition(kind, name)
            assert (found.get("status"), reason and found.get("reason")) == (status, reason), found
            return found

        return await eventually(reached)

    async def served(self, name: str = "minilm") -> str:
        """Waits until the newest spec's revision serves alone, and gives its name."""
        generation = (await self.get(name))["metadata"]["generation"]

        async def ready() -> str:
            entry = await self.condition("Ready", name)
            assert (entry.get("status"), entry.get("observedGeneration")) == ("True", generation), entry
            return str((await self.get(name))["status"]["rollout"]["stable"])

        return await eventually(ready)

    async def names(self, resource: Resource, labels: str = "") -> list[str]:
        found = await self.kube.list_all(resource, self.namespace, labels=labels)
        return sorted(item["metadata"]["name"] for item in found)

    async def starting(self, revision: str) -> str:
        """Waits for a pod of ``revision`` that runs and is not ready, until any Deployment that is made from then on is
        younger: the apiserver counts in seconds. Gives its name."""

        async def found() -> str:
            pods = await self.kube.list_all(POD, self.namespace, labels=f"{labels.REVISION}={revision}")
            return next((pod["metadata"]["name"] for pod in pods if _starts(pod)), "")

        return await eventually(found)

    async def others(self, revision: str, name: str) -> list[str]:
        """Waits for pods of ``revision`` besides ``name``."""

        async def found() -> list[str]:
            return [pod for pod in await self.names(POD, f"{labels.REVISION}={revision}") if pod != name]

        return await eventually(found)

    async def versions(self, *resources: Resource) -> dict[str, str]:
        """resourceVersions: equal before and after means that nobody wrote."""
        found = {}
        for resource in resources:
            for item in await self.kube.list_all(resource, self.namespace):
                found[f"{resource.plural}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
        return found

    async def gone(self, resource: Resource, name: str) -> None:
        async def absent() -> bool:
            try:
                await self.kube.get(resource, self.namespace, name)
            except NotFoundError:
                return True
            except ClientError:
                return False
            return False

        await eventually(absent)

    async def claims(self) -> None:
        for claim in ("models", "enginewright-store"):
            await self.kube.create(claim_manifest(claim), namespace=self.namespace)


def _starts(pod: Object) -> bool:
    metadata, status = pod["metadata"], pod.get("status", {})
    made = parse_timestamp(metadata["creationTimestamp"])
    aged = made is not None and (datetime.now(UTC) - made).total_seconds() > 1
    runs = status.get("phase") == "Running" and not metadata.get("deletionTimestamp")
    return aged and runs and not any(one["ready"] for one in status["containerStatuses"])
