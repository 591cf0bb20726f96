"""Where the client and each replica run, and how they are kept apart from what else the machine does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.triton.process import descendants

# Above all others of the machine (sched(7), "The autogroup feature": a whole session has one nice value).
FIRST = "-20"


@dataclass(frozen=True)
class Places:
    """The cores of the client and of each replica."""

    client: frozenset[int]
    replicas: tuple[frozenset[int], ...]


def places(cores: Sequence[int], replicas: int) -> Places:
    """The first core for the client, the others dealt out evenly; all for everybody where there are too few."""
    if len(cores) <= replicas:
        return Places(frozenset(cores), (frozenset(cores),) * replicas)
    each = (len(cores) - 1) // replicas
    return Places(frozenset(cores[:1]), tuple(frozenset(cores[1 + each * number:1 + each * (number + 1)])
                                              for number in range(replicas)))


def put_client_first() -> None:
    """A real-time priority for this thread and those that it starts: the client sleeps most of the time. Raises
    ``PermissionError`` where that is not allowed."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))


def put_replica_first(server: int) -> None:
    """Triton's own threads, which work for moments, get a real-time priority. The processes that compute get the
    weight of a session of the lowest niceness instead: Linux takes a twentieth of each second from real-time processes
    that never sleep, and equal real-time priorities would keep Triton from taking requests up while a batch computes,
    as it does elsewhere. Raises ``PermissionError``, ``FileNotFoundError`` (a kernel without autogroups)."""
    for process in descendants(server):
        Path(f"/proc/{process}/autogroup").write_text(FIRST)
        policy, priority = (os.SCHED_RR, 1) if process == server else (os.SCHED_OTHER, 0)
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
