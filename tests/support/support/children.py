"""All children of one object, as the operator makes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from enginewright.core import manifests
from enginewright.core.access import store_access
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import Owner
from enginewright.core.observed import ClaimView, EngineRecord, KeptRevision
from enginewright.core.placement import Placement, place
from enginewright.core.problems import summarise
from enginewright.core.request import build_request, resolve_request, server_image, store_claim
from enginewright.core.spec import Spec, parse_spec, validate
from enginewright_builder.contract import (
    EngineSummary,
    Outcome,
    ResolvedSource,
    RuntimeRequest,
    ServingChoice,
)

JSON = dict[str, Any]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RESOLVED = ResolvedSource(digest="sha256:" + "a" * 64, format="onnx", size_bytes=90 << 20,
                          evaluation_digest="sha256:" + "e" * 64, calibration_digest="sha256:" + "c" * 64)
ENGINE = EngineSummary(
    backend="onnxruntime", precision="int8", triton_backend="python", size_bytes=23 << 20, speedup=2.2, p50_ms=9.0,
    p95_ms=11.0, p99_ms=12.5, throughput=210.0, accuracy=0.995, accuracy_low=0.993, device="CPU",
    runtime_version="onnxruntime 1.31.0", load_seconds=4.5, memory_bytes=300 << 20)


def resolved_of(spec: Spec) -> ResolvedSource:
    checkpoints, drafts = ({one.name: "sha256:" + "f" * 64 for one in listed}
                           for listed in (spec.engine.checkpoints, spec.engine.drafts))
    return replace(RESOLVED, checkpoint_digests=checkpoints, draft_digests=drafts)


def good_spec(raw: JSON) -> Spec:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    assert validate(spec) == ()
    return spec


def runtime_of(spec: Spec, config: OperatorConfig) -> RuntimeRequest:
    """Of a server image with ONNX Runtime for Triton's Python backend."""
    return RuntimeRequest(server_image=server_image(spec, config))


@dataclass(frozen=True)
class Children:
    """``engine_record`` is the only one that the object does not own."""

    owner: Owner
    spec: Spec
    placement: Placement
    fingerprint: str
    config: OperatorConfig

    @property
    def outcome(self) -> Outcome:
        return Outcome(kind="build", ok=True, fingerprint=self.fingerprint, manifest_digest="sha256:" + "d" * 64,
                       build_seconds=61.5, built="2026-11-21T12:00:00Z",
                       engine=ENGINE,
                       serving=ServingChoice(max_batch_size=16, max_queue_delay_us=500))

    @property
    def record(self) -> EngineRecord:
        return EngineRecord(fingerprint=self.fingerprint, store_claim=store_claim(self.spec), outcome=self.outcome,
                            store_uri=self.spec.store.uri)

    @property
    def revision(self) -> str:
        return manifests.revision_name(self.fingerprint, self.spec, self.placement, self.config)

    @property
    def kept(self) -> KeptRevision:
        raw = self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return KeptRevision(revision=self.revision, spec=raw, image=server_image(self.spec, self.config),
                            placement=self.placement, outcome=self.outcome)

    def all(self) -> dict[str, JSON]:
        owner, spec, config = self.owner, self.spec, self.config
        resolve = manifests.resolve_job(owner, spec, config)
        build = manifests.build_job(owner, spec, self.placement, self.fingerprint, 1, config)
        request = build_request(owner.name, spec, resolved_of(spec), self.placement, config, runtime_of(spec, config))
        claim = store_claim(spec)
        found = {
            "ask_job": manifests.ask_job(owner, spec, config, manifests.shared_ask_job_name(
                spec, config, manifests.ask_key(spec, config))),
            "resolve_request": manifests.request_configmap(owner, resolve["metadata"]["name"],
                                                           resolve_request(owner.name, spec, config,
                                                                           runtime_of(spec, config))),
            "resolve_job": resolve,
            "build_request": manifests.request_configmap(owner, build["metadata"]["name"], request),
            "build_job": build,
            "deployment": manifests.deployment(owner, spec, self.record, self.placement, config),
            "build_lease": manifests.build_lease(owner, self.fingerprint, spec.store.uri, NOW),
            "service": manifests.service(owner),
            "pdb": manifests.pdb(owner),
            "engine_record": manifests.engine_record(
                owner.namespace, ClaimView(name=claim, uid="claim-uid", phase="Bound") if claim else None,
                spec.store.uri, self.outcome, store_access(spec)),
            "revision": manifests.revision_configmap(owner, self.kept),
        }
        if spec.autoscaling and spec.autoscaling.min_replicas == 0:
            found |= {
                "activator": manifests.activator(owner, spec.autoscaling, config),
                "activator_service": manifests.activator_service(owner),
                "backend_service": manifests.backend_service(owner, manifests.NO_REVISION),
            }
        template = manifests.claim_template(owner, self.placement)
        return {**found, "claim_template": template} if template else found


def children_of(name: str, raw: JSON, config: OperatorConfig | None = None, *, namespace: str = "models",
                uid: str = "1b4e28ba-2fa1-11d2-883f-0016d3cca427") -> Children:
    config = config or OperatorConfig()
    spec = good_spec(raw)
    placement = place(spec, RESOLVED.size_bytes, config)
    assert isinstance(placement, Placement), placement
    fingerprint = build_request(name, spec, resolved_of(spec), placement, config,
                                runtime_of(spec, config)).fingerprint()
    return Children(Owner(name=name, namespace=namespace, uid=uid), spec, placement, fingerprint, config)
