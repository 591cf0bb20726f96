"""What both revisions answer to the same inputs."""

from __future__ import annotations

from typing import Final

from enginewright.core.comparison.question import Limits
from enginewright.core.signals import ProbeResults

# Answers of both to the same input before promotion, and strays among them that say something.
COMPARED_PAIRS: Final = 5
FLAWED_PAIRS: Final = 3
# Answers of both without one number to compare (text, no detections): more will not have any either.
FRUITLESS_PAIRS: Final = 16


def disagreement(probes: ProbeResults, limits: Limits) -> str:
    """Empty when there is none."""
    if probes.flawed >= FLAWED_PAIRS and 2 * probes.flawed > probes.pairs:
        return f"{probes.flawed} of {probes.pairs} probes that the stable revision answers went wrong: {probes.flaw}."
    median = probes.median
    if limits.similarity is None or len(probes.similarities) < COMPARED_PAIRS or median is None:
        return ""
    if median >= limits.similarity:
        return ""
    single = ", a single number by its relative error" if probes.single else ""
    return (
        f"Its outputs are not those of the stable revision on the same inputs: cosine {median:.3f} (median of "
        f"{len(probes.similarities)}, limit {limits.similarity:.3f}{single})."
    )


def fruitless(probes: ProbeResults) -> bool:
    """Whether the outputs are not such as can be compared."""
    return not probes.similarities and probes.pairs - probes.flawed >= FRUITLESS_PAIRS


def uncompared(probes: ProbeResults, limits: Limits) -> str:
    if limits.similarity is None or len(probes.similarities) >= COMPARED_PAIRS:
        return ""
    if fruitless(probes):
        return f"{probes.pairs} answers hold no numbers to compare, or too many"
    return probes.problem
