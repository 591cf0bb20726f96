"""Leases of builds that an object left: ``kubectl delete --cascade=orphan`` takes their owner off, so that the garbage
collector never comes for them. An object of that name that is made again takes them back; where none is, they go here.

A Lease keeps others from building its engine, and the engine from being collected. So it goes as late as another object
might take it over: it was not renewed for as long as it lasts, and no Job of its engine is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from enginewright.core.observed import LeaseView
from enginewright.core.plan import Action, ReleaseBuild


def collect_leases(left: Iterable[LeaseView], now: datetime) -> tuple[Action, ...]:
    """``left`` are those without an owner; ``building`` says that a Job of their engine is there, ended or not."""
    return tuple(
        ReleaseBuild(name=lease.name, version=lease.version, why="the object that built is gone, and left it")
        for lease in left
        if not lease.building and now - lease.renewed > timedelta(seconds=lease.seconds)
    )
