"""Parameters of an artifact that the Python model, or Triton's own backend, reads."""

from __future__ import annotations

from collections.abc import Mapping

from enginewright_builder.engines.base import Artifact

# Batches whose CUDA graphs are captured, by this project's Python model or by Triton's own backend, which also needs
# the profiles.
BUCKETS, GRAPH_BATCHES, PROFILES = "buckets", "graph_batches", "profiles"


def captured_batches(artifact: Artifact) -> list[int]:
    """The batches that the Python model captures as CUDA graphs."""
    return batches_of(artifact.parameters)


def batches_of(parameters: Mapping[str, str]) -> list[int]:
    """The same of an artifact's parameters."""
    text = parameters.get(BUCKETS) or parameters.get(GRAPH_BATCHES, "")
    return [int(part) for part in text.split(",") if part.strip()]


def session_parameters(artifact: Artifact) -> dict[str, str]:
    """What a session gets, apart from the batches to capture."""
    return {key: value for key, value in artifact.parameters.items() if key not in (BUCKETS, GRAPH_BATCHES, PROFILES)}
