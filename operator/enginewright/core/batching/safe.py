"""Settings of the dynamic batcher, and which of them the build's measurements allow."""

from __future__ import annotations

from dataclasses import dataclass

MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True, kw_only=True)
class Setting:
    """``dynamic_batching`` of a Triton model: a request is held back for at most ``delay_us`` microseconds for others;
    a batch of a ``preferred`` size goes at once."""

    delay_us: int = 0
    preferred: tuple[int, ...] = ()

    def __str__(self) -> str:
        sizes = f", preferred {', '.join(map(str, self.preferred))}" if self.preferred else ""
        return f"{self.delay_us} µs{sizes}"


@dataclass(frozen=True, kw_only=True)
class SafeSet:
    """What may be chosen from. ``default`` is what the build shipped; ``curve`` holds (batch, seconds) by rising batch,
    as measured; ``longest_delay_us`` bounds every delay; ``objective_seconds`` is None where the spec has none.
    ``load_seconds`` is what loading the model took, ``allowed`` the share of requests that may be late."""

    default: Setting
    curve: tuple[tuple[int, float], ...]
    max_batch: int
    longest_delay_us: int
    load_seconds: float
    objective_seconds: float | None = None
    allowed: float = 0.01

    def seconds(self, batch: float) -> float:
        """What a batch takes, between measured ones by straight lines, beyond the largest as that one."""
        below = self.curve[0]
        for point in self.curve:
            if point[0] >= batch:
                if point[0] == below[0]:
                    return point[1]
                part = (batch - below[0]) / (point[0] - below[0])
                return below[1] + part * (point[1] - below[1])
            below = point
        return below[1]

    def holds(self, setting: Setting) -> bool:
        """Whether a request that is held back for the whole delay, and then served in the largest batch that may form
        meanwhile, is still within the objective. Every batch must be one that was measured."""
        if setting == self.default:
            return True
        largest = min(self.max_batch, max(setting.preferred, default=self.max_batch))
        if not 0 <= setting.delay_us <= self.longest_delay_us or largest > self.curve[-1][0]:
            return False
        worst = setting.delay_us / MICROSECONDS + self.seconds(largest)
        return self.objective_seconds is None or worst <= self.objective_seconds
