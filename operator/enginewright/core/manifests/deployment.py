"""The Deployment of one revision. Its ``replicas`` are the number at the time it is made; then only the scaler
changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.access import ACCOUNT, account_of, store_access, store_variables
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    claim_volume,
    container_security,
    device_claims,
    metadata,
    module,
    node_placement,
    pod_security,
    pull_secrets,
    resources,
    scratch_volumes,
    sealed,
    short_hash,
    spread_over_nodes,
    tmp_mount,
    tmp_volume,
)
from enginewright.core.manifests.pod_template import merge
from enginewright.core.manifests.quality import Captures, language_model_monitor, monitor, trace_volumes
from enginewright.core.manifests.server import SMOKE_PATH, server, server_resources, startup_seconds
from enginewright.core.manifests.server_generate import language_model_server
from enginewright.core.manifests.service import mirror_name
from enginewright.core.manifests.signing import capture_key_volume
from enginewright.core.manifests.trusted_ca import trusted_mounts, trusted_variables, trusted_volumes
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, pinned
from enginewright.core.published import published
from enginewright.core.request import STORE_PATH, captures_folder, queue_request, server_image, store_folder
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec import Spec
from enginewright.core.spec.base import in_bucket
from enginewright.core.spec.tasks import generates
from enginewright.core.spot import on_spot

# Raised when what a revision is changes for the same spec, so that an upgrade rolls on purpose only.
REVISION_VERSION = 2

ENGINE_PATH = "/engine"
STORE_VOLUME = "engine-store"
SMOKE_SIZE = "32Mi"
# The Python backend's tensors in flight; the node's memory is used only as far as it is filled. The processes of vLLM
# talk through it, too, one for each GPU.
SHARED_MEMORY, LANGUAGE_MODEL_SHARED_MEMORY = "1Gi", "8Gi"
_DIGEST = "--manifest-digest"
ENGINE_SPARE_MIB = 1024
IMAGE_PULL_SECONDS = 900  # server images weigh up to 10 GB


def revision_name(fingerprint: str, spec: Spec, placement: Placement, config: OperatorConfig) -> str:
    """8 hex digits over the engine and all that changes what a serving pod is: a new revision is proven before it takes
    traffic. Replicas, autoscaling and rollout settings are not in it."""
    return short_hash({
        **_quality_key(spec),
        "version": REVISION_VERSION,
        "fingerprint": fingerprint,
        "image": server_image(spec, config),
        "store": spec.store.uri,
        **({"access": access} if (access := store_access(spec)) else {}),
        # The field runtime went, whose one value stays, so that revisions keep their names.
        # So does a spec without a queue policy, and one without a cache.
        "serving": {"runtime": "triton", **spec.serving.model_dump(mode="json", exclude={"image"} | {
            name for name in ("queue", "response_cache") if getattr(spec.serving, name) is None})},
        "placement": [dict(placement.limits), node_placement(_spot(placement, spec, config)),
                      device_claims("", placement)],
    }, 8)


def _spot(placement: Placement, spec: Spec, config: OperatorConfig) -> Placement:
    return on_spot(placement, spec.placement.spot.replicas if spec.placement.spot else None, config.spot_labels)


def _quality_key(spec: Spec) -> JSON:
    """Nothing where live answers are not looked at, or requests not captured: revisions of before that was known keep
    their names."""
    if spec.quality is None:
        return {}
    left_out = {"rollback"} | (set() if spec.quality.capture else {"capture"})
    return {"quality": spec.quality.model_dump(mode="json", exclude=left_out)}


def deployment_name(owner_name: str, revision: str) -> str:
    return f"{owner_name}-{revision}"


def deployment(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig, *,
               replicas: int | None = None, again: bool = False, capture: bool = True) -> JSON:
    """The Deployment of the revision ``revision_name(record.fingerprint, spec, placement, config)``. ``again``: of one
    that is there, with replicas that will never start. ``capture`` False: its replicas keep no requests, though the
    revision's spec asked for it; the object's spec of today does not."""
    fingerprint = record.fingerprint
    revision = revision_name(fingerprint, spec, placement, config)
    captures = _captures(owner, spec, revision) if capture else None
    summary = published(record.outcome)
    placement = pinned(placement, summary.device if summary else "")
    placement = _spot(placement, spec, config)
    extra = {labels.REVISION: revision, labels.FINGERPRINT: labels.fingerprint_label(fingerprint)}
    if owner.fleet:
        extra[labels.FLEET] = owner.fleet
    template = {
        "metadata": {"labels": {**labels.common(owner.name, labels.COMPONENT_SERVER), **extra,
                                **({labels.SERVER: VLLM.program[0]} if generates(spec) else {})},
                     "annotations": {labels.FINGERPRINT_FULL: fingerprint}},
        "spec": _pod(owner, spec, record, placement, config, revision, captures),
    }
    return sealed({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(owner, deployment_name(owner.name, revision), labels.COMPONENT_SERVER, extra=extra,
                             annotations={labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: spec.store.uri,
                                          **({labels.CAPTURES: "true"} if captures else {})}),
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": labels.revision_selector(owner.name, revision)},
            "strategy": _strategy(spec, again=again),
            "progressDeadlineSeconds": 2 * startup_seconds(record) + IMAGE_PULL_SECONDS,  # to load, and to answer
            "revisionHistoryLimit": 1,  # revisions are Deployments of their own
            "template": merge(template, spec.serving.pod_template),
        },
    })


def _strategy(spec: Spec, *, again: bool) -> JSON:
    """``again``: a replica that will never start is to go before another one comes, for it may hold the only device.
    Those that serve then go one at a time, each when another one has come."""
    recreate = spec.rollout.strategy == "Recreate"
    if recreate and not again:
        return {"type": "Recreate"}
    surge = 0 if recreate else spec.rollout.max_surge
    unavailable = 0 if surge and not again else 1
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}


def _pod(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig,
         revision: str, captures: Captures | None) -> JSON:
    return {
        **account_of(store_access(spec).get(ACCOUNT, "")),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Drain, then the server's own time to finish what is in flight, and a margin before it is killed.
        "terminationGracePeriodSeconds": config.drain_seconds + config.exit_timeout + 5,
        "securityContext": pod_security(config),
        **pull_secrets(config),
        **node_placement(placement),
        **device_claims(owner.name, placement),
        "topologySpreadConstraints": spread_over_nodes(labels.revision_selector(owner.name, revision)),
        "initContainers": [_verify(owner, spec, record, config), *_fits(spec, record, placement, config)],
        "containers": [_server(owner, spec, record, placement, config),
                       *_monitor(owner, spec, record, config, captures)],
        "volumes": [_engine_volume(spec, record), *_store_volume(spec, record),
                    {"name": "smoke-test", "emptyDir": {"sizeLimit": SMOKE_SIZE}}, tmp_volume(labels.VOLUME_VERIFY_TMP),
                    *scratch_volumes(LANGUAGE_MODEL_SHARED_MEMORY if record.outcome.generate else SHARED_MEMORY),
                    *(trace_volumes() if spec.quality and not record.outcome.generate else []),
                    *([tmp_volume(labels.VOLUME_QUALITY_TMP)] if spec.quality else []),
                    *([capture_key_volume()] if captures else []),
                    *(trusted_volumes(config) if in_bucket(spec.store.uri) else [])],
    }


def _server(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> JSON:
    if summary := record.outcome.generate:
        return language_model_server(owner, spec, record, summary, placement, config)
    return server(owner, spec, record, placement, config)


def _monitor(owner: Owner, spec: Spec, record: EngineRecord, config: OperatorConfig,
             captures: Captures | None) -> list[JSON]:
    if spec.quality is None:
        return []
    if record.outcome.generate:
        return [language_model_monitor(spec.quality, owner.served_as, record.fingerprint, config)]
    mirror = mirror_name(owner.name) if spec.rollout.analysis.mirror else ""
    return [monitor(spec.quality, owner.served_as, record.fingerprint, config, mirror=mirror, captures=captures,
                    cached=spec.serving.response_cache is not None)]


def monitored(pod: Mapping[str, Any]) -> bool:
    """Whether a quality monitor runs in pods of the spec ``pod``."""
    return any(one.get("name") == labels.CONTAINER_QUALITY for one in pod.get("containers") or ())


def _captures(owner: Owner, spec: Spec, revision: str) -> Captures | None:
    """Those of all classes of a fleet are the fleet's, whichever of them answered."""
    if spec.quality is None or spec.quality.capture is None or in_bucket(spec.store.uri):
        return None
    return Captures(volume=STORE_VOLUME, folder=captures_folder(spec, owner.namespace, owner.served_as),
                    of=f"{owner.namespace}/{owner.served_as}", revision=revision)


def _store_volume(spec: Spec, record: EngineRecord) -> list[JSON]:
    return [] if in_bucket(spec.store.uri) else [claim_volume(STORE_VOLUME, record.store_claim)]


def _engine_volume(spec: Spec, record: EngineRecord) -> JSON:
    """The pod's own copy of the engine, which nothing changes after it was checked. The node evicts a pod that takes
    more than it said it would: so the limit is for what has gone wrong, and there is room beside the engine for its
    reports and its reference."""
    summary, source = published(record.outcome), record.outcome.source
    if summary is None or (spec.quality and source is None):
        return {"name": "engine", "emptyDir": {}}
    most = 2 * summary.size_bytes + (3 * source.size_bytes if source and spec.quality else 0)
    return {"name": "engine", "emptyDir": {"sizeLimit": f"{(most >> 20) + ENGINE_SPARE_MIB}Mi"}}


def proven_digest(pod: Mapping[str, Any]) -> str:
    """The manifest digest of the engine that pods of the spec ``pod`` check theirs against; empty where they do not."""
    return _verify_argument(pod, _DIGEST)


def engine_source(pod: Mapping[str, Any]) -> str:
    """The bucket, or the folder on a volume, that pods of the spec ``pod`` copy their engine from; empty in Deployments
    of earlier releases."""
    return _verify_argument(pod, labels.VERIFY_FROM)


def _verify_argument(pod: Mapping[str, Any], option: str) -> str:
    for container in pod.get("initContainers") or ():
        if container.get("name") == labels.CONTAINER_VERIFY:
            arguments = list(container.get("args") or ())
            return str(arguments[arguments.index(option) + 1]) if option in arguments[:-1] else ""
    return ""


def _verify(owner: Owner, spec: Spec, record: EngineRecord, config: OperatorConfig) -> JSON:
    """Copies the engine from the store into the pod, and checks every file against the manifest on the way. It alone
    sees the whole of the store: mounting the engine's folder alone would create it where it is missing."""
    bucket = in_bucket(spec.store.uri)
    folder = "/".join(filter(None, (STORE_PATH, store_folder(spec), record.fingerprint)))
    variables = store_variables(store_access(spec))
    trusted = [{"name": name, "value": value} for name, value in trusted_variables(config).items()] if bucket else []
    return {
        "name": labels.CONTAINER_VERIFY,
        "image": config.images.operator,
        "imagePullPolicy": config.pull_policy,
        "command": module("verify"),
        "args": [f"{ENGINE_PATH}/{record.fingerprint}", "--fingerprint", record.fingerprint,
                 _DIGEST, record.outcome.manifest_digest, "--smoke-test", SMOKE_PATH,
                 *(["--queue", queue_request(spec.serving.queue).to_json()] if spec.serving.queue else []),
                 *(["--response-cache", owner.served_as] if spec.serving.response_cache else []),
                 labels.VERIFY_FROM, spec.store.uri if bucket else folder],
        **({"env": trusted} if trusted else {}),
        **({"envFrom": variables} if variables else {}),
        "resources": resources(config.verify_resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "engine", "mountPath": ENGINE_PATH},
                         *([] if bucket else [{"name": STORE_VOLUME, "mountPath": STORE_PATH, "readOnly": True}]),
                         {"name": "smoke-test", "mountPath": SMOKE_PATH}, tmp_mount(labels.VOLUME_VERIFY_TMP),
                         *(trusted_mounts(config) if bucket else [])],
    }


def _fits(spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> list[JSON]:
    """With a GPU the server's image is asked whether its TensorRT and the GPU are those of the engine; what it asks for
    is what the server asks for after it, so it costs nothing. An image without Python is not asked."""
    if placement.device.accelerator != "gpu":
        return []
    check = f"command -v python3 >/dev/null || exit 0; exec python3 {SMOKE_PATH}/fits.py {SMOKE_PATH}/fits.json"
    return [{
        "name": labels.CONTAINER_FITS,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        "command": ["/bin/sh", "-c", check],
        "resources": resources(server_resources(spec, config, record), spec.serving.resources, placement),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "smoke-test", "mountPath": SMOKE_PATH, "readOnly": True}, tmp_mount()],
    }]
