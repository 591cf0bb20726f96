"""What processes use, and what the operator says that it asked the apiserver for."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attack.eyes import cpu_seconds
from cluster.process import read_record
from operator_metrics import samples

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CALLS = "enginewright_api_request_seconds_count"
LOOKS = "enginewright_looks_total"
WRITES = frozenset({"apply", "create", "patch", "delete", "scale"})


def rss_mb(process: int) -> float:
    """Megabytes in memory now."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


@dataclass(frozen=True)
class Reading:
    """Seconds of CPU by program, calls by verb and kind, and looks of passes by where they looked, since each of them
    started."""

    cpu: dict[str, float]
    calls: Counter[tuple[str, str]]
    looks: Counter[str]

    def since(self, before: Reading) -> Reading:
        return Reading({name: used - before.cpu[name] for name, used in self.cpu.items()}, self.calls - before.calls,
                       self.looks - before.looks)

    @property
    def writes(self) -> int:
        return sum(count for (verb, _), count in self.calls.items() if verb in WRITES)

    @property
    def requests(self) -> dict[str, int]:
        """By verb."""
        found: Counter[str] = Counter()
        for (verb, _), count in self.calls.items():
            found[verb] += count
        return dict(sorted(found.items()))

    @property
    def by_kind(self) -> dict[str, int]:
        """By verb and kind, the most frequent first."""
        return {" ".join(call): count for call, count in self.calls.most_common()}


@dataclass(frozen=True)
class Meters:
    """``records`` is where the control plane keeps the ids of its processes; the operator tells its calls at ``port``.
    These include the renewals of the Lease by which the operator leads: one every two seconds."""

    records: Path
    operator: int
    port: int

    async def read(self) -> Reading:
        pids = {"operator": self.operator}
        for name in ("kube-apiserver", "etcd"):
            pids[name] = self._pid(name)
        calls: Counter[tuple[str, str]] = Counter()
        looks: Counter[str] = Counter()
        for sample in await samples(self.port):
            if sample.name == CALLS:
                calls[sample.labels["verb"], sample.labels["resource"]] += int(sample.value)
            elif sample.name == LOOKS:
                looks[sample.labels["source"]] += int(sample.value)
        return Reading({name: cpu_seconds(pid) for name, pid in pids.items()}, calls, looks)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Meanwhile the program ``name`` of the control plane gets no CPU."""
        pid = self._pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _pid(self, name: str) -> int:
        record = read_record(self.records / f"{name}.json")
        assert record, f"{name} does not run"
        return record.pid
