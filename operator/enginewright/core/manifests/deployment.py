"""The Deployment of one revision. It has no ``replicas``: only the scaler writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    claim_volume,
    container_security,
    device_claims,
    metadata,
    node_placement,
    pod_security,
    prefer,
    pull_secrets,
    resources,
    scratch_mounts,
    scratch_volumes,
    sealed,
    short_hash,
    spread_over_nodes,
    triton_ports,
)
from enginewright.core.manifests.pod_template import merge
from enginewright.core.manifests.quality import monitor, trace_arguments, trace_mounts, trace_volumes
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, pinned
from enginewright.core.request import STORE_PATH, server_image, store_folder
from enginewright.core.spec import Spec
from enginewright.core.spot import on_spot
from enginewright_builder.contract import MODEL_FOLDER, MODEL_REPOSITORY

# Raised when what a revision is changes for the same spec, so that an upgrade rolls on purpose only.
REVISION_VERSION = 2

MODELS_PATH = "/models"
SMOKE_PATH = "/smoke-test"  # holds the program that tries the server, and recorded answers: a few MB
SMOKE_SIZE = "32Mi"
STARTUP_PERIOD = 2
SHARED_MEMORY = "1Gi"  # the Python backend's tensors in flight; the node's memory is used only as far as it is filled
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
        "serving": spec.serving.model_dump(mode="json", exclude={"image"}),
        "placement": [dict(placement.limits), node_placement(_spot(placement, spec, config)),
                      device_claims("", placement)],
    }, 8)


def _spot(placement: Placement, spec: Spec, config: OperatorConfig) -> Placement:
    return on_spot(placement, spec.placement.spot.replicas if spec.placement.spot else None, config.spot_labels)


def _quality_key(spec: Spec) -> JSON:
    """Nothing where live answers are not looked at: revisions of before that was known keep their names."""
    return {"quality": spec.quality.model_dump(mode="json", exclude={"rollback"})} if spec.quality else {}


def deployment_name(owner_name: str, revision: str) -> str:
    return f"{owner_name}-{revision}"


def deployment(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig, *,
               preferred: Sequence[str] = ()) -> JSON:
    """The Deployment of the revision ``revision_name(record.fingerprint, spec, placement, config)``. ``preferred`` are
    host names of nodes, the best first."""
    fingerprint = record.fingerprint
    revision = revision_name(fingerprint, spec, placement, config)
    placement = pinned(placement, record.outcome.engine.device if record.outcome.engine else "")
    placement = _spot(placement, spec, config)
    extra = {labels.REVISION: revision, labels.FINGERPRINT: labels.fingerprint_label(fingerprint)}
    if owner.fleet:
        extra[labels.FLEET] = owner.fleet
    template = {
        "metadata": {"labels": {**labels.common(owner.name, labels.COMPONENT_SERVER), **extra},
                     "annotations": {labels.FINGERPRINT_FULL: fingerprint}},
        "spec": prefer(_pod(owner, spec, record, placement, config, revision), preferred),
    }
    return sealed({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(owner, deployment_name(owner.name, revision), labels.COMPONENT_SERVER, extra=extra,
                             annotations={labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: spec.store.uri}),
        "spec": {
            "selector": {"matchLabels": labels.revision_selector(owner.name, revision)},
            "strategy": _strategy(spec),
            "progressDeadlineSeconds": 2 * startup_seconds(record) + IMAGE_PULL_SECONDS,  # to load, and to answer
            "revisionHistoryLimit": 1,  # revisions are Deployments of their own
            "template": merge(template, spec.serving.pod_template),
        },
    })


def startup_seconds(record: EngineRecord) -> int:
    """How long a server may take to load: five times what the build measured, and a minute. A page cache that is cold,
    a busy node or a slower volume multiply it; a server that hangs must still be ended."""
    engine = record.outcome.engine
    return 60 + math.ceil(5 * (engine.load_seconds if engine else 0))


def _strategy(spec: Spec) -> JSON:
    if spec.rollout.strategy == "Recreate":
        return {"type": "Recreate"}
    surge = spec.rollout.max_surge
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0 if surge else 1, "maxSurge": surge}}


def _pod(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig,
         revision: str) -> JSON:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Drain, then Triton's own time to finish what is in flight, and a margin before it is killed.
        "terminationGracePeriodSeconds": config.drain_seconds + config.exit_timeout + 5,
        "securityContext": pod_security(),
        **pull_secrets(config),
        **node_placement(placement),
        **device_claims(owner.name, placement),
        "topologySpreadConstraints": spread_over_nodes(labels.revision_selector(owner.name, revision)),
        "initContainers": [_verify(spec, record, config), *_fits(spec, placement, config)],
        "containers": [_server(owner, spec, record, placement, config),
                       *([monitor(spec.quality, owner.served_as, _engine_path(spec, record), config)]
                         if spec.quality else [])],
        "volumes": [claim_volume("engine", record.store_claim),
                    {"name": "smoke-test", "emptyDir": {"sizeLimit": SMOKE_SIZE}}, *scratch_volumes(SHARED_MEMORY),
                    *(trace_volumes() if spec.quality else [])],
    }


def _engine_path(spec: Spec, record: EngineRecord) -> str:
    return "/".join(filter(None, (store_folder(spec), record.fingerprint)))


def _verify(spec: Spec, record: EngineRecord, config: OperatorConfig) -> JSON:
    """Checks every file against the engine's manifest before a server reads them. It sees the whole store: mounting the
    engine's folder alone would create it where it is missing."""
    return {
        "name": labels.CONTAINER_VERIFY,
        "image": config.images.operator,
        "imagePullPolicy": config.pull_policy,
        "command": ["python3", "-m", "enginewright_builder.verify"],
        "args": [f"{STORE_PATH}/{_engine_path(spec, record)}", "--fingerprint", record.fingerprint,
                 "--manifest-digest", record.outcome.manifest_digest, "--smoke-test", SMOKE_PATH],
        "resources": resources(config.verify_resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "engine", "mountPath": STORE_PATH, "readOnly": True},
                         {"name": "smoke-test", "mountPath": SMOKE_PATH},
                         {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
    }


def _fits(spec: Spec, placement: Placement, config: OperatorConfig) -> list[JSON]:
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
        "resources": resources(config.server_resources, spec.serving.resources, placement),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "smoke-test", "mountPath": SMOKE_PATH, "readOnly": True},
                         {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
    }]


def _server(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> JSON:
    """The engine has no name; mounted under the object's or its fleet's, that is what Triton serves it as."""
    sub_path = f"{_engine_path(spec, record)}/{MODEL_REPOSITORY}/{MODEL_FOLDER}"
    return {
        "name": labels.CONTAINER_SERVER,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        # Arguments only: the image's entry point (NVIDIA's sets up the driver libraries) starts them.
        "args": _arguments(spec, config),
        "ports": triton_ports(),
        "resources": resources(config.server_resources, spec.serving.resources, placement),
        "securityContext": container_security(),
        "startupProbe": _smoke_test(owner, startup_seconds(record)),
        "readinessProbe": _probe("ready", period=2, timeout=2, failures=3),
        # Slow to kill: a server at its limit answers late, and killing it makes the others later.
        "livenessProbe": _probe("live", period=10, timeout=5, failures=6),
        # Endpoints are withdrawn while it sleeps; only then does Triton stop taking connections.
        "lifecycle": {"preStop": {"sleep": {"seconds": config.drain_seconds}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "engine", "mountPath": f"{MODELS_PATH}/{owner.served_as}", "subPath": sub_path,
                          "readOnly": True},
                         {"name": "smoke-test", "mountPath": SMOKE_PATH, "readOnly": True},
                         *scratch_mounts(), *(trace_mounts() if spec.quality else [])],
    }


def _arguments(spec: Spec, config: OperatorConfig) -> list[str]:
    on_cpu = ["--allow-gpu-metrics=false"] if spec.placement.accelerator == "cpu" else []
    return ["tritonserver", f"--model-repository={MODELS_PATH}", "--model-control-mode=none", "--exit-on-error=true",
            f"--exit-timeout-secs={config.exit_timeout}", f"--http-port={labels.HTTP_PORT}",
            f"--grpc-port={labels.GRPC_PORT}", f"--metrics-port={labels.METRICS_PORT}", *on_cpu,
            *(trace_arguments() if spec.quality else []), *config.server_args]


def _smoke_test(owner: Owner, seconds: int) -> JSON:
    """The model answers as it was proven to, or its container ends: only then do the other probes begin. It has as long
    to answer as the server has to load. An image without Python is asked whether it is ready, no more."""
    url = f"http://127.0.0.1:{labels.HTTP_PORT}/v2/health/ready"
    command = (f"command -v python3 >/dev/null || exec curl -fsS -o /dev/null {url}; "
               f"exec python3 -I -S {SMOKE_PATH}/smoke.py --model={owner.served_as} --port={labels.HTTP_PORT} "
               f"--seconds={seconds}")
    return {"exec": {"command": ["/bin/sh", "-c", command]}, "periodSeconds": STARTUP_PERIOD,
            "timeoutSeconds": seconds + 10, "failureThreshold": math.ceil(seconds / STARTUP_PERIOD)}


def _probe(what: str, *, period: int, timeout: int, failures: int) -> JSON:
    return {"httpGet": {"path": f"/v2/health/{what}", "port": labels.PORT_HTTP}, "periodSeconds": period,
            "timeoutSeconds": timeout, "failureThreshold": failures}
