"""Is a replica what it is believed to be? A queue that stays, though by the model it would be gone, is believed before
the model, until enough was seen of what replicas do (``seen.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginewright.core.scaling.seen import Belief
from enginewright.core.signals import Sample, Work

# Samples in a row that speak against it.
WITNESSES = 4
# A part of the believed throughput that full replicas reach at least.
REACHED = 0.9


def overfull(samples: Sequence[Sample], ordinary_each: float, belief: Belief) -> frozenset[str]:
    """Replicas at which more requests wait than the ``ordinary_each`` that can be answered in time, not for a moment
    only, and which were not seen to do meanwhile what is believed of them: their queue is not reckoned with."""
    recent = samples[-WITNESSES:]
    if len(recent) < WITNESSES:
        return frozenset()
    return frozenset(
        pod for pod in recent[-1].pending.keys() - belief.own.keys()
        if all(one.pending.get(pod, 0.0) > ordinary_each for one in recent)
        and not (_full(recent, pod) and _does(recent, pod) >= REACHED * belief.throughput(pod))
    )


def slower_than_believed(samples: Sequence[Sample], pods: Iterable[str]) -> bool:
    """Whether one of the :func:`overfull` ``pods`` was never idle."""
    return any(_full(samples[-WITNESSES:], pod) for pod in pods)


def _full(recent: Sequence[Sample], pod: str) -> bool:
    return all(pod in one.full for one in recent[1:])


def _does(recent: Sequence[Sample], pod: str) -> float:
    done = sum((one.full[pod] for one in recent[1:]), Work())
    return done.served / done.seconds if done.seconds else 0.0
