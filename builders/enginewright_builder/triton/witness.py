"""What the container of a tritonserver says of itself to who proves an engine on it from another container.

The shell that starts the server leaves files in a folder. ``started`` and ``ready`` are the seconds since 1970 at which
the process began and its port opened. The prover asks for ``memory``: it writes the next number N into a file that the
server's container only reads, and the shell answers with a line ``asked N`` and with ``smaps_rollup``, ``status`` and
``stat`` of all its processes. So nothing is looked up while a window is measured. All of this is the word of an image
that the user chose: figures are made of it, and of these the memory that replicas of this image ask for; nothing of
what ships is decided by them.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from enginewright_builder.triton import process

STARTED, READY, MEMORY, ASKED = "started", "ready", "memory", ".asked"
# A server is ready within this after its start, or a clock is wrong.
MOST_SECONDS = 3600.0
# The shell looks ten times a second whether it is asked; so long an answer is awaited.
ANSWER_SECONDS, POLL_SECONDS = 5.0, 0.05
_ANSWERED = re.compile(r"asked (\d{1,9})\n")


class Witness:
    def __init__(self, folder: Path, asked: Path) -> None:
        """``folder`` is the server's, ``asked`` one that it reads alone."""
        self._folder, self._asked, self._number = folder, asked / ASKED, 0

    def start_seconds(self) -> float:
        """From the start of the server's process until its port was open; 0 where it does not say."""
        started, ready = self._time(STARTED), self._time(READY)
        return ready - started if 0 < started <= ready <= started + MOST_SECONDS else 0.0

    async def memory_bytes(self) -> int:
        """Of the server's processes as it is now, pages that they share once; 0 where it does not say."""
        return process.memory_in(await self.processes()).resident

    async def processes(self) -> str:
        """Of the server's processes, as the kernel says it now; empty where its container does not."""
        number, deadline = self._ask(), time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            text = _text(self._folder / MEMORY)
            answered = _ANSWERED.match(text)
            if answered and int(answered[1]) >= number:  # of several who ask at once all have the last one's answer
                return text
            await asyncio.sleep(POLL_SECONDS)
        return ""

    def _ask(self) -> int:
        """Renamed into its place, so that the shell gets no half of it."""
        self._number += 1
        fresh = self._asked.with_suffix(".next")
        fresh.write_text(f"{self._number}\n", encoding="ascii")
        fresh.replace(self._asked)
        return self._number

    def _time(self, name: str) -> float:
        try:
            return float(_text(self._folder / name))
        except ValueError:
            return 0.0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
