"""How a step went on and how it ended: progress, errors and the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from enginewright_builder.contract.documents import CONTRACT_VERSION, ContractError, dumps, load, to_plain
from enginewright_builder.contract.figures import CandidateSummary, EngineSummary, GenerateSummary
from enginewright_builder.contract.names import CHOSEN, TERMINATION_MESSAGE_BYTES, ErrorFamily
from enginewright_builder.contract.serving import ServingChoice

# To how many characters an error's texts are cut, one after the other, until the message fits; and candidates' reasons.
_TEXT_CUTS = (600, 300, 100)
_REASON_CUTS = (200, 100)


# Steps of a build in their order. Where each begins, as a fraction of the whole, from the times of a typical build on a
# CPU.
BUILD_STEPS: Mapping[str, float] = {
    "resolve": 0.0, "fetch": 0.02, "export": 0.05, "ladder": 0.30, "finalists": 0.58, "profile": 0.59, "sweep": 0.60,
    "appraise": 0.82, "repository": 0.88, "verify-load": 0.90, "publish": 0.97, "done": 1.0,
}


def proves(step: str, *, generates: bool) -> bool:
    """Whether the container that proves engines does ``step``: all from the first on that needs a server. False for
    one that another release of the builder has."""
    names, first = list(BUILD_STEPS), "ladder" if generates else "sweep"
    return step in names[names.index(first):]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One log line. ``fraction`` of the whole build, 0 to 1, never decreasing."""

    step: str
    fraction: float
    detail: str = ""
    event: str = "progress"


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """What went wrong, for whom, and what to do. ``field`` is a path like ``spec.source.digest``, empty for a bug."""

    family: ErrorFamily
    reason: str
    message: str
    field: str = ""
    value: str = ""
    remedy: str = ""

    def shortened(self, characters: int) -> Self:
        """The same with each text cut to ``characters``."""
        return dataclasses.replace(self, message=_cut(self.message, characters), field=_cut(self.field, characters),
                                   value=_cut(self.value, characters), remedy=_cut(self.remedy, characters))


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


@dataclass(frozen=True, kw_only=True)
class ResolvedSource:
    """What the resolve step found: content digests and what the source is, before any device is used.
    ``checkpoint_digests`` are by the checkpoints' names, ``draft_digests`` by the drafts'."""

    digest: str
    format: str
    size_bytes: int
    evaluation_digest: str = ""
    calibration_digest: str = ""
    # Not hashed, as no mapping is: equality reads it.
    checkpoint_digests: Mapping[str, str] = field(default_factory=dict, hash=False)
    draft_digests: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What a container image has, as its own ``python3`` found it in a pod without a device. ``backends`` are Triton's,
    ``libraries`` maps names of :data:`LIBRARIES` to versions. ``cuda`` is the least CUDA (``12.6``) that the image asks
    of a node's driver, empty where it asks for none; a driver of one of the branches ``drivers`` (``535``) does, too.
    ``caches`` are Triton's caches, such as ``local``; None where that was not asked.
    """

    architecture: str = ""
    python: str = ""
    tritonserver: str = ""
    backends: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    cuda: str = ""
    drivers: tuple[str, ...] = ()
    caches: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Of the two images that an engine depends on: the one that serves it, and the one that builds it."""

    server: ImageFacts
    builder: ImageFacts


@dataclass(frozen=True, kw_only=True)
class ShardSummary:
    """Of shard ``shard`` of ``shards``: how many ``rows`` it has, and how many the whole data set. ``answered`` are
    those that the program which ended had to ask for, the others had answers before it began."""

    shard: int
    shards: int
    rows: int
    total: int
    answered: int
    seconds: float = 0.0


def shard_range(total: int, shards: int, shard: int) -> range:
    """The rows of shard ``shard``: one after the other, and of almost the same number."""
    return range(total * shard // shards, total * (shard + 1) // shards)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a resolve, ask, build or batch step ended. ``facts`` are those of an ask step, ``shard`` is of a batch step.
    A build of a language model has ``generate`` in place of ``engine`` and ``serving``."""

    kind: Literal["resolve", "build", "ask", "batch"]
    ok: bool
    error: ErrorReport | None = None
    source: ResolvedSource | None = None
    fingerprint: str = ""
    manifest_digest: str = ""
    cache_hit: bool = False
    build_seconds: float = 0.0
    built: str = ""
    engine: EngineSummary | None = None
    serving: ServingChoice | None = None
    candidates: tuple[CandidateSummary, ...] = ()
    facts: Facts | None = None
    generate: GenerateSummary | None = None
    shard: ShardSummary | None = None
    event: str = "outcome"
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        return dumps(_outcome(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`."""
        return load(cls, text)

    def to_termination_message(self, limit: int = TERMINATION_MESSAGE_BYTES) -> str:
        """JSON of at most ``limit`` bytes: the candidates' buckets and tokens are dropped, then their reasons cut, then
        candidates dropped from the end, those that ship or are offered last, then the service curve is dropped, then
        the error's texts are cut. What candidates were not measured for is left out. Raises :class:`ContractError` if
        even that does not fit."""
        outcome, cuts, reasons = self, list(_TEXT_CUTS), list(_REASON_CUTS)
        while len(text := _brief(outcome).encode()) > limit:
            if any(one.buckets or one.tokens for one in outcome.candidates):
                outcome = dataclasses.replace(outcome, candidates=tuple(
                    dataclasses.replace(one, buckets=(), tokens=None) for one in outcome.candidates))
            elif reasons:
                longest = reasons.pop(0)
                outcome = dataclasses.replace(outcome, candidates=tuple(
                    dataclasses.replace(one, reason=_cut(one.reason, longest)) for one in outcome.candidates))
            elif len(outcome.candidates) > 1:
                outcome = dataclasses.replace(
                    outcome, candidates=_without_the_least(outcome.candidates, len(text) - limit))
            elif outcome.engine and outcome.engine.service_curve:
                outcome = dataclasses.replace(outcome, engine=dataclasses.replace(outcome.engine, service_curve=()))
            elif outcome.error and cuts:
                outcome = dataclasses.replace(outcome, error=outcome.error.shortened(cuts.pop(0)))
            else:
                raise ContractError(f"outcome of {len(text)} bytes cannot be shortened to {limit}")
        return text.decode()


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """Without ``facts`` where there are none: a manifest's signature is over what was written before they were
    known."""
    body: dict[str, Any] = to_plain(outcome)
    if outcome.facts is None:
        del body["facts"]
    return body


def _brief(outcome: Outcome) -> str:
    """Its JSON without the fields of candidates that are empty, which a reader takes to be absent."""
    body = _outcome(outcome)
    body["candidates"] = [_measured(one) for one in body["candidates"]]
    return dumps(body)


def _measured(candidate: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in candidate.items() if value not in (None, "", [])}


def _without_the_least(candidates: tuple[CandidateSummary, ...], excess: int) -> tuple[CandidateSummary, ...]:
    """Without the last one that neither ships nor is offered, or else without the last; and without as many as have to
    go for ``excess`` bytes even were each as long as the longest."""
    others = [index for index, one in enumerate(candidates) if one.verdict not in CHOSEN] or range(len(candidates))
    longest = max(len(dumps(_measured(to_plain(one))).encode()) for one in candidates) + len(", ")
    count = max(1, min(excess // longest, len(candidates) - 1))
    dropped = set(others[-count:])
    return tuple(one for index, one in enumerate(candidates) if index not in dropped)
