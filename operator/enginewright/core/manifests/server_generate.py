"""The server's own container in a serving pod of a language model: vLLM with the words and variables that the build has
proven it with, its probes, and the folders of the model and of its draft."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    container_ports,
    container_security,
    http_probe,
    no_devices,
    resources,
    scratch_mounts,
)
from enginewright.core.manifests.server import MODELS_PATH, SMOKE_PATH, smoke_test, startup_seconds
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.request import server_image
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec import Spec
from enginewright_builder.contract import DRAFT_FOLDER, LANGUAGE_MODEL_FOLDER, GenerateSummary, with_draft

# vLLM fetches nothing, reports no usage, and keeps its caches in the pod's scratch folder, the only one that it may
# write into. The builder's generate/server.py starts it in the same way.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HOME": "/tmp"}  # noqa: S108  (in the pod)

# vLLM imports from where the pod's first init container left renewing.py. A variable of the manifest would hide the
# image's own of that name.
_START = f'PYTHONPATH={SMOKE_PATH}${{PYTHONPATH:+:$PYTHONPATH}} exec "$0" "$@"'
_RENEWING = "--middleware=renewing.Renewing"
# Of a model that also takes images, vLLM downloads those whose addresses clients name, unless it knows domains that it
# may ask. No domain has this name (RFC 2606); clients can still send images as data: URLs.
_NO_DOWNLOADS = "--allowed-media-domains=none.invalid"
# Beside the model's folder, which has the name of an object: none begins so.
_DRAFT = f"{MODELS_PATH}/.draft"


def language_model_server(owner: Owner, spec: Spec, record: EngineRecord, summary: GenerateSummary,
                          placement: Placement, config: OperatorConfig) -> JSON:
    """The model has no name; clients say the object's, or its fleet's. ``config.server_args`` are for tritonserver
    alone."""
    model = f"{MODELS_PATH}/{owner.served_as}"
    return {
        "name": labels.CONTAINER_SERVER,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        # A command: vLLM's own images have an entry point that begins with it, and others have none.
        "command": ["/bin/sh", "-c", _START, *VLLM.program],
        "args": [model, f"--served-model-name={owner.served_as}", *with_draft(summary.words, _DRAFT),
                 *VLLM.port_words,
                 VLLM.exit_word(config.exit_timeout), _RENEWING, _NO_DOWNLOADS],
        "env": [*([no_devices()] if spec.placement.accelerator == "cpu" else []),
                *({"name": name, "value": value}
                  for name, value in sorted({**summary.environment, **ENVIRONMENT}.items()))],
        "ports": container_ports(VLLM),
        "resources": resources(config.server_resources, spec.serving.resources, placement),
        "securityContext": container_security(),
        "startupProbe": smoke_test(VLLM, owner.served_as, startup_seconds(record)),
        # One Python process sends all streams and answers the probes: with many streams it answers late.
        "readinessProbe": http_probe(VLLM.ready_path, period=2, timeout=5, failures=3),
        "livenessProbe": http_probe(VLLM.live_path, period=10, timeout=5, failures=6),
        # A stopping vLLM says that it is well and refuses requests: Kubernetes withdraws endpoints before it stops.
        "lifecycle": {"preStop": {"sleep": {"seconds": config.drain_seconds}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_files(record, model, LANGUAGE_MODEL_FOLDER),
                         *([_files(record, _DRAFT, DRAFT_FOLDER)] if summary.draft else []),
                         {"name": "smoke-test", "mountPath": SMOKE_PATH, "readOnly": True}, *scratch_mounts()],
    }


def _files(record: EngineRecord, place: str, folder: str) -> JSON:
    """Of the engine's ``folder`` in the store."""
    return {"name": "engine", "mountPath": place, "subPath": f"{record.fingerprint}/{folder}", "readOnly": True}
