"""What the study counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.summary import Summary


@dataclass
class StreamSummary(Summary):
    """``requests`` are streams, ``failed`` those without a whole answer, ``cut_streams`` those of them that had begun.
    ``loads`` has the same by kind of client, and ``failures`` what was said of each, at most fifty of a kind."""

    cut_streams: int = 0
    tokens: int = 0
    loads: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add_streams(self, load: str, found: Mapping[str, Any]) -> None:
        self.add_load(found)
        self.cut_streams += found["cut_streams"]
        self.tokens += found["output_tokens"]
        self.loads[load] = {name: found[name] for name in ("requests", "failed", "cut_streams", "finishes", "errors",
                                                           "output_tokens", "seconds", "ttft_ms")}
        self.failures += [{"load": load, **one} for one in found["failures"]]
