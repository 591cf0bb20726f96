"""The figures of the moment in ``status.autoscaling``. They are for people, and move with every sample: a pass runs for
them only where they differ from what is seen, and a quiet queue costs no pass."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.quantity import VISIBLE
from enginewright.core.signals import SignalWindow, of_last_minute


@dataclass(frozen=True, kw_only=True)
class Shown:
    """``queue_depth`` in requests, ``p99`` in milliseconds, requests ``rejected`` in the last minute, ``hit_share`` of
    the response cache in it, 0 to 1. None: not told."""

    queue_depth: int | None = None
    p99: float | None = None
    rejected: int | None = None
    hit_share: float | None = None

    def outdated(self, window: SignalWindow, depth: float | None, now: float) -> bool:
        """Whether a pass would show others, when ``depth`` requests are queued. ``now`` is on the window's clock. What
        is not told is not asked for: whether the spec has a queue's policy or a cache, the pass knows."""
        return (
            (None if depth is None else round(depth)) != self.queue_depth
            or not alike(self.p99, newest_p99(window))
            or (self.rejected is not None and self.rejected != rejected(window, now))
            or (self.hit_share is not None and self.hit_share != hit_share(window, now))
        )


def alike(shown: float | None, found: float | None) -> bool:
    """Whether a reader would see no difference: a p99 moves with every request."""
    return shown == found or (shown is not None and found is not None and abs(found - shown) <= VISIBLE * shown)


def newest_p99(window: SignalWindow | None) -> float | None:
    """The servers' own, in milliseconds."""
    return window.samples[-1].p99 if window and window.samples else None


def rejected(window: SignalWindow, now: float) -> int:
    """Requests that queues turned away in the last minute."""
    return round(sum(one.rejected for one in of_last_minute(window.samples, now)))


def hit_share(window: SignalWindow, now: float) -> float | None:
    """Of the last minute; None where nothing was looked for."""
    newest = of_last_minute(window.samples, now)
    hits = sum(one.hits for one in newest)
    looked_for = hits + sum(one.misses for one in newest)
    return round(hits / looked_for, 3) if looked_for else None
