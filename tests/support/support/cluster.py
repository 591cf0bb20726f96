"""A Kubernetes cluster small enough to hold in the head: it takes plans, and its controllers move one step at a time.

Pure and without a clock: time moves when a test says so. What the builder and the replicas do is told by the test.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from enginewright.core import labels
from enginewright.core.conditional import ROUTING
from enginewright.core.config import OperatorConfig
from enginewright.core.decide import decide
from enginewright.core.decide.server_step import answer
from enginewright.core.manifests import (
    activator_name,
    ask_key,
    backend_name,
    monitored,
    proven_digest,
    read_record,
    read_revision,
)
from enginewright.core.manifests.service import mirror_name
from enginewright.core.needed import needed_answer, needed_engines
from enginewright.core.observed import (
    ClaimView,
    DeploymentView,
    Elsewhere,
    EndpointView,
    EngineRecord,
    JobView,
    KeptRevision,
    LeaseView,
    ObjectView,
    Observed,
    PodView,
    ServiceView,
    Version,
)
from enginewright.core.plan import (
    ABSENT,
    Action,
    Apply,
    ClaimBuild,
    Create,
    Delete,
    MakeKey,
    MarkRecord,
    Plan,
    ReleaseBuild,
    RenewBuild,
    Replace,
    Scale,
)
from enginewright.core.routing import GRPC_ROUTE, HTTP_ROUTE, GatewayView
from enginewright.core.signals import ProbeResults, Reading, Round, Sample, SignalWindow, Traffic
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.status import ServerStatus
from enginewright.core.tokens import Tokens
from enginewright.core.way_back import needs_kept
from enginewright.observe.routes import route_weights
from enginewright_builder.contract import (
    EXIT_USER,
    CandidateSummary,
    EngineSummary,
    ErrorFamily,
    ErrorReport,
    Facts,
    ImageFacts,
    Outcome,
    Progress,
    QualityReport,
    ResolvedSource,
    ServingChoice,
)

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
NAME = "minilm"
# Of five seconds each: longer than any analysis in a test.
QUIET_ROUNDS = 16
SPEC: Mapping[str, Any] = {
    "source": {"uri": "pvc://models/minilm"},
    "placement": {"accelerator": "cpu"},
    "rollout": {"analysis": {"seconds": 60}},
}


def candidate(**changes: Any) -> CandidateSummary:
    return replace(
        CandidateSummary(
            backend="onnxruntime",
            precision="fp32",
            batch=8,
            verdict="Passed",
            p50_ms=10.0,
            p95_ms=12.0,
            p99_ms=15.0,
            throughput=500.0,
            accuracy=1.0,
            accuracy_low=0.999,
        ),
        **changes,
    )


def engine(**changes: Any) -> EngineSummary:
    return replace(
        EngineSummary(
            backend="onnxruntime",
            precision="int8",
            triton_backend="python",
            size_bytes=23_000_000,
            speedup=2.2,
            p50_ms=5.0,
            p95_ms=7.0,
            p99_ms=9.0,
            throughput=900.0,
            accuracy=0.996,
            accuracy_low=0.995,
            device="CPU",
            runtime_version="1.31.0",
            load_seconds=3.0,
        ),
        **changes,
    )


def resolved() -> Outcome:
    return Outcome(
        kind="resolve",
        ok=True,
        source=ResolvedSource(digest="sha256:" + "a" * 64, format="huggingface", size_bytes=90_000_000),
    )


# Of images with ONNX Runtime for Triton's Python backend, and nothing else.
IMAGE_FACTS = ImageFacts(architecture="x86_64", python="3.11.2", tritonserver="nvidia-pytriton 0.7.0",
                         backends=("python",),
                         libraries={"ONNX Runtime": "1.31.0", "NumPy": "2.4.1", "Tokenizers": "0.23.3"})
SERVER_DIGEST = "sha256:" + "5" * 64


def asked(server: ImageFacts = IMAGE_FACTS, builder: ImageFacts = IMAGE_FACTS) -> Outcome:
    return Outcome(kind="ask", ok=True, facts=Facts(server=server, builder=builder))


def built(fingerprint: str = "", built_at: datetime = START, **changes: Any) -> Outcome:
    return Outcome(
        kind="build",
        ok=True,
        fingerprint=fingerprint,
        # No two builds come to the same one: the manifest says when it was built, and what was measured.
        manifest_digest=f"sha256:{hashlib.sha256(built_at.isoformat().encode()).hexdigest()}",
        build_seconds=61.0,
        built=built_at.isoformat(),
        engine=engine(**changes),
        serving=ServingChoice(max_batch_size=32, preferred_batch_sizes=(8, 16), max_queue_delay_us=500),
        candidates=(candidate(), candidate(precision="int8", verdict="Shipped")),
    )


def refused(kind: Any, family: ErrorFamily, reason: str, message: str = "it does not work", **parts: Any) -> Outcome:
    candidates = parts.pop("candidates", ())
    return Outcome(
        kind=kind,
        ok=False,
        candidates=candidates,
        error=ErrorReport(family=family, reason=reason, message=message, **parts),
    )


REFUSED: Mapping[str, Any] = {
    "phase": "Pending", "failed_container": labels.CONTAINER_VERIFY, "exit_code": EXIT_USER,
    "terminated_message": "engine refused: manifest.json has another digest than the engine that was proven",
}


class StaleError(AssertionError):
    """What was to be written has changed since it was read: the apiserver answers 409. Only a pass that stood still
    while another operator worked may see it."""


class LostRaceError(Exception):
    """Somebody else wrote first."""


@dataclass
class Cluster:
    """One object's part of a cluster; two that share ``leases`` and ``records`` are two objects in one namespace. So
    are those that are ``neighbours`` of each other: each sees what the others know of server images.
    ``kinds`` are those of the Gateway API that the cluster has, ``routes`` the weights in routes, ``slices`` the
    ready addresses behind revisions' Services. Unless ``unasked``, a server image that is new has been asked before
    the operator looks, with the answer ``facts``. ``broken`` names revisions whose replicas never get ready, with the
    pod fields that show why. ``stored`` are the manifest digests of the engines in the store, by
    fingerprint: replicas that look for another one refuse it. Each replica behind the Service gets ``rate``
    requests a second; without, and if ``probed``, probes bring some. ``slower`` multiplies a revision's latency,
    ``failing`` is the share of its requests that fail, ``mute`` has the pods whose metrics cannot be read since that
    second, ``similarity`` how alike it answers, ``p99`` what its
    servers export, in milliseconds. ``scores`` are, by
    revision, what the monitor of each replica has in its window: live answers, and their mean score; ``told`` are
    whole reports, by pod, and ``mirrored`` says by candidate how many live requests each other replica has sent it
    as well, and their mean score. ``backend`` is the revision that the activator's own Service selects, None before
    there is one; while ``holding`` is False activators never get ready."""

    spec: Mapping[str, Any] = field(default_factory=lambda: dict(SPEC))
    name: str = NAME
    uid: str = "u-1"
    config: OperatorConfig = field(default_factory=OperatorConfig)
    facts: Facts = field(default_factory=lambda: Facts(server=IMAGE_FACTS, builder=IMAGE_FACTS))
    unasked: bool = False
    neighbours: list[Cluster] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 1
    now: datetime = START
    claims: set[str] = field(default_factory=lambda: {"models", "enginewright-store"})
    jobs: dict[str, JobView] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    captures: set[str] = field(default_factory=set)
    deployments: dict[str, DeploymentView] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    activators: dict[str, PodView] = field(default_factory=dict)
    holding: bool = True
    collecting: bool = True
    left: set[str] = field(default_factory=set)
    backend: str | None = None
    service: ServiceView | None = None
    applied: dict[str, str] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    endpoints: tuple[EndpointView, ...] = ()
    records: dict[str, EngineRecord] = field(default_factory=dict)
    leases: dict[str, LeaseView] = field(default_factory=dict)
    kept: dict[str, KeptRevision] = field(default_factory=dict)
    signals: SignalWindow | None = None
    kinds: set[str] = field(default_factory=lambda: {HTTP_ROUTE, GRPC_ROUTE})
    routes: dict[str, Mapping[str, int]] = field(default_factory=dict)
    slices: dict[str, int] = field(default_factory=dict)
    broken: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    devices: int = 1000
    rolling: dict[str, tuple[int, int]] = field(default_factory=dict)
    serial: int = 0
    log: list[str] = field(default_factory=list)
    last: Plan = field(default_factory=Plan)
    rate: float = 20.0
    probed: bool = True
    slower: dict[str, float] = field(default_factory=dict)
    failing: dict[str, float] = field(default_factory=dict)
    mute: dict[str, float] = field(default_factory=dict)
    similarity: dict[str, float] = field(default_factory=dict)
    p99: dict[str, float] = field(default_factory=dict)
    scores: dict[str, tuple[int, float]] = field(default_factory=dict)
    told: dict[str, QualityReport] = field(default_factory=dict)
    mirrored: dict[str, tuple[int, float]] = field(default_factory=dict)

    # What the operator sees and does.

    def view(self) -> ObjectView:
        return ObjectView(
            name=self.name,
            namespace="prod",
            uid=self.uid,
            generation=self.generation,
            resource_version="1",
            deleting=False,
            annotations=dict(self.annotations),
            spec=self.spec,
            status=self.status if self.unasked else {**self.status, **self._asked()},
        )

    def _asked(self) -> Mapping[str, Any]:
        """The block of status that tells what today's server image has; none where there is no such image."""
        serving, images = self.spec.get("serving"), self.config.images
        image = (serving.get("image") if isinstance(serving, Mapping) else "") or images.server
        known = self.status.get("server") or {}
        if known.get("runtime") and (known["image"], known["builderImage"]) == (image, images.builder):
            return {}
        spec = parse_spec(self.spec)
        if not isinstance(spec, Spec) or spec.placement.classes:
            return {}
        told = ServerStatus(image=image, builder_image=images.builder)
        return {"server": answer(told, ask_key(spec, self.config), SERVER_DIGEST, self.facts, None).as_json()}

    def observe(self) -> Observed:
        view = self.view()
        seen = self._observe(view)
        seen = replace(seen, elsewhere=self._elsewhere(view, seen))
        needed, mine = needed_engines(view, seen, self.config), f"{view.namespace}/{view.name}/{view.uid}"
        leases = {key: one for key, one in self.leases.items() if key in needed.building or one.holder == mine}
        return replace(seen, leases=leases,
                       records={key: record for key, record in self.records.items() if key in needed.records})

    def _elsewhere(self, view: ObjectView, seen: Observed) -> Elsewhere | None:
        """As the shell reads it and the operator remembers it."""
        question = needed_answer(view, seen, self.config)
        if question is None:
            return None
        told = (one.view().status.get("server") or {} for one in self.neighbours)
        answers = (one for one in told if one.get("runtime") and (one.get("key"), one.get("architecture")) == (
            question.key, question.machine))
        owner = next((one for one in self.neighbours if question.job in one.jobs), None)
        return Elsewhere(name=question.job, server=next(answers, {}), model=owner.name if owner else "",
                         job=owner.jobs[question.job] if owner else None)

    def _observe(self, view: ObjectView) -> Observed:
        return Observed(
            now=self.now,
            monotonic=self.monotonic,
            jobs=tuple(self.jobs.values()),
            deployments=tuple(self.deployments.values()),
            pods=tuple(self.pods.values()),
            activators=tuple(self.activators.values()),
            service=self.service,
            endpoints=self.endpoints,
            kept=dict(self.kept) if needs_kept(view) else {},
            signals=self.signals,
            applied=dict(self.applied),
            versions={key: self._version(key) for key in self.applied},
            gateway=self._gateway(),
            quality=self._quality(),
            claims={name: ClaimView(name=name, uid=f"c-{name}", phase="Bound") for name in self.claims},
        )

    def _quality(self) -> Mapping[str, QualityReport]:
        found = {pod.name: self.scores[pod.revision] for pod in self.pods.values()
                 if pod.ready and pod.revision in self.scores}
        reports = {name: QualityReport(metric="cosine", tolerance=0.01, samples=samples, total=samples * mean)
                   for name, (samples, mean) in found.items()}
        return {**reports, **self._mirrored(), **self.told}

    def _mirrored(self) -> Mapping[str, QualityReport]:
        """Of replicas whose requests the Service of a candidate takes to it."""
        if f"Service/{mirror_name(self.name)}" not in self.applied:
            return {}
        candidate = str((self.status.get("rollout") or {}).get("candidate"))
        count, mean = self.mirrored.get(candidate, (0, 0.0))
        targets = tuple(sorted({pod.ip for pod in self.pods.values() if pod.ready and pod.revision == candidate}))
        return {pod.name: QualityReport(metric="cosine", tolerance=0.01, mirrored=count, agreed=count * mean,
                                        targets=targets)
                for pod in self.pods.values() if pod.ready and pod.revision != candidate}

    def _gateway(self) -> GatewayView:
        """As the shell reads it."""
        asked = (self.spec.get("rollout") or {}).get("gateway")
        if not asked and not self._backends():
            return GatewayView()
        wanted = {HTTP_ROUTE, *([GRPC_ROUTE] if asked.get("grpcHostnames") else [])} if asked else set()
        return GatewayView(
            weights={kind: weights for kind, weights in self.routes.items() if kind in self.kinds},
            missing=tuple(sorted(wanted - self.kinds, reverse=True)),
            ready=dict(self.slices),
        )

    def _backends(self) -> list[str]:
        """Revisions that have a Service of their own."""
        start = f"Service/{self.name}-"
        others = (f"Service/{backend_name(self.name)}", f"Service/{mirror_name(self.name)}")
        return [key.removeprefix(start) for key in self.applied if key.startswith(start) and key not in others]

    @property
    def monotonic(self) -> float:
        return (self.now - START).total_seconds()

    def plan(self) -> Plan:
        return decide(self.view(), self.observe(), self.config)

    def operate(self, *, plan: Plan | None = None, writes: int | None = None) -> Plan:
        """One pass. ``plan`` is what was decided, if it was; ``writes`` is after how many writes the operator is killed
        (None: it is not)."""
        plan = plan or self.plan()
        try:
            done = self.carry_out(plan, writes)
        except LostRaceError:
            done = False
        if done:
            self.log += [f"{event.type} {event.reason}" for event in plan.events]
            self._recommend(plan)
        self.last = plan
        self._listen(plan)
        return plan

    def _listen(self, plan: Plan) -> None:
        """As the scraper does: another question begins without samples."""
        if not plan.watch_queue:
            self.signals = None
            return
        window = self.signals or SignalWindow(started=self.monotonic)
        key = plan.question.key if plan.question else ""
        if key != window.analysis:
            window = replace(window, analysis=key, rounds=(), readings=(), probes=ProbeResults())
        self.signals = window

    def carry_out(self, plan: Plan, writes: int | None = None) -> bool:
        """Whether ``plan`` needs no more than so many writes. Raises :class:`LostRaceError`, which ends a pass before
        its status is written."""
        for number, write in enumerate(writes_of(plan, self.status)):
            if number == writes:
                return False
            if isinstance(write, Mapping):
                self.status = write
            else:
                self.act(write)
        return True

    def _recommend(self, plan: Plan) -> None:
        if self.signals is not None and plan.recommendation is not None:
            made = (*self.signals.recommendations, (self.monotonic, plan.recommendation))
            self.signals = replace(self.signals, recommendations=made[-400:])

    def _version(self, key: str) -> Version:
        return Version(f"u-{key}", f"{self.writes[key]}-writes")

    def _check(self, action: Action) -> None:
        """As the apiserver does: what routes traffic is written as it was seen, or not at all."""
        match action:
            case Apply(manifest=manifest) if manifest["kind"] in ROUTING:
                key = f"{manifest['kind']}/{manifest['metadata']['name']}"
                expected = self._version(key) if key in self.applied else Version("", ABSENT)
                self._demand((action.uid, action.version) == expected, key)
                self.writes[key] += 1
            case Apply(manifest=manifest, version=version) if manifest["kind"] == "Deployment":
                name = manifest["metadata"]["name"]
                there = name in self.deployments or f"Deployment/{name}" in self.applied
                self._demand((version == ABSENT) is not there, name)
            case Delete(kind=kind, name=name) if kind in ROUTING and f"{kind}/{name}" in self.applied:
                self._demand((action.uid, action.version) == self._version(f"{kind}/{name}"), name)
            case Scale(deployment=name) | Delete(kind="Deployment", name=name):
                if seen := self.deployments.get(name):
                    self._demand((action.uid, action.generation) == (seen.uid, seen.generation), name)

    def _demand(self, unchanged: bool, what: str) -> None:
        if not unchanged:
            raise StaleError(f"{what} has changed since")

    def act(self, action: Action) -> None:
        self._check(action)
        match action:
            case Apply(manifest=manifest):
                self._apply(manifest)
            case Create(manifest=manifest):
                self._create(manifest)
            case Replace(manifest=manifest, version=version):
                self._replace(manifest, version)
            case Delete(kind=kind, name=name):
                self._delete(kind, name)
            case Scale(deployment=name, replicas=replicas):
                if name in self.deployments:
                    self._change(name, spec_replicas=replicas, replicas_manager="")
            case _:
                self._share(action)

    def _share(self, action: Action) -> None:
        """What concerns engines that several objects may ask for."""
        match action:
            case ClaimBuild(manifest=manifest, version=version):
                self._claim(manifest, version)
            case RenewBuild(name=name, version=version, time=time):
                self._lease(name, version, time)
            case ReleaseBuild(name=name, version=version):
                self._lease(name, version, None)
            case MarkRecord(name=name, since=since):
                for key, record in self.records.items():
                    if name.startswith(f"engine-{labels.fingerprint_label(key)}-"):
                        self.records[key] = replace(record, unreferenced=since)

    def _replace(self, manifest: Mapping[str, Any], version: str) -> None:
        """A merge patch: what is None goes."""
        meta = manifest["metadata"]
        kept = {key: value for key, value in meta["annotations"].items() if value is not None}
        record = read_record({**manifest, "metadata": {**meta, "annotations": kept}})
        assert record is not None
        if self.records[record.fingerprint].version == version:
            self.records[record.fingerprint] = record

    def _claim(self, manifest: Mapping[str, Any], version: str) -> None:
        meta, spec = manifest["metadata"], manifest["spec"]
        fingerprint = meta["annotations"][labels.FINGERPRINT_FULL]
        there = self.leases.get(fingerprint)
        if (there.version if there else "") != version:
            raise LostRaceError
        self.leases[fingerprint] = LeaseView(
            name=meta["name"],
            holder=spec["holderIdentity"],
            renewed=datetime.fromisoformat(spec["renewTime"]),
            seconds=spec["leaseDurationSeconds"],
            version=uuid.uuid4().hex,
        )

    def _lease(self, name: str, version: str, renewed: datetime | None) -> None:
        """Renewed, or without ``renewed`` gone."""
        found = [item for item in self.leases.items() if (item[1].name, item[1].version) == (name, version)]
        if not found:
            return
        ((fingerprint, lease),) = found
        del self.leases[fingerprint]
        if renewed:
            self.leases[fingerprint] = replace(lease, renewed=renewed, version=uuid.uuid4().hex)

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        meta = manifest["metadata"]
        if manifest["kind"] == "Deployment" and labels.REVISION in meta["labels"]:
            self._apply_deployment(manifest)
            return
        self.applied[f"{manifest['kind']}/{meta['name']}"] = meta["annotations"][labels.MANIFEST_HASH]
        if manifest["kind"] in (HTTP_ROUTE, GRPC_ROUTE):
            assert manifest["kind"] in self.kinds, "there is no such kind"
            self.routes[manifest["kind"]] = route_weights(manifest, self.name)
        elif manifest["kind"] == "Service" and meta["name"] == self.name:
            selector = manifest["spec"]["selector"]
            self.service = ServiceView(
                name=meta["name"], revision=selector.get(labels.REVISION, ""),
                activator=selector[labels.COMPONENT] == labels.COMPONENT_ACTIVATOR,
            )
        elif meta["name"] == backend_name(self.name):
            self.backend = manifest["spec"]["selector"].get(labels.REVISION, "")

    def _apply_deployment(self, manifest: Mapping[str, Any]) -> None:
        meta = manifest["metadata"]
        name = meta["name"]
        assert "replicas" in manifest["spec"], "server-side apply would set them back to 1"
        digest = proven_digest(manifest["spec"]["template"]["spec"])
        rolling = manifest["spec"]["strategy"].get("rollingUpdate") or {}
        self.rolling[name] = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        if name in self.deployments:
            self._change(name, manifest_digest=digest, spec_replicas=manifest["spec"]["replicas"])
            return
        self.deployments[name] = DeploymentView(
            name=name,
            uid=uuid.uuid4().hex,
            revision=meta["labels"][labels.REVISION],
            fingerprint=meta["annotations"][labels.FINGERPRINT_FULL],
            generation=1,
            observed_generation=0,
            created=self.now,
            spec_replicas=manifest["spec"]["replicas"],
            manifest_digest=digest,
            monitored=monitored(manifest["spec"]["template"]["spec"]),
        )

    def _change(self, name: str, **fields: Any) -> None:
        old = self.deployments[name]
        self.deployments[name] = replace(old, generation=old.generation + 1, **fields)

    def _create(self, manifest: Mapping[str, Any]) -> None:
        meta = manifest["metadata"]
        if manifest["kind"] == "ConfigMap":
            if labels.CAPTURES in meta["labels"]:
                self.captures.add(meta["name"])
            elif record := read_record(manifest):
                self.records.setdefault(record.fingerprint, record)
            elif kept := read_revision(manifest):
                self.kept.setdefault(kept.revision, kept)
            else:
                self.requests[meta["name"]] = manifest["data"]["request.json"]
        elif not any(meta["name"] in one.jobs for one in (self, *self.neighbours)):
            self.jobs[meta["name"]] = JobView(
                name=meta["name"],
                uid=f"j-{meta['name']}",
                created=self.now,
                step=meta["labels"][labels.STEP],
                active=1,
                suspended=manifest["spec"].get("suspend", False),
                deadline=manifest["spec"]["template"]["spec"].get("activeDeadlineSeconds", 0),
                fingerprint=meta["annotations"].get(labels.FINGERPRINT_FULL, ""),
                store_uri=meta["annotations"].get(labels.STORE_URI, ""),
                manifest_hash=meta["annotations"][labels.MANIFEST_HASH],
                retry=meta["annotations"].get(labels.RETRY, ""),
            )

    def _delete(self, kind: str, name: str) -> None:
        if kind == "Job":
            self.jobs.pop(name, None)
        elif kind in ("Service", HTTP_ROUTE, GRPC_ROUTE):
            self.applied.pop(f"{kind}/{name}", None)
            self.slices.pop(name.removeprefix(f"{self.name}-"), None)
            if name == backend_name(self.name):
                self.backend = None
            if kind != "Service":
                self.routes.pop(kind, None)
        elif kind == "Pod":
            self.pods.pop(name, None)
        elif kind == "Deployment" and name == activator_name(self.name):
            self.applied.pop(f"Deployment/{name}", None)
        elif kind == "Deployment" and name in self.deployments:
            self.deployments[name] = replace(self.deployments[name], deleting=True)
        elif kind == "ConfigMap":
            self._delete_config_map(name)

    def _delete_config_map(self, name: str) -> None:
        self.requests.pop(name, None)
        self.kept = {key: kept for key, kept in self.kept.items() if name != f"{self.name}-{key}"}
        for key in list(self.records):  # another object may share them
            if name.startswith(f"engine-{labels.fingerprint_label(key)}-"):
                del self.records[key]

    def act_delete_deployment(self, name: str) -> None:
        """As somebody with kubectl would."""
        self._delete("Deployment", name)

    # What Kubernetes does.

    def activator_controller(self) -> None:
        """The Deployment of activators: its one pod comes and goes with it."""
        name = activator_name(self.name)
        if f"Deployment/{name}" not in self.applied:
            self.activators = {}
        elif not self.activators:
            self.activators[name] = PodView(name=name, phase="Pending", created=self.now, ip="10.0.0.2")

    def deployment_controller(self) -> None:
        self.activator_controller()
        self._collect()
        for name, deployment in list(self.deployments.items()):
            mine = self._owned(deployment)
            if deployment.deleting:
                self.left |= {pod.name for pod in mine}
                self._collect()
                del self.deployments[name]
                continue
            if any(pod.manifest_digest != deployment.manifest_digest for pod in mine):
                self._roll(deployment, mine)
                continue
            for pod in sorted(mine, key=lambda pod: (pod.ready, pod.name))[
                : max(0, len(mine) - deployment.spec_replicas)
            ]:
                del self.pods[pod.name]
            self._add(deployment, deployment.spec_replicas - len(mine))
            self._count(name)

    def _owned(self, deployment: DeploymentView) -> list[PodView]:
        return [pod for pod in self.pods.values()
                if pod.revision == deployment.revision and pod.name not in self.left]

    def _collect(self) -> None:
        if self.collecting:
            self.pods = {name: pod for name, pod in self.pods.items() if name not in self.left}
            self.left = set()

    def _add(self, deployment: DeploymentView, number: int) -> None:
        for _ in range(number):
            self.serial += 1
            name = f"{deployment.name}-{self.serial}"
            self.pods[name] = PodView(
                name=name, phase="Pending", revision=deployment.revision, created=self.now, ip="10.0.0.1",
                manifest_digest=deployment.manifest_digest,
            )

    def _roll(self, deployment: DeploymentView, pods: list[PodView]) -> None:
        """As the Deployment controller does: new ones within the surge, then old ones that are not ready, then others,
        as far as enough are available (kubernetes pkg/controller/deployment/rolling.go)."""
        unavailable, surge = self.rolling[deployment.name]
        wanted, digest = deployment.spec_replicas, deployment.manifest_digest
        new = sum(pod.manifest_digest == digest for pod in pods)
        self._add(deployment, min(wanted - new, wanted + surge - len(pods)))
        pods = self._owned(deployment)
        waiting = sum(pod.manifest_digest == digest and not pod.ready for pod in pods)
        spare = len(pods) - (wanted - unavailable) - waiting
        old = sorted((pod for pod in pods if pod.manifest_digest != digest), key=lambda pod: (pod.ready, pod.name))
        for pod in old[: max(0, spare)]:
            if pod.ready and sum(one.ready for one in self.pods.values() if one in pods) <= wanted - unavailable:
                break
            del self.pods[pod.name]
        self._count(deployment.name)

    def _count(self, name: str) -> None:
        deployment = self.deployments[name]
        mine = self._owned(deployment)
        ready = sum(pod.ready for pod in mine)
        self.deployments[name] = replace(
            deployment, observed_generation=deployment.generation, replicas=len(mine), ready=ready, available=ready
        )

    def kubelet(self) -> None:
        self.activators = {name: replace(pod, ready=self.holding) for name, pod in self.activators.items()}
        for pod in list(self.pods.values())[: self.devices]:
            wrong = self.broken.get(pod.revision) or self._refuses(pod)
            if pod.name in self.left:
                continue
            if wrong is not None and not (pod.ready and wrong is REFUSED):
                self.pods[pod.name] = replace(pod, ready=False, **wrong)
            elif not pod.ready:
                self.pods[pod.name] = replace(
                    pod,
                    ready=True,
                    phase="Running",
                    exit_code=None,
                    failed_container="",
                    waiting_reason="",
                    unschedulable="",
                )

    def _refuses(self, pod: PodView) -> Mapping[str, Any] | None:
        """What its verify container finds, which runs once, before the server."""
        of = next((one.fingerprint for one in self.deployments.values() if one.revision == pod.revision), "")
        there = self.stored.get(of, pod.manifest_digest)
        return REFUSED if pod.manifest_digest not in ("", there) else None

    def endpoint_controller(self) -> None:
        self.slices = {revision: self._ready(revision) for revision in self._backends()}
        if self.service is None:
            return
        if self.service.activator:
            self.endpoints = tuple(EndpointView(pod=pod.name, revision="", ready=pod.ready, activator=True)
                                   for pod in self.activators.values())
            return
        selected = self.service.revision
        self.endpoints = tuple(
            EndpointView(pod=pod.name, revision=pod.revision, ready=pod.ready)
            for pod in self.pods.values()
            if selected in ("", pod.revision)
        )

    def controllers(self) -> None:
        """Every controller once, and the Deployments' counts after the kubelet."""
        self.deployment_controller()
        self.kubelet()
        for name, deployment in self.deployments.items():
            if not deployment.deleting:
                self._count(name)
        self.endpoint_controller()

    # What the test does.

    def finish(self, outcome: Outcome, *, of: str = "") -> None:
        """Ends the running Jobs (those whose name contains ``of``) with ``outcome``."""
        for job in self.running(of):
            said = replace(outcome, fingerprint=job.fingerprint) if outcome.ok else outcome
            if said.ok and said.kind == "build":
                self.stored[job.fingerprint] = said.manifest_digest
            self.jobs[job.name] = replace(
                job,
                active=0,
                succeeded=outcome.ok,
                failed=not outcome.ok,
                outcome=said,
                failure_reason="" if outcome.ok else "BackoffLimitExceeded",
            )

    def fail(self, *, of: str = "", pods: tuple[PodView, ...] = (), reason: str = "BackoffLimitExceeded") -> None:
        """Ends the running Jobs without a word."""
        for job in self.running(of):
            self.jobs[job.name] = replace(job, active=0, failed=True, failure_reason=reason, pods=pods)

    def running(self, of: str = "") -> list[JobView]:
        return [
            job for job in self.jobs.values() if not (job.succeeded or job.failed or job.deleting) and of in job.name
        ]

    def show(self, name: str, **fields: Any) -> None:
        """Changes what is seen of a Job."""
        self.jobs[name] = replace(self.jobs[name], **fields)

    def progress(self, step: str, fraction: float) -> None:
        for job in self.running("build"):
            self.show(job.name, progress=Progress(step=step, fraction=fraction))

    def edit(self, **changes: Any) -> None:
        """A new spec: top-level fields replaced, those set to None removed."""
        merged = {**self.spec, **changes}
        self.spec = {key: value for key, value in merged.items() if value is not None}
        self.generation += 1

    def wait(self, seconds: float) -> None:
        """Replicas answer requests meanwhile, for a minute at most."""
        for second in range(min(60, int(seconds))):
            self._scrape(self.monotonic + second + 1)
        self.now += timedelta(seconds=seconds)

    def _scrape(self, time: float) -> None:
        question, window = self.last.question, self.signals
        if question is None or window is None:
            return
        selected = self.service.revision if self.service else ""
        live = {name: self._ready(name) if selected in ("", name) else 0 for name in (question.stable,
                                                                                      question.candidate)}
        thin = min(live.values()) * self.rate < 2
        there = question.alone or all(map(self._ready, live))
        probes = 4 if thin and self.probed and there and question.switched is None else 0
        traffic = {name: self._traffic(name, count * self.rate + probes, count) for name, count in live.items()
                   if self._ready(name)}
        seen = window.probes
        if not self.probed:
            seen = ProbeResults(problem="probes are not answered")
        elif all(map(self._ready, live)):
            likeness = self.similarity.get(question.candidate, 0.999)
            seen = replace(seen, pairs=seen.pairs + 1, similarities=(*seen.similarities, likeness)[-64:])
        rounds = (*window.rounds, Round(time=time, traffic=traffic))[-1800:]
        self.signals = replace(window, rounds=rounds, probes=seen, readings=tuple(
            Reading(pod.name, pod.revision, self.mute.get(pod.name, time), counted=pod.name not in self.mute)
            for pod in self.pods.values() if pod.ready))

    def _traffic(self, revision: str, requests: float, replicas: int) -> Traffic:
        failed = requests * self.failing.get(revision, 0.0)
        busy = (requests - failed) * 5000 * self.slower.get(revision, 1.0)
        asks_for_text = self.last.question is not None and self.last.question.generates
        return Traffic(requests=requests - failed, failed=failed, busy=busy, queued=busy / 4, replicas=max(1, replicas),
                       p99=self.p99.get(revision), tokens=self._tokens(revision, requests) if asks_for_text else None)

    def _tokens(self, revision: str, requests: float) -> Tokens:
        """Of answers of 40 tokens, 30 ms each, or as much slower as the revision is."""
        slower = self.slower.get(revision, 1.0)
        return Tokens(begun=requests, waited=requests * 2e5, ended=requests, generated=requests * 40, paced=requests,
                      pace=requests * 3e4 * slower)

    def _ready(self, revision: str) -> int:
        return sum(pod.ready for pod in self.pods.values() if pod.revision == revision)

    def step(self) -> Plan:
        """A pass, then a step of every controller, then a second."""
        plan = self.operate()
        self.controllers()
        self.wait(1)
        return plan

    def move(self, seconds: float = 1.0) -> Plan:
        """As :meth:`step`, with every Job ending well."""
        plan = self.operate()
        self.settle_jobs()
        self.controllers()
        self.wait(seconds)
        return plan

    def settle_jobs(self) -> None:
        if not self.running():
            return
        self.finish(replace(asked(), facts=self.facts), of="-ask-")
        self.finish(resolved(), of="resolve")
        self.finish(built(built_at=self.now), of="build")

    def settle(self, rounds: int = 150) -> None:
        """Goes on until nothing changes and nobody waits for anything, with every Job ending well."""
        quiet = 0
        for _ in range(rounds):
            before = self._seen()
            plan = self.move(5)
            quiet = quiet + 1 if before == self._seen() else 0
            if quiet >= (1 if plan.requeue_after is None else QUIET_ROUNDS):
                return
        raise AssertionError("the cluster did not settle")

    def _seen(self) -> tuple[Any, ...]:
        return (self.status, dict(self.jobs), dict(self.deployments), dict(self.pods), self.service, self.endpoints,
                dict(self.applied), dict(self.slices))

    def queue(self, depth: float, *, seconds: int = 3, arrived: float | None = None, held: float = 0.0,
              p99: float | None = None) -> None:
        """``seconds`` scrapes, one a second, of ``depth`` requests in all, spread over the ready replicas; ``held`` are
        those that the activator holds, should there be one; ``p99`` is the servers' own."""
        for _ in range(seconds):
            ready = [pod.name for pod in self.pods.values() if pod.ready]
            told = any(pod.ready for pod in self.activators.values())
            window = self.signals or SignalWindow(started=self.monotonic)
            sample = Sample(
                time=self.monotonic, ready=len(ready), pending=dict.fromkeys(ready, depth / max(1, len(ready))),
                arrived=arrived if ready else None, held=held if told else None, p99=p99,
            )
            self.signals = replace(window, samples=(*window.samples, sample)[-120:])
            self.wait(1)

    # What the test reads.

    def condition(self, kind: str) -> Mapping[str, Any]:
        return next(entry for entry in self.status["conditions"] if entry["type"] == kind)

    def says(self, kind: str) -> str:
        """``True/Built`` and the like."""
        entry = self.condition(kind)
        return f"{entry['status']}/{entry['reason']}"

    def replicas(self) -> dict[str, int]:
        """Asked-for replicas by revision, of Deployments that stay."""
        return {d.revision: d.spec_replicas for d in self.deployments.values() if not d.deleting}

    @property
    def revision(self) -> str:
        """The revision that serves alone."""
        assert self.service is not None
        return self.service.revision


def writes_of(plan: Plan, status: Mapping[str, Any]) -> Iterator[Action | Mapping[str, Any]]:
    """All that a pass writes, in its order: actions, and status as the apiserver stores it, unless it is so already;
    ``status`` is what it was."""
    last = _stored(plan.status)
    if not plan.actions:
        if last != status:
            yield last
        return
    ahead = _stored(plan.ahead(status))
    yield from plan.first
    yield from plan.keeping
    if ahead != status:
        yield ahead
    yield from plan.then
    yield from plan.serving
    if last != ahead:
        yield last


def _stored(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """As plain JSON."""
    stored: Mapping[str, Any] = json.loads(json.dumps(status))
    return stored


def describe(action: Action) -> str:
    """``Create Job minilm-build-1a2b3c4d-1`` and the like."""
    match action:
        case Apply(manifest=manifest) | Create(manifest=manifest) | Replace(manifest=manifest):
            return f"{type(action).__name__} {manifest['kind']} {manifest['metadata']['name']}"
        case MakeKey(manifest=manifest):
            return f"MakeKey {manifest['metadata']['name']}"
        case Delete(kind=kind, name=name):
            return f"Delete {kind} {name}"
        case Scale(deployment=name, replicas=replicas):
            return f"Scale {name} {replicas}"
        case ClaimBuild(manifest=manifest):
            return f"Claim {manifest['metadata']['name']}"
        case RenewBuild(name=name) | ReleaseBuild(name=name):
            return f"{type(action).__name__.removesuffix('Build')} {name}"
        case MarkRecord(name=name, since=since):
            return f"{'Mark' if since else 'Clear'} {name}"


def described(plan: Plan) -> list[str]:
    return [describe(action) for action in plan.actions]
