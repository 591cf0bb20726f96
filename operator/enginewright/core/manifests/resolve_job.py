"""The Job that finds out what the source is: digest, format, size; no accelerator."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.manifests.jobs import Step, job
from enginewright.core.request import source_key
from enginewright.core.spec import Spec


def resolve_job_name(owner_name: str, key: str) -> str:
    """``<om>-resolve-<first 8 of the source key>``; its request ConfigMap has the same name."""
    return f"{owner_name}-resolve-{key[:8]}"


def resolve_job(owner: Owner, spec: Spec, config: OperatorConfig) -> JSON:
    """It runs on any node: what it finds out does not depend on the device. It mounts the store to try whether it
    can be written, before a device is spent on an engine that could not be kept."""
    key = source_key(spec)
    step = Step(kind=labels.COMPONENT_RESOLVE, name=resolve_job_name(owner.name, key), deadline=config.resolve_deadline,
                default_resources=config.resolve_resources, annotations={labels.SOURCE_KEY: key})
    return job(owner, spec, step, config)
