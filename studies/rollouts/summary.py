"""What a drill counted, and the file that it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Summary:
    """``requests`` and ``failed`` are the load generator's, ``retried`` its second tries after a connection broke.
    ``foreign_traffic`` counts how often Ready was True while another engine still had a ready endpoint."""

    requests: int = 0
    failed: int = 0
    rollouts: int = 0
    rollbacks: int = 0
    kills: int = 0
    bad_candidates: int = 0
    bad_rolled_back: int = 0
    equal_candidates: int = 0
    equal_promoted: int = 0
    retried: int = 0
    drains: int = 0
    scalings: int = 0
    foreign_traffic: int = 0
    most_pods: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def add_load(self, result: Mapping[str, Any]) -> None:
        self.requests += result["requests"]
        self.failed += result["failed"]
        self.retried += result.get("retried", 0)
        for kind, count in result.get("errors", {}).items():
            self.errors[kind] = self.errors.get(kind, 0) + count

    @property
    def good(self) -> bool:
        """Whether nothing was lost and every candidate got what it deserved."""
        return (self.requests > 0 and not self.failed and not self.foreign_traffic and not self.surprises
                and self.bad_rolled_back == self.bad_candidates and self.equal_promoted == self.equal_candidates)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")
