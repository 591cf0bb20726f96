"""Load generators that run while something is done to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo import traffic
from rollouts.cluster import Corner


@dataclass(frozen=True)
class Load:
    """A generator of the builder image, and its arguments."""

    name: str
    arguments: Sequence[str]
    program: str = "enginewright_builder.load"


def under_load(corner: Corner, loads: Sequence[Load], work: Callable[[], None],
               count: Callable[[str, Mapping[str, Any]], None], *, seconds: int, patience: float) -> None:
    """Runs ``work`` while all ``loads`` run, and gives what each found to ``count``, also where ``work`` fails. They
    run for ``seconds`` at most, and ``patience`` seconds after they were asked to end."""
    for load in loads:
        traffic.start(corner.kube, corner.namespace, load.name, corner.builder, list(load.arguments),
                      deadline=seconds + 60, program=load.program)
    for load in loads:
        traffic.await_start(corner.kube, corner.namespace, load.name)
    try:
        work()
    except BaseException:
        _stop(corner, loads)  # asked twice, they wait for no more requests
        raise
    finally:
        _stop(corner, loads)
        for load in loads:
            count(load.name, traffic.finish(corner.kube, corner.namespace, load.name, timeout=patience))


def _stop(corner: Corner, loads: Sequence[Load]) -> None:
    for load in loads:
        traffic.stop(corner.kube, corner.namespace, load.name)
