"""The ConfigMap that carries a request to a Job."""

from __future__ import annotations

from enginewright.core.manifests.common import JSON, Owner
from enginewright_builder.contract import BuildRequest

REQUEST_FILE = "request.json"


def request_configmap(owner: Owner, job_name: str, request: BuildRequest) -> JSON:
    """Named as the Job that reads it; immutable."""
    raise NotImplementedError
