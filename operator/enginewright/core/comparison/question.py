"""What an analysis asks, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from enginewright.core.comparison.mirrored import Mirrored
from enginewright.core.reasons import Reason
from enginewright.core.sequential import Interval
from enginewright_builder.contract import COMPUTED

# Seconds that an analysis may take; the scraper keeps 1800.
MOST_PATIENCE: Final = 1500.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """``slowdown`` is the largest relative rise of mean latency (0.25: a quarter slower). ``requests`` are needed of
    each side. ``milliseconds`` bounds the ``percentile`` where the server exports it, None without an objective.
    ``similarity`` is the least cosine between the outputs of both to the same input; None where they are meant to
    differ. No verdict is good before ``watched`` seconds; after ``patience`` seconds the best estimate decides.

    ``required``: what is shown to miss the objective is refused, whatever the stable revision does. ``awaited``: no
    verdict is good before it is known to be kept. ``shown``: the build showed that it is.

    Of language models ``first_token`` and ``per_token`` bound the ``percentile`` of these times, in milliseconds.
    ``alike`` says that answers are meant to end alike and to be as long."""

    slowdown: float = 0.25
    requests: int = 60
    percentile: float = 99.0
    milliseconds: float | None = None
    similarity: float | None = None
    watched: float = 0.0
    patience: float = 300.0
    required: bool = False
    awaited: bool = False
    shown: bool = False
    first_token: float | None = None
    per_token: float | None = None
    alike: bool = False


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which two revisions are compared. ``key`` names the analysis: another one begins with no samples. ``model`` is
    the name under which both serve it. ``alone`` when the stable one has no replica left to compare with; ``mirror``
    when live requests of the stable one are to be sent to the candidate as well; ``generates`` when they serve a
    language model. ``caching`` are those of both that answer repeated requests from a cache. ``switched`` is when all
    live traffic moved to the candidate at once, on the clock of the rounds; None before."""

    key: str
    stable: str
    candidate: str
    model: str
    limits: Limits = Limits()
    alone: bool = False
    mirror: bool = False
    generates: bool = False
    caching: frozenset[str] = frozenset()
    switched: float | None = None

    def name_at(self, revision: str) -> str:
        """The name at which every answer is computed."""
        return f"{self.model}{COMPUTED}" if revision in self.caching else self.model


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``ratio`` is the candidate's mean latency over the stable revision's, None before it is known; of language models
    that of the ``measure`` that is slowest. ``reason`` says why a candidate is worse, or what an open verdict waits for
    where that is not samples. ``requests``
    and ``failures`` are the candidate's, ``seconds`` how long both were watched. ``message`` says all this, and when
    the verdict is open, what is missing; ``starved`` says that it may never come: it is requests, and probes bring
    none, or it has not come with all patience, and a person has to say what is to be. ``uncompared`` is why outputs
    were not compared that should have been, ``mirrored`` what live requests or test answers say of them, where that was
    asked for."""

    verdict: Literal["good", "worse", "open"]
    message: str
    reason: Reason | None = None
    ratio: Interval | None = None
    measure: str = ""
    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    starved: bool = False
    uncompared: str = ""
    mirrored: Mirrored | None = None
