"""The KV caches of language models: what runs on replicas that go has to fit into those that stay.

The share in use is a stock, not a rate, so it asks for no replica. It only keeps those whose caches hold what the rest
could not.
"""

from __future__ import annotations

import math
from dataclasses import replace

from enginewright.core.reasons import Reason
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.queue import replicas_text
from enginewright.core.signals import SignalWindow

# A fuller cache makes vLLM put requests aside that it is answering, and compute them again.
FULL = 0.8
# The fullest of the last seconds counts: one sample may lack a replica.
LOOKED = 60.0


def guarded(found: ScaleDecision, window: SignalWindow | None, current: int, limits: ScaleLimits, now: float
            ) -> ScaleDecision:
    """``found``, unless it would leave fewer than ``current`` replicas with caches that are too full."""
    if window is None or found.replicas >= current:
        return found
    used = max((sum(one.caches.values()) for one in window.samples if now - one.time <= LOOKED), default=0.0)
    least = min(current, limits.max_replicas, math.ceil(used / FULL))
    if found.replicas >= least:
        return found
    if least < current:
        message = f"{found.message} {replicas_text(least)} for now: KV caches would be over {FULL:.0%} full with fewer."
        return replace(found, replicas=least, message=message)
    # Without the figures of the moment: the text stands in status.
    message = f"Fewer replicas would do for what arrives, but their KV caches would be over {FULL:.0%} full."
    return replace(found, replicas=least, reason=Reason.STEADY, message=message)
