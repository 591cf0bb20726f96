"""What is to serve, as data: strategies say it, and nothing here or in them knows how it is brought about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from enginewright.core.comparison import Question
from enginewright.core.conditions import Finding
from enginewright.core.routing import Weights
from enginewright.core.status import RolloutStatus

# As the revision that a Service selects: every revision of the model.
EVERY: Final = ""
PROGRESS_CHECK: Final = 15.0


class Way(Enum):
    """DIRECT: the Service selects replicas. LEAVING: it selects the activator, which passes requests on to replicas.
    HELD: it selects the activator, which reaches no replica."""

    DIRECT = auto()
    LEAVING = auto()
    HELD = auto()


class Stops(Enum):
    """When revisions that are not kept are stopped. NEVER: not by this pass. AT_ONCE: none is spared. SPARING: one
    that answers only once a revision that is kept answers. DRAINED: as that, and once neither Service nor endpoints
    lead to it any more."""

    NEVER = auto()
    AT_ONCE = auto()
    SPARING = auto()
    DRAINED = auto()


@dataclass(frozen=True, kw_only=True)
class Desired:
    """``progress`` and ``memory`` say how far the rollout is: the step, and what the next pass is to know.

    ``replicas`` are those of each revision that is there; a revision that is not named is left as it is, or stopped as
    ``stops`` says unless it is in ``kept``. With ``starts`` the target is made where it is not there. ``selected`` is
    the revision that the Service selects, :data:`EVERY`, or None to leave that as it is; ``weights`` split what comes
    through a Gateway, and leave that as it is where they are empty. ``holds`` says who takes requests while no replica
    answers, ``mirrored`` the candidate that gets live requests as well. ``watch`` asks for the replicas to be scraped:
    ``question`` is what is to be found out. The log says ``why`` of each write, or what is more exact of its kind."""

    progress: Finding
    memory: RolloutStatus
    replicas: Mapping[str, int] = field(default_factory=dict)
    starts: bool = False
    protected: bool = False
    selected: str | None = None
    weights: Weights = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    stops: Stops = Stops.NEVER
    holds: Way = Way.DIRECT
    mirrored: str = ""
    why: str = ""
    why_started: str = ""
    why_scaled: str = ""
    why_stopped: str = ""
    requeue: float | None = None
    watch: bool = False
    question: Question | None = None
