"""What the container of a tritonserver says of itself to who proves an engine on it from another container.

The shell that starts the server leaves files in a folder: ``started`` and ``ready``, seconds since 1970 at which the
process began and its port opened, and every second ``memory``, with ``smaps_rollup``, ``status`` and ``stat`` of all
its processes. They are the word of an image that the user chose: figures are made of them, and of these the memory that
replicas of this image ask for; nothing of what ships is decided by them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.triton import process

STARTED, READY, MEMORY = "started", "ready", "memory"
# A server is ready within this after its start, or a clock is wrong.
MOST_SECONDS = 3600.0
# The newest memory is written within a second; so long it is awaited.
FRESH_SECONDS, POLL_SECONDS = 5.0, 0.2


@dataclass(frozen=True)
class Witness:
    folder: Path

    def start_seconds(self) -> float:
        """From the start of the server's process until its port was open; 0 where it does not say."""
        started, ready = self._time(STARTED), self._time(READY)
        return ready - started if 0 < started <= ready <= started + MOST_SECONDS else 0.0

    async def memory_bytes(self) -> int:
        """Of the server's processes as it is now, pages that they share once; 0 where it does not say."""
        return process.memory_in(await self.said()).resident

    async def said(self) -> str:
        """Of the server's processes, as the kernel says it now; empty where its container does not."""
        asked, file = time.time(), self.folder / MEMORY
        while time.time() < asked + FRESH_SECONDS:
            if _written(file) > asked:
                return _text(file)
            await asyncio.sleep(POLL_SECONDS)
        return ""

    def _time(self, name: str) -> float:
        try:
            return float(_text(self.folder / name))
        except ValueError:
            return 0.0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
