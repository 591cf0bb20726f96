"""The Job that builds and measures candidates on the hardware that will serve, and publishes the winner."""

from __future__ import annotations

from typing import Any

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.manifests.jobs import Step, job
from enginewright.core.manifests.proof import proven_by_the_server
from enginewright.core.manifests.proof_generate import proven_language_model
from enginewright.core.manifests.python_steps import beside_python_steps
from enginewright.core.manifests.signing import capture_keys, signing_mount, signing_volume
from enginewright.core.placement import Placement
from enginewright.core.spec import Spec
from enginewright.core.spec.tasks import generates
from enginewright.core.spot import on_spot


def build_job_name(owner_name: str, fingerprint: str, attempt: int) -> str:
    """``<om>-build-<first 8 of the fingerprint>-<attempt>``; attempts count from 1. Its request ConfigMap has the same
    name."""
    return f"{owner_name}-build-{fingerprint[:8]}-{attempt}"


def build_deadline(spec: Spec, config: OperatorConfig) -> int:
    """Seconds that a pod of it may run."""
    return spec.budget_seconds + config.build_deadline_margin


def build_job(owner: Owner, spec: Spec, placement: Placement, fingerprint: str, attempt: int,
              config: OperatorConfig) -> JSON:
    volumes, mounts = capture_keys(spec)
    step = Step(
        kind=labels.COMPONENT_BUILD,
        name=build_job_name(owner.name, fingerprint, attempt),
        deadline=build_deadline(spec, config),
        default_resources=config.build_resources,
        resources=spec.engine.resources,
        placement=on_spot(placement, spec.placement.spot.builds if spec.placement.spot else None, config.spot_labels),
        queue=spec.engine.queue_name,
        extra_labels={labels.FINGERPRINT: labels.fingerprint_label(fingerprint)},
        annotations={labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: spec.store.uri},
        volumes=(signing_volume(), *volumes),
        mounts=(signing_mount(), *mounts),
        **_proof(spec, config),
    )
    return job(owner, spec, step, config)


def _proof(spec: Spec, config: OperatorConfig) -> dict[str, Any]:
    proven = proven_language_model if generates(spec) else proven_by_the_server
    return {"arrange": lambda pod: beside_python_steps(proven(pod, spec, config), spec, config),
            "ends": (labels.CONTAINER_PROVE,)}
