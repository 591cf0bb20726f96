"""The operator's scaler as one object has it: the limits that its ``autoscaling`` asks for, at every moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from enginewright.core.labels import KIND
from enginewright.core.problems import summarise
from enginewright.core.scaling import Capacity, ScaleLimits, limits_of
from enginewright.core.spec import AutoscalingSpec, Spec, parse_spec, validate
from enginewright_simulation.errors import InputError

FORMS = "give an OptimisedModel with spec.autoscaling, or that block alone"
# A block alone is checked as that of the least object there is.
LEAST = {"source": {"uri": "pvc://models/model"}}


@dataclass(frozen=True, kw_only=True)
class Ours:
    """``autoscaling`` as in the object; ``price`` is of a replica for an hour, None where unknown; the trace begins
    at ``start``, in seconds since 1970, by which schedules go."""

    autoscaling: AutoscalingSpec
    price: float | None = None
    start: float = 0.0

    @property
    def least(self) -> int:
        """Fewest replicas at any time."""
        others = [one.min_replicas for one in self.autoscaling.schedules if one.min_replicas is not None]
        return min([self.autoscaling.min_replicas, *others])

    @property
    def most(self) -> int:
        others = [one.max_replicas for one in self.autoscaling.schedules if one.max_replicas is not None]
        return max([self.autoscaling.max_replicas, *others])

    def limits(self, time: float) -> ScaleLimits:
        """``time`` is in seconds since the trace began."""
        now = datetime.fromtimestamp(self.start + time, UTC) if self.autoscaling.schedules else None
        return limits_of(self.autoscaling, now=now, price=self.price)

    def asked(self, capacity: Capacity) -> Capacity | None:
        """``capacity``, unless queue depth alone is to decide."""
        measured = self.autoscaling.algorithm == "measured" and self.autoscaling.source == "direct"
        return capacity if measured else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        if self.autoscaling.source == "direct":
            return ()
        return ("autoscaling.source prometheus: queue depth alone decides, as in the cluster, but here it is seen each "
                "second.",)


def read_autoscaling(path: Path) -> AutoscalingSpec:
    """Raises :class:`InputError`, in the words of ``enginewright validate``."""
    try:
        documents = [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError also for dates that no calendar has
        raise InputError(f"{path}: cannot be read: {error}; {FORMS}") from error
    models = [one for one in documents if isinstance(one, dict) and one.get("kind") == KIND] or documents
    if len(models) != 1 or not isinstance(models[0], dict):
        raise InputError(f"{path}: has {len(models)} matching documents; {FORMS}")
    spec = parse_spec(_spec(models[0]))
    problems = list(validate(spec)) if isinstance(spec, Spec) else list(spec)
    if problems:
        raise InputError(f"{path}: {summarise(problems)}")
    if not isinstance(spec, Spec) or spec.autoscaling is None:
        raise InputError(f"{path}: has no spec.autoscaling; {FORMS}")
    return spec.autoscaling


def _spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    if document.get("kind") == KIND:
        found = document.get("spec")
        return found if isinstance(found, dict) else {}
    return LEAST | {"autoscaling": document.get("autoscaling", document)}
