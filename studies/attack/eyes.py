"""What the drill sees: writes of replicas by a watch, the Lease, and what the operator's process uses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from attack.rows import Row, watching
from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import LEASE
from enginewright.core import labels
from operator_metrics import samples

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Scales:
    """``first`` maps a model and a number of replicas to the moment at which the watch first told of so many."""

    first: dict[tuple[str, int], float] = field(default_factory=dict)

    def take(self, row: Row) -> None:
        now = time.monotonic()
        model, replicas = row
        if not model or not replicas:
            return  # not a model's, or without a number yet
        for number in range(int(replicas) + 1):
            self.first.setdefault((model, number), now)


@contextlib.asynccontextmanager
async def watching_scales(kubeconfig: Path) -> AsyncIterator[Scales]:
    """Of all Deployments, by kubectl's own watch."""
    key = labels.MODEL.replace(".", r"\.")
    found = Scales()
    async with watching(kubeconfig, "deployments", f"{{.metadata.labels.{key}}} {{.spec.replicas}}", found.take):
        yield found


@dataclass(frozen=True)
class Work:
    """What the operator says that it has done so far: calls and seconds, of passes and of calls to the apiserver."""

    passes: float
    pass_seconds: float
    calls: float
    call_seconds: float

    def since(self, before: Work) -> dict[str, float]:
        passes, calls = self.passes - before.passes, self.calls - before.calls
        return {"passes": passes, "mean_pass_seconds": round((self.pass_seconds - before.pass_seconds) / passes, 3),
                "calls": calls, "mean_call_seconds": round((self.call_seconds - before.call_seconds) / calls, 3)}


async def work(port: int) -> Work:
    """By the operator's own metrics."""
    told = await samples(port)

    def total(name: str) -> float:
        return sum(sample.value for sample in told if sample.name == name)

    pass_, call = "enginewright_reconcile_seconds", "enginewright_api_request_seconds"
    return Work(total(f"{pass_}_count"), total(f"{pass_}_sum"), total(f"{call}_count"), total(f"{call}_sum"))


@dataclass
class LeaseSeen:
    """``lag`` is the longest time since the last renewal, as the Lease itself tells it; ``looks`` that succeeded."""

    holders: list[str] = field(default_factory=list)
    transitions: int = 0
    lag: float = 0.0
    looks: int = 0


@contextlib.asynccontextmanager
async def watching_lease(kube: KubeClient, namespace: str, name: str) -> AsyncIterator[LeaseSeen]:
    seen = LeaseSeen()

    async def look() -> None:
        while True:
            with contextlib.suppress(ClientError):
                spec = (await kube.get(LEASE, namespace, name))["spec"]
                renewed = datetime.fromisoformat(spec["renewTime"])
                seen.lag = max(seen.lag, (datetime.now(UTC) - renewed).total_seconds())
                seen.transitions = int(spec.get("leaseTransitions", 0))
                seen.looks += 1
                if spec["holderIdentity"] not in seen.holders:
                    seen.holders.append(spec["holderIdentity"])
            await asyncio.sleep(0.5)

    looking = asyncio.create_task(look(), name="watch of the Lease")
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.wait({looking})


def peak_mib(process: int) -> float:
    """The most memory that the process ever had at once."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def forget_peak(process: int) -> None:
    """From now on :func:`peak_mib` tells of what comes."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
