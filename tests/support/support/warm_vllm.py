"""Servers of vLLM that import nothing: a process that has imported vLLM forks them. To import it takes most of a start,
in vLLM's own process and once more in its engine's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self, cast

from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.server import READY_SECONDS, VllmServer
from support import vllm_forks

# Words of a server's command: `python -s -S`, then `-m vllm.entrypoints.cli.main`.
INTERPRETER, MODULE = 3, 2
# Of a server's environment, what vLLM reads once it starts; the rest may count as soon as it is imported.
READ_LATE = ("HOME", "VLLM_CPU_KVCACHE_SPACE")


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


class Forks:
    """One process for each environment that servers ask for, but for what is read late."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sockets: dict[str, Path] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def socket(self, interpreter: list[str], environment: dict[str, str]) -> Path:
        """The socket of that process, which is started where it is not there."""
        shared = {name: value for name, value in environment.items() if name not in READ_LATE}
        key = json.dumps(shared, sort_keys=True)
        if key not in self._sockets:
            socket = self._folder / f"forks-{len(self._sockets)}"
            process = subprocess.Popen([*interpreter, vllm_forks.__file__, vllm_forks.FORKS, str(socket)], env=shared,
                                       text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self._processes.append(process)
            assert process.stdout is not None
            assert any(line == f"{vllm_forks.READY}\n" for line in process.stdout), "it ended before it was ready"
            self._sockets[key] = socket
        return self._sockets[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


class WarmVllm(VllmServer):
    """As its basis, by one of ``forks``."""

    def __init__(self, folder: Path, arguments: ServerArguments, *, forks: Forks,
                 ready_seconds: float = READY_SECONDS, draft: Path | None = None) -> None:
        super().__init__(folder, arguments, ready_seconds=ready_seconds, draft=draft)
        self._forks = forks

    async def _begin(self, port: int) -> None:
        if self.draft is not None:
            self._link.symlink_to(self.draft.resolve())
        command, environment = self.command(port), self.environment()
        socket = self._forks.socket(command[:INTERPRETER], environment)
        reader, writer = await asyncio.open_unix_connection(str(socket))
        asked = {"words": command[INTERPRETER + MODULE:], "environment": environment, "folder": self._scratch.name,
                 "log": str(self.log_file)}
        writer.write(json.dumps(asked).encode() + b"\n")
        self._child = cast(Any, Fork(reader, writer, int(await reader.readline())))
