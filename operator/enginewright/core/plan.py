"""What a pass wants done, as data: logged with its reasons before anything happens, executed by ``act``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from enginewright.core.comparison import Question
from enginewright.core.scaling.limits import ScaleLimits

Manifest = Mapping[str, Any]
# No object has this resourceVersion: etcd counts from it, so that the first object that is ever written has 2. The
# apiserver answers 409 where there is an object, and creates it where there is none.
ABSENT: Final = "1"
# Blocks of status that say what was kept.
KEPT: Final = ("revisions",)


@dataclass(frozen=True, kw_only=True)
class Apply:
    """Server-side apply of ``manifest`` under field manager ``enginewright``.

    With ``force`` our fields win over other writers; without, an object that another owner made is left alone and
    the pass ends with an error of the user's family: for children not seen to be ours yet, whose names users choose.

    ``uid`` and ``version`` (the resourceVersion) are those of the object that the pass saw; the apiserver refuses the
    write when the object has changed since. With ``version`` :data:`ABSENT` it refuses where there is an object. Empty:
    the write has no condition.
    """

    manifest: Manifest
    why: str
    force: bool = True
    uid: str = ""
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class Create:
    """Create once; already there is success. For Jobs, whose pod template cannot be changed."""

    manifest: Manifest
    why: str


@dataclass(frozen=True, kw_only=True)
class MakeKey:
    """Create the Secret ``manifest``, and fill its ``entry`` with a random key. One that is there already is right, and
    its content stays unknown: the operator may create Secrets and read none."""

    manifest: Manifest
    entry: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Replace:
    """Write ``manifest`` over the object of that name in one write, as long as its resourceVersion is ``version``:
    a reader meanwhile finds the old object or the new one. An annotation that is None goes."""

    manifest: Manifest
    version: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Background deletion; gone already is success. ``uid`` and ``version`` (the resourceVersion) are preconditions
    where given. With ``generation`` a later resourceVersion will do while the object has this generation: its status
    has changed, and its spec has not. ``spent`` says that nothing will read the object again, and that no later pass
    would look for it: see :attr:`Plan.first`."""

    api_version: str
    kind: str
    name: str
    why: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    spent: bool = False


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Write ``replicas`` to the Deployment's ``/scale`` under field manager ``enginewright-scaler``. ``uid``,
    ``version`` and ``generation`` are preconditions as with :class:`Delete`."""

    deployment: str
    replicas: int
    why: str
    uid: str = ""
    version: str = ""
    generation: int = 0


@dataclass(frozen=True, kw_only=True)
class ClaimBuild:
    """Make the Lease of a build, or with ``version`` take over the one of that resourceVersion. A pass that was faster
    ends the pass before anything stands on the claim, status included."""

    manifest: Manifest
    version: str
    why: str


@dataclass(frozen=True, kw_only=True)
class RenewBuild:
    """Write ``time`` as the renewal of our Lease. One that is not ours any more is left alone."""

    name: str
    version: str
    time: datetime
    why: str


@dataclass(frozen=True, kw_only=True)
class ReleaseBuild:
    """Delete our Lease. One that is gone or not ours any more is left alone."""

    name: str
    version: str
    why: str


@dataclass(frozen=True, kw_only=True)
class MarkRecord:
    """Note on an engine's record since when no model refers to the engine; None takes the note away. A record that has
    changed since it was read is left alone. ``annotation`` is where the time goes, if not there."""

    name: str
    version: str
    since: datetime | None
    why: str
    annotation: str = ""


Action = Apply | Create | Replace | MakeKey | Delete | Scale | ClaimBuild | RenewBuild | ReleaseBuild | MarkRecord


@dataclass(frozen=True, kw_only=True)
class Event:
    """A Kubernetes event about the object, sent after the status write succeeded."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``status`` is the whole wanted status; the shell writes it only if it differs. ``requeue_after`` in seconds; None
    leaves it to watch events and the periodic resync. ``recommendation`` is the scaler's raw wish of this pass, which
    the shell keeps in the signal window; ``watch_queue`` says whether replicas are to be scraped; ``question`` is the
    analysis under way, ``limits`` what bounds the scaler between passes; None where only passes may decide.

    ``building`` are the actions that get an engine, ``serving`` those that run, scale and reach replicas and keep what
    they are made of. In each the first failure ends it, as later ones may stand on earlier ones; a build that cannot
    be begun leaves what serves to be scaled and healed. ``keeping`` are those that keep what a promoted revision was
    made of, and drop it again; ``status.revisions`` stays as it is where one of them fails.

    The operator may be killed between any two writes, and what only it knew is lost then. So the order of writes is
    part of the plan: the actions that come ``first``, and ``keeping``; ``status``, which says what was decided and
    why; the actions that stand on it; ``status`` again where they add to it. ``status_of_building`` and
    ``status_of_serving`` name the blocks of ``status`` that say what those actions have done: they are written last,
    and only when no such action has failed."""

    building: tuple[Action, ...] = ()
    keeping: tuple[Action, ...] = ()
    serving: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    status_of_building: tuple[str, ...] = ()
    status_of_serving: tuple[str, ...] = ()
    requeue_after: float | None = None
    recommendation: int | None = None
    watch_queue: bool = False
    question: Question | None = None
    limits: ScaleLimits | None = None

    @property
    def first(self) -> tuple[Action, ...]:
        """Actions of ``building`` that come before status: claims, which another pass may win, and the deletion of
        what is ``spent``, which a pass that finds the decision in status would not come back to."""
        return tuple(filter(_comes_first, self.building))

    @property
    def then(self) -> tuple[Action, ...]:
        """The actions of ``building`` that stand on status."""
        return tuple(action for action in self.building if not _comes_first(action))

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.first + self.keeping + self.then + self.serving

    def ahead(self, before: Mapping[str, Any], *, kept: bool = True) -> Mapping[str, Any]:
        """What status says before the actions that stand on it; ``before`` is what it said when the pass began,
        ``kept`` whether ``keeping`` has been done."""
        return keep(self.status, before, (*self.status_of_building, *self.status_of_serving, *(() if kept else KEPT)))


def keep(status: Mapping[str, Any], before: Mapping[str, Any], blocks: tuple[str, ...]) -> dict[str, Any]:
    """``status`` with ``blocks`` as they were ``before``."""
    rest = {name: value for name, value in status.items() if name not in blocks}
    return {**rest, **{name: before[name] for name in blocks if name in before}}


def _comes_first(action: Action) -> bool:
    return isinstance(action, ClaimBuild) or (isinstance(action, Delete) and action.spent)
