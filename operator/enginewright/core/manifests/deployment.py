"""The Deployment of one revision. It has no ``replicas``: only the scaler writes them."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.spec import Spec


def revision_name(fingerprint: str, spec: Spec, placement: Placement, config: OperatorConfig) -> str:
    """8 hex digits over the engine and all that changes what a serving pod is: a new revision is proven before it takes
    traffic. Replicas, autoscaling and rollout settings are not in it."""
    raise NotImplementedError


def deployment_name(owner_name: str, revision: str) -> str:
    return f"{owner_name}-{revision}"


def deployment(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> JSON:
    """The Deployment of the revision ``revision_name(record.fingerprint, spec, placement, config)``."""
    raise NotImplementedError
