"""Plays the kubelet for a control plane without nodes: the controllers are real, only containers are acted.

It follows the builder's real contract: it reads the request that the pod would mount, and answers with an outcome in
the termination message. What a pod does is said by the test: see :class:`Script`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from enginewright.clients.errors import ClientError, ConflictError, NotFoundError
from enginewright.clients.kube import MERGE, KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, POD, Resource
from enginewright.core import labels
from enginewright_builder.contract import (
    BuildRequest,
    CandidateSummary,
    EngineSummary,
    ErrorReport,
    Facts,
    Outcome,
    ResolvedSource,
    ServingChoice,
    ShardSummary,
    shard_range,
)
from support.cluster import IMAGE_FACTS, SERVER_DIGEST
from support.followed_pods import FollowedPods

Act = Literal[
    "succeed", "hold", "hold-new", "user-error", "silent-error", "transient-error", "out-of-memory", "pull-error",
    "refuse-engine", "misfit", "unfit", "no-store", "unschedulable", "crash", "taken-back", "out-of-time",
]
NODE = Resource("v1", "Node", "nodes")
# Seconds between heartbeats; the controllers take a node for lost that sends none for 40 s.
BEAT = 5.0
FIRST_ADDRESS = IPv4Address("10.99.0.1")
# Which init container of a server ends with what, and what it says.
REFUSALS: Mapping[str, tuple[int, int, str]] = {
    "refuse-engine": (0, 2, "manifest.json: digest of model.onnx differs"),
    "no-store": (0, 3, "the store does not answer: no route to host"),
    "unfit": (1, 2, 'exec: "python3": executable file not found in $PATH'),
    "misfit": (1, 2, "TensorRTVersionMismatch: the engine was built with TensorRT 10.6.0"),
}
NO_IMAGE = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/builder:1"'}
DIGEST = f"sha256:{'a' * 64}"


async def beat(kube: KubeClient, node: str) -> None:
    """One heartbeat. Without, the controllers would take the node for lost, and its pods for not ready."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
    await kube._json("patch", NODE, NODE.path(None, node, "status"), body={"status": {"conditions": [ready]}},
                     content_type=MERGE)


async def beats(kube: KubeClient, *nodes: str, every: float = BEAT) -> None:
    """Heartbeats without end, ``every`` so many seconds."""
    while True:
        for node in nodes:
            with contextlib.suppress(ClientError):
                await beat(kube, node)
        await asyncio.sleep(every)


@dataclass
class Script:
    """What pods of each step do. ``succeed`` of a server is to become ready; ``hold`` is to run and say nothing, and
    ``hold-new`` leaves pods alone that do something already. ``unschedulable`` gives a pod no node, and says so as the
    scheduler would, with ``taken-back`` a pod's node shuts down, and ``out-of-time`` is a step that was stopped at its
    pod's deadline. Pods of an OptimisedModel in ``models`` follow a script of their own. Builds on the MIG profiles of
    ``missed`` miss the objective. With ``resolver`` a resolve step that succeeds answers what that says of the request
    and the pod. Images that are asked have ``facts``, and the server's ``digest_of_server``. A build makes
    ``engine``, or what all builds make; with ``language_model`` it says that, of what was asked for."""

    resolve: Act = "succeed"
    ask: Act = "succeed"
    build: Act = "succeed"
    server: Act = "succeed"
    gc: Act = "succeed"
    captures: Act = "succeed"
    batch: Act = "succeed"
    digest: str = DIGEST
    missed: frozenset[str] = frozenset()
    models: dict[str, Script] = field(default_factory=dict)
    resolver: Callable[[BuildRequest, Object], Outcome] | None = None
    facts: Facts = field(default_factory=lambda: Facts(server=IMAGE_FACTS, builder=IMAGE_FACTS))
    digest_of_server: str = SERVER_DIGEST
    engine: EngineSummary | None = None
    language_model: Outcome | None = None

    def of(self, pod: Object) -> Script:
        return self.models.get(pod["metadata"].get("labels", {}).get(labels.MODEL, ""), self)

    def act(self, step: str) -> Act:
        return {"resolve": self.resolve, "ask": self.ask, "build": self.build, "gc": self.gc,
                "captures": self.captures, "batch": self.batch}.get(step, self.server)


@dataclass
class FakeKubelet:
    """A node of its own for the pods of one namespace, which follows them and looks at the script every ``period``
    seconds. ``addresses`` maps pods to the address that they were given, ``logs`` the steps (``resolve``, ``build``) to
    what their containers have printed."""

    kube: KubeClient
    namespace: str
    folder: Path
    script: Script = field(default_factory=Script)
    addresses: dict[str, str] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    period: float = 0.05
    started: list[str] = field(default_factory=list)
    _acted: dict[str, Act] = field(default_factory=dict)
    _beaten: float = -BEAT

    def __post_init__(self) -> None:
        self._pods = FollowedPods(self.kube, self.namespace)

    @property
    def node(self) -> str:
        return f"node-{self.namespace}"

    def count(self, step: str) -> int:
        """Pods of that step so far: they tell of Jobs that were deleted and made again, which names do not."""
        return sum(f"-{step}-" in name for name in self.started)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FakeKubelet]:
        async with self._log_server() as port:
            await self._register(port)
            tasks = {asyncio.create_task(work, name="fake kubelet") for work in (self._run(), self._pods.follow())}
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                for task in tasks:
                    if not task.cancelled():
                        task.result()
                await self.kube._json("delete", NODE, NODE.path(None, self.node))

    async def _register(self, port: int) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        await self.kube._json("create", NODE, NODE.path(None), body=body)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        path = NODE.path(None, self.node, "status")
        await self.kube._json("patch", NODE, path, body={"status": status}, content_type=MERGE)

    @contextlib.asynccontextmanager
    async def _log_server(self) -> AsyncIterator[int]:
        certificate, key = make_certificate(self.folder)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer_logs)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _answer_logs(self, request: web.Request) -> web.Response:
        printed = self.logs.get(request.match_info["container"], "").splitlines(keepends=True)
        return web.Response(text="".join(printed[-int(request.query.get("tailLines", len(printed))):]))

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._pods.news.clear()
            with contextlib.suppress(ClientError):
                if clock() - self._beaten >= BEAT:
                    self._beaten = clock()
                    await beat(self.kube, self.node)
                for pod in self._pods.now():
                    await self._tend(pod)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period):
                    await self._pods.news.wait()

    async def _tend(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            await self._let_go(metadata["name"])
            return
        step = (metadata.get("labels") or {}).get(labels.STEP, "server")
        act = self.script.of(pod).act(step)
        if not pod["spec"].get("nodeName") and act != "unschedulable":
            await self._bind(metadata["name"])
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if ended or self._acted.get(metadata["uid"]) == act or (act == "hold-new" and metadata["uid"] in self._acted):
            return
        if metadata["uid"] not in self._acted:
            self.started.append(metadata["name"])
        with contextlib.suppress(NotFoundError, ConflictError):
            self._pods.know(await self._set_status(metadata["name"], await self._status(pod, step, act)))
            self._acted[metadata["uid"]] = act

    async def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        with contextlib.suppress(NotFoundError, ConflictError):
            await self.kube._json("create", POD, POD.path(self.namespace, name, "binding"), body=body)

    async def _let_go(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        with contextlib.suppress(NotFoundError, ConflictError):
            await self.kube._json("delete", POD, POD.path(self.namespace, name), body=body)

    async def crash(self, revision: str) -> None:
        """The servers of ``revision`` that are there end again and again, until the script says otherwise of them."""
        for pod in await self.kube.list_all(POD, self.namespace, labels=f"{labels.REVISION}={revision}"):
            await self._set_status(pod["metadata"]["name"], await self._status(pod, "server", "crash"))

    async def _set_status(self, name: str, status: Mapping[str, Any]) -> Object:
        """The pod with it."""
        path = POD.path(self.namespace, name, "status")
        return await self.kube._json("patch", POD, path, body={"status": status}, content_type=MERGE)

    async def _status(self, pod: Object, step: str, act: Act) -> Object:
        container = pod["spec"]["containers"][0]["name"]
        if act == "unschedulable":
            return _not_scheduled()
        if act == "pull-error":
            return _state("Pending", container, {"waiting": NO_IMAGE})
        if act == "out-of-memory":
            return _state("Failed", container, _ended(137, "OOMKilled", ""))
        if act in ("silent-error", "taken-back"):
            status = _state("Failed", container, _ended(2, "Error", ""))
            return _on_a_node_that_goes(status) if act == "taken-back" else status
        if act == "crash":
            return _state("Running", container, _ended(1, "Error", ""), restarts=3)
        if act in REFUSALS:
            return _refusal(pod, *REFUSALS[act])
        if step == "server":
            return self._serving(pod, container, act)
        if act == "hold":
            return _state("Running", container, {"running": {"startedAt": _now()}})
        if step in ("gc", "captures"):
            return _state("Succeeded", container, _ended(0, "Completed", ""))
        outcome = await self._outcome(pod, step, act)
        code = 0 if outcome.ok else {"user": 2, "transient": 3}[outcome.error.family if outcome.error else "user"]
        ended = _ended(code, "Error" if code else "Completed", outcome.to_termination_message())
        status = _state("Failed" if code else "Succeeded", container, ended)
        status["initContainerStatuses"] = _init_statuses(pod, self.script.of(pod).digest_of_server)
        return {**status, "reason": "DeadlineExceeded"} if act == "out-of-time" else status

    async def _outcome(self, pod: Object, step: str, act: Act) -> Outcome:
        script = self.script.of(pod)
        if step == "ask":
            return Outcome(kind="ask", ok=True, facts=script.facts)
        if step == "batch":
            return answered(pod, act)
        request = await self._request(pod)
        if step == "resolve" and act == "succeed" and script.resolver:
            return await asyncio.to_thread(script.resolver, request, pod)
        return answer(request, step, act, script)

    def _serving(self, pod: Object, container: str, act: Act) -> Object:
        name = pod["metadata"]["name"]
        address = self.addresses.setdefault(name, str(FIRST_ADDRESS + len(self.addresses)))
        status = _state("Running", container, {"running": {"startedAt": _now()}}, ready=act == "succeed")
        return {**status, "podIP": address, "podIPs": [{"ip": address}]}

    async def _request(self, pod: Object) -> BuildRequest:
        job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        carrier = await self.kube.get(CONFIG_MAP, self.namespace, job)
        return BuildRequest.from_json(carrier["data"]["request.json"])


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Self-signed: the apiserver is started without an authority for kubelets, so it trusts any."""
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=kubelet", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )
    return certificate, key


# Of the data set that batch steps answer.
ROWS = 1001


def answered(pod: Object, act: Act) -> Outcome:
    """What the program would say that runs a shard."""
    if act == "user-error":
        error = ErrorReport(family="user", reason="BatchInputInvalid", message="sample 7: x holds NaN",
                            field="spec.batch.input.uri", remedy="mend what wrote them")
        return Outcome(kind="batch", ok=False, error=error)
    arguments = pod["spec"]["containers"][0]["args"]
    shards = int(arguments[arguments.index("--shards") + 1])
    shard = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
    rows = len(shard_range(ROWS, shards, shard))
    return Outcome(kind="batch", ok=True, shard=ShardSummary(shard=shard, shards=shards, rows=rows, total=ROWS,
                                                             answered=rows))


def answer(request: BuildRequest, step: str, act: Act, script: Script) -> Outcome:
    """What the builder would say to ``request``."""
    digest = script.digest
    kind: Literal["resolve", "build"] = "resolve" if step == "resolve" else "build"
    if act == "user-error":
        error = ErrorReport(family="user", reason="DigestMismatch", message="the source is not what its digest says",
                            field="spec.source.digest", remedy="correct the digest or the source")
        return Outcome(kind=kind, ok=False, error=error)
    if act == "transient-error":
        error = ErrorReport(family="transient", reason="SourceUnreachable", message="connection reset")
        return Outcome(kind=kind, ok=False, error=error)
    if act == "out-of-time":
        error = ErrorReport(family="transient", reason="Interrupted", message="the build was interrupted")
        return Outcome(kind=kind, ok=False, error=error)
    source = ResolvedSource(digest=digest, format="huggingface", size_bytes=90_000_000,
                            evaluation_digest=digest if request.accuracy.evaluation else "",
                            calibration_digest=digest if request.engine.calibration else "",
                            checkpoint_digests={one.name: digest for one in request.generate.checkpoints}
                            if request.generate else {},
                            draft_digests={one.name: digest for one in request.generate.drafts}
                            if request.generate else {})
    if kind == "resolve":
        return Outcome(kind=kind, ok=True, source=source)
    if script.language_model:
        return replace(script.language_model, source=source, fingerprint=request.fingerprint())
    engine = replace(script.engine or ENGINE, objective_met=request.device.mig_profile not in script.missed)
    return Outcome(
        kind=kind, ok=True, source=source, fingerprint=request.fingerprint(), manifest_digest=f"sha256:{'b' * 64}",
        built="2026-11-21T10:00:00Z", build_seconds=42.0, engine=engine, serving=ServingChoice(max_batch_size=32),
        candidates=(CandidateSummary(backend="onnxruntime", precision="int8", batch=8, verdict="Shipped",
                                     name="onnxruntime int8-dynamic", serves=(1, 8, 32)),),
    )


ENGINE = EngineSummary(
    backend="onnxruntime", precision="int8", triton_backend="python", size_bytes=23_000_000, speedup=2.2, p50_ms=4.0,
    p95_ms=6.0, p99_ms=7.5, throughput=260.0, accuracy=0.997, accuracy_low=0.995, device="cpu",
    runtime_version="1.31.0", load_seconds=2.0, memory_bytes=300_000_000,
)


def _state(phase: str, container: str, state: Object, *, ready: bool = False, restarts: int = 0) -> Object:
    waiting = "waiting" in state
    verdict = "True" if ready else "False"
    return {
        "phase": phase,
        "startTime": _now(),
        "conditions": [
            {"type": kind, "status": verdict, "lastTransitionTime": _now()} for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {"name": container, "ready": ready, "restartCount": restarts, "image": "x",
             "imageID": "" if waiting else "x", "state": state}
        ],
    }


def _on_a_node_that_goes(status: Object) -> Object:
    """As a kubelet has it that shuts down in time."""
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    return {**status, "conditions": [*status.get("conditions", ()), gone]}


def _not_scheduled() -> Object:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": _now(),
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/mig-3g.40gb."}
    return {"phase": "Pending", "conditions": [said]}


def _refusal(pod: Object, place: int, code: int, why: str) -> Object:
    """By the init container at ``place``."""
    name = pod["spec"]["initContainers"][place]["name"]
    phase = "Failed" if pod["spec"]["restartPolicy"] == "Never" else "Pending"
    status = _state(phase, pod["spec"]["containers"][0]["name"], {"waiting": {"reason": "PodInitializing"}})
    failed = {"name": name, "ready": False, "restartCount": 0, "image": "x", "imageID": "x",
              "state": _ended(code, "Error", why)}
    return {**status, "initContainerStatuses": [failed]}


def _init_statuses(pod: Object, digest: str) -> list[Object]:
    """That all of them have ended well, of images of that digest."""
    return [{"name": container["name"], "ready": False, "restartCount": 0, "image": "x",
             "imageID": f"registry.example/image@{digest}", "state": _ended(0, "Completed", "")}
            for container in pod["spec"].get("initContainers", ())]


def _ended(code: int, reason: str, message: str) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": _now(),
                           "finishedAt": _now()}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
