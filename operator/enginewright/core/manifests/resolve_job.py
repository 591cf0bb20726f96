"""The Job that finds out what the source is: digest, format, size; no accelerator."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.spec import Spec


def resolve_job_name(owner_name: str, key: str) -> str:
    """``<om>-resolve-<first 8 of the source key>``; its request ConfigMap has the same name."""
    return f"{owner_name}-resolve-{key[:8]}"


def resolve_job(owner: Owner, spec: Spec, config: OperatorConfig) -> JSON:
    raise NotImplementedError
