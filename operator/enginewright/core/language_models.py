"""Who serves a language model: what a spec says of it, and what a revision runs."""

from __future__ import annotations

from enginewright.core.observed import Observed
from enginewright.core.published import server_of
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec import Spec
from enginewright.core.spec.tasks import generates


def asks_of_tokens(spec: Spec) -> bool:
    """Whether there is an objective for the first token, or for those after it."""
    return spec.objective.tokens is not None


def server_for(spec: Spec) -> Server:
    """What its replicas will run."""
    return VLLM if generates(spec) else TRITON


def server_at(observed: Observed, revision: str, spec: Spec) -> Server:
    """What replicas of ``revision`` run, by the record of what they serve; by ``spec`` where that is not at hand."""
    deployed = observed.deployment(revision)
    record = observed.records.get(deployed.fingerprint) if deployed else None
    return server_of(record.outcome) if record else server_for(spec)
