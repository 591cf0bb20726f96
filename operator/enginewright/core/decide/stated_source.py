"""A source whose content the spec names by digests, and whose engine is on record: there is nothing to look at.

The engine was built from content of just these digests, which its build Job checked, and its record tells the rest:
format and size. A resolve Job runs all the same where the spec asks for a signature, which only that Job checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from enginewright.core.context import PassContext
from enginewright.core.decide.slice_choice import fingerprints
from enginewright.core.spec import Spec
from enginewright.core.spec.source import Format
from enginewright_builder.contract import ResolvedSource

# Few enough to try each where the spec leaves the format open.
FORMATS = tuple(one for one in get_args(Format) if one != "auto")


def stated_fingerprints(ctx: PassContext) -> frozenset[str]:
    """Of the engines whose records :func:`stated_source` reads."""
    return frozenset().union(*(fingerprints(ctx, source) for source in _candidates(ctx.spec)))


def stated_source(ctx: PassContext) -> ResolvedSource | None:
    """What the source is; None where a Job has to look at it."""
    for source in _candidates(ctx.spec):
        for fingerprint in sorted(fingerprints(ctx, source)):
            record = ctx.observed.records.get(fingerprint)
            found = record.outcome.source if record else None
            if found and found.digest == source.digest:
                return found
    return None


def stated(spec: Spec) -> bool:
    """Whether the spec names all of its content by digests, and asks for no signature."""
    return any(True for _ in _candidates(spec))


def _candidates(spec: Spec) -> Iterator[ResolvedSource]:
    evaluation, calibration = spec.accuracy.evaluation, spec.engine.calibration
    unsaid = any(data is not None and not data.digest for data in (evaluation, calibration))
    if not spec.source.digest or unsaid or spec.source.signature is not None:
        return
    for name in FORMATS if spec.source.format == "auto" else (spec.source.format,):
        yield ResolvedSource(
            digest=spec.source.digest, format=name, size_bytes=0,
            evaluation_digest=evaluation.digest if evaluation else "",
            calibration_digest=calibration.digest if calibration else "",
        )
