"""Processes that another process forks, which has imported what they run: see :mod:`support.vllm_forks`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class Fork:
    """As much of :class:`asyncio.subprocess.Process` as servers use, of a child of another process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._writer = writer
        self._end = asyncio.create_task(self._ended(reader))

    async def _ended(self, reader: asyncio.StreamReader) -> int:
        self.returncode = int(await reader.readline())
        self._writer.close()
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


async def fork(socket: Path, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> Fork:
    """Has one begin with ``words`` in ``folder``, whose output goes to the end of ``log``."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    asked = {"words": [*words], "environment": {**environment}, "folder": str(folder), "log": str(log)}
    writer.write(json.dumps(asked).encode() + b"\n")
    return Fork(reader, writer, int(await reader.readline()))
