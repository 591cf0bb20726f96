"""The Job that finds out what the source is: digest, format, size; no accelerator."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.manifests.jobs import Step, job
from enginewright.core.manifests.signing import capture_keys
from enginewright.core.request import SIGNATURE_PATH, source_key
from enginewright.core.spec import Spec


def resolve_job_name(owner_name: str, key: str) -> str:
    """``<om>-resolve-<first 8 of the source key>``; its request ConfigMap has the same name."""
    return f"{owner_name}-resolve-{key[:8]}"


def resolve_job(owner: Owner, spec: Spec, config: OperatorConfig) -> JSON:
    """It runs on any node: what it finds out does not depend on the device. It mounts the store to try whether it
    can be written, before a device is spent on an engine that could not be kept."""
    key = source_key(spec)
    volumes, mounts = capture_keys(spec)
    step = Step(kind=labels.COMPONENT_RESOLVE, name=resolve_job_name(owner.name, key), deadline=config.resolve_deadline,
                default_resources=config.resolve_resources, annotations={labels.SOURCE_KEY: key},
                volumes=(*_key_volumes(spec), *volumes), mounts=(*_key_mounts(spec), *mounts))
    return job(owner, spec, step, config)


def _key_volumes(spec: Spec) -> tuple[JSON, ...]:
    """Optional: of a key that is missing the builder says what is, a pod that waits for it says nothing."""
    signature = spec.source.signature
    if signature is None:
        return ()
    key = signature.key
    held = {"items": [{"key": key.key, "path": key.key}], "optional": True}
    source = {"configMap": {"name": key.name, **held}} if signature.kind == "ConfigMap" else {
        "secret": {"secretName": key.name, **held}}
    return ({"name": "signature-key", **source},)


def _key_mounts(spec: Spec) -> tuple[JSON, ...]:
    if spec.source.signature is None:
        return ()
    return ({"name": "signature-key", "mountPath": SIGNATURE_PATH, "readOnly": True},)
