"""The ConfigMap that carries a request to a Job."""

from __future__ import annotations

from enginewright.core.manifests.common import JSON, Owner, metadata, sealed
from enginewright_builder.contract import BuildRequest

REQUEST_FILE = "request.json"
COMPONENT = "request"


def request_configmap(owner: Owner, job_name: str, request: BuildRequest) -> JSON:
    """Named as the Job that reads it; immutable."""
    return sealed({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(owner, job_name, COMPONENT),
        "immutable": True,
        "data": {REQUEST_FILE: request.to_json()},
    })
