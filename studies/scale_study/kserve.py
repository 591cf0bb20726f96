"""KServe's manager at the same work, where its binary is given: as many InferenceServices, each of which becomes a
Deployment and a Service (its ``Standard`` mode), without a HorizontalPodAutoscaler and without an Ingress.

``KSERVE_MANAGER`` names the binary (``go build ./cmd/manager``), ``KSERVE_SOURCE`` the checkout that it was built from:
its CRDs and its ConfigMap are taken from there. Its admission webhooks are not registered, which spares it work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from attack.eyes import cpu_seconds
from attack.rows import Row, watching
from cluster import binaries
from cluster.process import read_record
from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import Resource
from scale_study.actor import Actor
from scale_study.meters import rss_mb
from scale_study.settled import at_once, until
from support.apiserver import NAMESPACE, eventually, manifest
from support.kserve_manager import certify, configuration, definitions_of

MANAGER: Final = "KSERVE_MANAGER"
SOURCE: Final = "KSERVE_SOURCE"
SYSTEM: Final = "kserve"
PORT: Final = 8088
CALLS: Final = "rest_client_requests_total"
INFERENCE_SERVICE: Final = Resource("serving.kserve.io/v1beta1", "InferenceService", "inferenceservices")
KINDS: Final = (INFERENCE_SERVICE, *(
    Resource("serving.kserve.io/v1alpha1", "", plural) for plural in
    ("trainedmodels", "inferencegraphs", "servingruntimes", "clusterservingruntimes", "clusterstoragecontainers")))
READY: Final = '{.metadata.namespace} {.metadata.name} {.status.conditions[?(@.type=="Ready")].status}'
STANDARD: Final[Mapping[str, Mapping[str, Any]]] = {
    "ingress": {"disableIngressCreation": True, "disableIstioVirtualHost": True},
    "deploy": {"defaultDeploymentMode": "Standard"},
}


@dataclass
class Seen:
    """When, on the monotonic clock, each was first seen as ready, and each Deployment at all."""

    ready: dict[tuple[str, str], float] = field(default_factory=dict)
    deployments: dict[tuple[str, str], float] = field(default_factory=dict)

    def take_service(self, row: Row) -> None:
        if row[2] == "True":
            self.ready.setdefault((row[0], row[1]), time.monotonic())

    def take_deployment(self, row: Row) -> None:
        self.deployments.setdefault((row[0], row[1]), time.monotonic())


def given() -> bool:
    return MANAGER in os.environ


async def kserve(kubeconfig: Path, records: Path, folder: Path, kube: KubeClient, n: int, spaces: int,
                 patience: float) -> dict[str, Any]:
    """As :func:`scale_study.study.study`, but for what only an operator of ours has."""
    names = [f"scale-{number}" for number in range(spaces)]
    for name in (SYSTEM, *names):
        await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", name))
    _install(kubeconfig, Path(os.environ[SOURCE]), folder)
    for resource in KINDS:
        await _served(kube, resource)
    await eventually(lambda: _discovered(kubeconfig))
    seen = Seen()
    async with (
        Actor(kube, folder).running(kubeconfig),
        watching(kubeconfig, "inferenceservices", READY, seen.take_service),
        watching(kubeconfig, "deployments", "{.metadata.namespace} {.metadata.name}", seen.take_deployment),
        _managing(kubeconfig, folder) as process,
    ):
        await _create(kube, names[0], "seed")
        await until(lambda: bool(seen.ready), 120.0, "the first InferenceService is ready")
        made = await _make(kube, names, n, seen, records, process, patience)
        return {**made, "manager_rss_mb": round(rss_mb(process))}


async def _make(kube: KubeClient, names: Sequence[str], n: int, seen: Seen, records: Path, process: int,
                patience: float) -> dict[str, Any]:
    wanted = [(names[number % len(names)], f"m-{number}") for number in range(n)]
    before, calls, began = _cpu(records, process), await _calls(), time.monotonic()
    await at_once([lambda one=one: _create(kube, *one) for one in wanted])  # type: ignore[misc]
    await until(lambda: len(seen.deployments) > n, patience, "every InferenceService has a Deployment")
    await until(lambda: all(one in seen.ready for one in wanted), patience, "every InferenceService is ready")
    used = {name: round(now - before[name], 1) for name, now in _cpu(records, process).items()}
    return {
        "deployments_per_s": round(n / (max(seen.deployments.values()) - began), 1),
        "ready_s": round(max(seen.ready[one] for one in wanted) - began, 1),
        "apiserver_cpu_s": used["kube-apiserver"], "etcd_cpu_s": used["etcd"], "manager_cpu_s": used["manager"],
        "requests": dict(sorted((await _calls() - calls).items())),
    }


async def _create(kube: KubeClient, namespace: str, name: str) -> None:
    container = {"name": "kserve-container", "image": "registry.example/server:1", "ports": [{"containerPort": 8080}]}
    body = manifest(INFERENCE_SERVICE.api_version, INFERENCE_SERVICE.kind, name, spec={
        "predictor": {"minReplicas": 1, "containers": [container]}})
    body["metadata"]["annotations"] = {"serving.kserve.io/autoscalerClass": "none"}
    await kube._json("create", INFERENCE_SERVICE, INFERENCE_SERVICE.path(namespace), body=body)


async def _served(kube: KubeClient, resource: Resource) -> None:
    """Returns once the apiserver knows the kind."""
    async def listed() -> bool:
        try:
            await kube.list_metadata(resource, None)
        except NotFoundError:
            return False
        return True

    await eventually(listed)


async def _discovered(kubeconfig: Path) -> bool:
    """Whether kubectl finds the kind, too: what the apiserver publishes of its kinds comes later."""
    process = await asyncio.create_subprocess_exec(
        binaries.node_program("kubectl"), f"--kubeconfig={kubeconfig}", "get", INFERENCE_SERVICE.plural,
        "--all-namespaces", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return await process.wait() == 0


def _install(kubeconfig: Path, source: Path, folder: Path) -> None:
    """Its CRDs, and its ConfigMap in the mode that makes plain Deployments."""
    _kubectl(kubeconfig, "create", *(f"--filename={file}" for file in definitions_of(source)))
    made = folder / "inferenceservice-config.json"
    made.write_text(json.dumps(configuration(source, STANDARD)))
    _kubectl(kubeconfig, "create", f"--filename={made}")


def _kubectl(kubeconfig: Path, *arguments: str) -> None:
    subprocess.run((binaries.node_program("kubectl"), f"--kubeconfig={kubeconfig}", *arguments), check=True,
                   stdout=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def _managing(kubeconfig: Path, folder: Path) -> AsyncIterator[int]:
    """The manager for the length of the block, which gets its process id."""
    certify(folder)  # for its webhook server, which the apiserver never calls
    environment: Mapping[str, str] = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": SYSTEM,
                                      "TMPDIR": str(folder)}
    with (folder / "manager.log").open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            os.environ[MANAGER], f"--metrics-addr=:{PORT}", "--zap-log-level=error", env=environment, stdout=sink,
            stderr=sink)
        try:
            yield process.pid
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _cpu(records: Path, process: int) -> dict[str, float]:
    found = {name: read_record(records / f"{name}.json") for name in ("kube-apiserver", "etcd")}
    return {"manager": cpu_seconds(process), **{name: cpu_seconds(one.pid) for name, one in found.items() if one}}


async def _calls() -> Counter[str]:
    """By HTTP method, as the manager's own metrics tell."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{PORT}/metrics") as answer:
        page = await answer.text()
    calls: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == CALLS:
                calls[sample.labels["method"]] += int(sample.value)
    return calls
