"""What the way to the apiserver does to the operator's requests."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from aiohttp import web

from support.faulty import Fault, FaultyProxy, is_write

# Of the requests that a fault hits; a partition hits all.
SHARE = 0.4
EXPIRED = json.dumps({"type": "ERROR", "object": {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
    "message": "too old resource version"}}).encode() + b"\n"


@dataclass
class Way:
    """``now`` is the fault of this time, empty for none. ``wrote`` counts writes that arrived, but for those that renew
    a lead."""

    dice: random.Random
    now: str = ""
    wrote: list[str] = field(default_factory=list)
    faults: int = 0

    def proxy(self) -> FaultyProxy:
        return FaultyProxy(choose=self.choose, alter=self.alter)

    def choose(self, request: web.Request) -> Fault:
        fault = self._fault(request)
        self.faults += fault != "pass"
        if fault in ("pass", "lose-answer") and is_write(request) and "/leases/operator-" not in request.path:
            self.wrote.append(f"{request.method} {request.path}")
        return fault

    def _fault(self, request: web.Request) -> Fault:
        if self.now == "partition":
            return "break"
        if self.now in ("", "deaf", "expire") or self.dice.random() >= SHARE:
            return "pass"
        if self.now == "conflict" and not is_write(request):
            return "pass"
        match self.now:
            case "throttle" | "conflict" | "break" | "lose-answer":
                return self.now
            case "hang":
                return "hang" if self.dice.random() < SHARE else "pass"
        raise ValueError(f"{self.now} is no fault")

    def alter(self, _kind: str, line: bytes) -> bytes:
        """Of a watch's line."""
        if self.now == "deaf":
            self.faults += 1
            return b""
        if self.now == "expire" and self.dice.random() < SHARE:
            self.faults += 1
            return EXPIRED
        return line
