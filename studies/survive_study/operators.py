"""Operators as processes that can be killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from support.apiserver import eventually
from support.operators import ROOT

FOLDERS = ("studies", "operator", "builders")


class Zygote:
    """The process that operators are forked from."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._one = asyncio.Lock()

    async def start(self, arguments: list[str], log: Path) -> int:
        """Gives the process id."""
        ask, answer = self._process.stdin, self._process.stdout
        assert ask is not None
        assert answer is not None
        async with self._one:
            ask.write(json.dumps({"arguments": arguments, "log": str(log)}).encode() + b"\n")
            return int(await answer.readline())


@contextlib.asynccontextmanager
async def zygote() -> AsyncIterator[Zygote]:
    places = [*(str(ROOT / folder) for folder in FOLDERS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "survive_study.zygote", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=environment, start_new_session=True)
    try:
        yield Zygote(process)
    finally:
        process.kill()
        await process.wait()


class Operators:
    """Those of one namespace: one at most times, two where a step wants it. ``kills`` counts kill -9, ``deaths`` those
    that ended by themselves."""

    def __init__(self, source: Zygote, kubeconfig: Path, namespace: str, log: Path) -> None:
        self._source, self._kubeconfig, self._namespace, self._log = source, kubeconfig, namespace, log
        self.pids: list[int] = []
        self.kills = 0
        self.deaths = 0

    async def start(self) -> None:
        lease = f"{self._namespace}/operator-{uuid.uuid4().hex[:8]}"
        self.pids.append(await self._source.start([
            "run", f"--kubeconfig={self._kubeconfig}", f"--namespace={self._namespace}", "--metrics-port=0",
            "--health-port=0", "--workers=4", "--resync=10", f"--leader-lease={lease}"], self._log))

    async def kill(self) -> None:
        """The one that began first."""
        if not self.pids:
            return
        pid = self.pids.pop(0)
        if alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.kills += 1
            await eventually(lambda: gone(pid), period=0.005)
        else:
            self.deaths += 1

    async def keep(self) -> None:
        """As a kubelet does: starts again what has ended, and has one run."""
        gone = [pid for pid in self.pids if not alive(pid)]
        self.deaths += len(gone)
        self.pids = [pid for pid in self.pids if pid not in gone]
        if not self.pids:
            await self.start()

    async def stop(self) -> None:
        while self.pids:
            await self.kill()
            self.kills -= 1


async def gone(pid: int) -> bool:
    return not alive(pid)


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
