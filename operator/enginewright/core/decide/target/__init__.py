"""The target stage: which revision is to be rolled out, and why that one.

What the spec asks for, or an annotation in its place. Then an ordered chain of policies: each is asked about the target
so far, and may put another revision there, with its reason and what is to be said of it. Where a revision was given up
the chain ends: the last good one needs no approval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.target.approval import approval
from enginewright.core.decide.target.base import Target, Why
from enginewright.core.decide.target.given_up import drifted, in_the_gap, rejected
from enginewright.core.decide.target.pinned import asked_for

Policy = Callable[[Target, QualityResult], Target | None]

POLICIES: Final[tuple[Policy, ...]] = (rejected, in_the_gap, approval, drifted)


def choose(ctx: PassContext, engine: EngineResult, quality: QualityResult) -> Target:
    """While rollouts are suspended only what is asked for is said: nothing is rolled out."""
    target = asked_for(ctx, engine)
    for policy in () if ctx.suspended else POLICIES:
        target = policy(target, quality) or target
        if target.reason is Why.GOES_BACK:
            break
    return target


__all__ = ["Target", "Why", "choose"]
