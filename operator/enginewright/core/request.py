"""What a Job is asked to do: the contract's documents, made from the spec."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.placement import Placement
from enginewright.core.spec import Spec
from enginewright_builder.contract import BuildRequest, ResolvedSource


def source_key(spec: Spec) -> str:
    """64 hex digits over all that a resolve step reads (URIs, formats, stated digests, sample counts): status keeps
    it beside what was resolved, so that a changed source is resolved anew."""
    raise NotImplementedError


def resolve_request(name: str, spec: Spec, config: OperatorConfig) -> BuildRequest:
    """The request of a resolve Job: no device, no digests but those the user stated."""
    raise NotImplementedError


def build_request(name: str, spec: Spec, resolved: ResolvedSource, placement: Placement,
                  config: OperatorConfig) -> BuildRequest:
    """The request of a build Job; ``.fingerprint()`` of it is the engine's key in the store."""
    raise NotImplementedError


def store_claim(spec: Spec) -> str:
    """Name of the PersistentVolumeClaim of the engine store."""
    raise NotImplementedError


def source_claims(spec: Spec) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that a resolve or build Job reads, sorted, without the store's."""
    raise NotImplementedError
