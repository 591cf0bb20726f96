"""Acts the containers of all pods on one node: Jobs end as the builder's would, servers become ready, and deleted pods
go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from attack.rows import Row, watching
from enginewright.clients.errors import ClientError, NotFoundError
from enginewright.clients.kube import KubeClient, Object
from enginewright.core import labels
from support.fake_kubelet import FakeKubelet, beats

# The node of all pods, whose heartbeats come so often; the controllers wait 40 s for one.
BEAT = 10.0
# Nothing reads logs here.
NO_PORT = 1
JOB_NAME = "batch.kubernetes.io/job-name"
AT_ONCE = 16
NETWORK = "10.100.0.0/14"
PAUSE = 0.5


def _label(name: str) -> str:
    return "{.metadata.labels." + name.replace(".", r"\.") + "}"


FIELDS = " ".join(("{.metadata.namespace}", "{.metadata.name}", _label(labels.STEP), _label(JOB_NAME),
                   "{.spec.containers[0].name}", "{.status.phase}", "{.metadata.deletionTimestamp}"))


def _address(number: int) -> str:
    """Of the pod that is started as number ``number``, in :data:`NETWORK`, all of which is this machine."""
    return f"10.{100 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


class Kubelet(FakeKubelet):
    """One node for all namespaces."""

    @property
    def node(self) -> str:
        return "node-of-all"


class Actor:
    """``failed`` counts writes that the apiserver refused; each is tried again until it is taken. ``addresses`` has
    those of the pods that were started, by their names."""

    def __init__(self, kube: KubeClient, folder: Path) -> None:
        self._kube = kube
        self._folder = folder
        self._kubelets: dict[str, Kubelet] = {}
        self._begun: set[tuple[str, str]] = set()
        self._few = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = 0
        self.addresses: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def running(self, kubeconfig: Path) -> AsyncIterator[None]:
        node = Kubelet(self._kube, "", self._folder)
        await node._register(NO_PORT)
        beating = asyncio.create_task(beats(node.kube, node.node, every=BEAT), name="heartbeats")
        async with watching(kubeconfig, "pods", FIELDS, self._take):
            try:
                yield
            finally:
                for task in (beating, *self._tasks):
                    task.cancel()

    def _take(self, row: Row) -> None:
        namespace, name, step, job, container, phase, deleted = row
        if namespace not in self._kubelets:
            self._kubelets[namespace] = Kubelet(self._kube, namespace, self._folder)
        kubelet = self._kubelets[namespace]
        if deleted:
            self._start(lambda: kubelet._let_go(name))
        elif phase == "Pending" and (namespace, name) not in self._begun:
            self._begun.add((namespace, name))
            kubelet.addresses[name] = self.addresses[name] = _address(len(self._begun))
            pod = {"metadata": {"name": name, "labels": {JOB_NAME: job}}, "spec": {"containers": [{"name": container}]}}
            self._start(lambda: _act(kubelet, pod, step or "server"))

    def _start(self, deed: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._insist(deed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _insist(self, deed: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                async with self._few:
                    await deed()
            except NotFoundError:
                return
            except ClientError:
                self.failed += 1
                await asyncio.sleep(PAUSE)
            else:
                return


async def _act(kubelet: Kubelet, pod: Object, step: str) -> None:
    name = pod["metadata"]["name"]
    await kubelet._bind(name)
    await kubelet._set_status(name, await kubelet._status(pod, step, "succeed"))
