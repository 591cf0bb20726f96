"""The quality monitor's part of a serving pod: a folder in memory, where the server's traces go, and the container that
takes them from there."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, container_security, module, resources, tmp_mount
from enginewright.core.manifests.signing import capture_key_mount
from enginewright.core.spec.quality import QualitySpec
from enginewright_builder.contract import REFERENCE_FOLDER

# Text of as many requests as are asked for at once. What does not fit is lost: the folder lies in memory and never
# grows.
TRACES_SIZE = "64Mi"
REFERENCE_PATH = "/reference"
# The word that asks for the monitor of language models.
GENERATE = "generate"


def _of_pod(name: str, path: str) -> JSON:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def trace_arguments() -> list[str]:
    """The server's arguments say where traces go; it makes none before a client asks for some."""
    return ["--trace-config=mode=triton", f"--trace-config=triton,file={labels.TRACES_PATH}/trace.json"]


def trace_mounts() -> list[JSON]:
    return [{"name": labels.VOLUME_TRACES, "mountPath": labels.TRACES_PATH}]


def trace_volumes() -> list[JSON]:
    return [{"name": labels.VOLUME_TRACES, "emptyDir": {"medium": "Memory", "sizeLimit": TRACES_SIZE}}]


@dataclass(frozen=True, kw_only=True)
class Captures:
    """Where a monitor captures requests: ``folder`` of the store's volume ``volume``, for ``of``, NAMESPACE/MODEL."""

    volume: str
    folder: str
    of: str
    revision: str


def monitor(quality: QualitySpec, served_as: str, fingerprint: str, config: OperatorConfig, *, mirror: str,
            captures: Captures | None = None, cached: bool = False) -> JSON:
    """Where ``mirror`` is not empty it is the name of the Service that live requests are sent to as well. Then the
    monitor gets its namespace, for that Service's whole name, and its address, so that it sends no request to itself.
    Of a server with a cache (``cached``) it looks at computed answers alone."""
    environment = [_of_pod("POD_NAMESPACE", "metadata.namespace"), _of_pod("POD_IP", "status.podIP")]
    words = [*_words(quality, served_as, f"--traces={labels.TRACES_PATH}"), f"--triton-port={labels.HTTP_PORT}",
             *([f"--mirror={mirror}"] if mirror else []), *(["--cached"] if cached else []),
             *_capture_arguments(quality, captures)]
    found = _container(quality, config, words, [_reference(fingerprint), *trace_mounts(), *_capture_mounts(captures)])
    return {**found, **({"env": environment} if mirror else {})}


def language_model_monitor(quality: QualitySpec, served_as: str, fingerprint: str, config: OperatorConfig) -> JSON:
    """It asks the server some of the build's prompts, and sees no request of others."""
    words = [GENERATE, *_words(quality, served_as), f"--server-port={labels.HTTP_PORT}"]
    return _container(quality, config, words, [_reference(fingerprint)])


def _words(quality: QualitySpec, served_as: str, *more: str) -> list[str]:
    return [REFERENCE_PATH, f"--model={served_as}", *more, f"--share={quality.sample_share:g}",
            f"--per-minute={quality.max_samples_per_minute}", f"--window={quality.window}",
            f"--port={labels.QUALITY_PORT}"]


def _reference(fingerprint: str) -> JSON:
    return {"name": "engine", "mountPath": REFERENCE_PATH, "subPath": f"{fingerprint}/{REFERENCE_FOLDER}",
            "readOnly": True}


def _container(quality: QualitySpec, config: OperatorConfig, words: list[str], mounts: list[JSON]) -> JSON:
    """It has no probe: a pod is ready only if all its containers are, and this one must not stand in the way."""
    return {
        "name": labels.CONTAINER_QUALITY,
        "image": config.images.builder,
        "imagePullPolicy": config.pull_policy,
        "command": module("quality"),
        "args": words,
        "ports": [{"name": labels.PORT_QUALITY, "containerPort": labels.QUALITY_PORT, "protocol": "TCP"}],
        "resources": resources(config.quality_resources, quality.resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, tmp_mount(labels.VOLUME_QUALITY_TMP)],
    }


def _capture_arguments(quality: QualitySpec, captures: Captures | None) -> list[str]:
    capture = quality.capture
    if capture is None or captures is None:
        return []
    return [f"--captures={labels.CAPTURES_PATH}", f"--capture-keys={labels.CAPTURE_KEYS_PATH}",
            f"--capture-of={captures.of}", f"--revision={captures.revision}",
            f"--capture-samples={capture.max_samples}", f"--capture-bytes={capture.max_mebibytes << 20}",
            f"--capture-interval={capture.interval_seconds}",
            f"--capture-retention={capture.retention_seconds}"]


def _capture_mounts(captures: Captures | None) -> list[JSON]:
    """The model's own folder of the store, and nothing beside it: the kubelet makes it where it is missing."""
    if captures is None:
        return []
    folder = {"name": captures.volume, "mountPath": labels.CAPTURES_PATH, "subPath": captures.folder}
    return [folder, capture_key_mount()]
