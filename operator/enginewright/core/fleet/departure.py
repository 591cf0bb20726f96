"""Classes that the spec does not name any more: each goes when the others carry the load, never before."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from enginewright.core import labels
from enginewright.core.fleet.standing import Member, Standing
from enginewright.core.observed import MemberView
from enginewright.core.plan import Action, Delete


@dataclass(frozen=True, kw_only=True)
class Departure:
    """``staying`` are objects that are not asked for and serve all the same, ``why`` says what they wait for."""

    actions: tuple[Action, ...] = ()
    staying: tuple[MemberView, ...] = ()
    why: str = ""


def depart(going: tuple[MemberView, ...], why: str, routed: Set[str] = frozenset()) -> Departure:
    """``going`` stay while there is a reason ``why``, and those that are ``routed`` until they are not."""
    if not going:
        return Departure()
    if why:
        return Departure(staying=going, why=why)
    return Departure(
        staying=going,
        actions=tuple(
            Delete(api_version=labels.API_VERSION, kind=labels.KIND, name=view.name, uid=view.uid,
                   why=f"class {view.class_name} is not in the spec any more, and the others serve")
            for view in going if not (view.deleting or view.class_name in routed)),
    )


def missing(members: Iterable[Member], *, suspended: bool = False) -> str:
    """What the classes that stay lack: every one that can serve is to do so, with all the replicas that it wants by the
    load that it has. While the fleet is ``suspended`` what serves goes on. Empty when they lack nothing."""
    if suspended:
        return "while spec.suspend is true"
    coming = [member.entry.name for member in members
              if not member.available and member.standing is not Standing.REFUSED]
    if coming:
        return f"until replicas of {', '.join(coming)} serve"
    serving = [member for member in members if member.available]
    if not serving:
        return "because no other class serves"
    short = [member.entry.name for member in serving if member.ready_replicas < member.wanted_replicas]
    return f"until {', '.join(short)} has all its replicas" if short else ""
