"""What is wrong with a quality monitor that a spec asks for."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.quality import samples_needed
from enginewright.core.quantity import parse_quantity
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show

# ONNX Runtime, NumPy and what is left free (``enginewright_builder.quality``) take 210 MiB, without a model.
LEAST_MEMORY = 256 << 20
TOO_LITTLE = "is less than the monitor needs for any model"
ENOUGH = "write at least 256Mi, and more for a large source model"


def too_little(limit: str | int) -> bool:
    """Of memory. Raises ValueError when ``limit`` is no quantity."""
    return parse_quantity(limit) < LEAST_MEMORY


def quality_problems(spec: Spec) -> Iterator[Problem]:
    if spec.quality is None:
        return
    needed = samples_needed(spec.accuracy.max_loss)
    if spec.quality.window < needed:
        yield Problem(
            field="spec.quality.window", value=show(spec.quality.window),
            message=f"is less than the {needed} answers that can show a tolerance of {spec.accuracy.max_loss:g} even "
                    "if all agree",
            remedy=f"write at least {2 * needed}, or raise spec.accuracy.maxLoss")
    limit = spec.quality.resources.limits.get("memory")
    if limit is not None and too_little(limit):
        yield Problem(field="spec.quality.resources.limits.memory", value=show(limit), message=TOO_LITTLE,
                      remedy=ENOUGH)
