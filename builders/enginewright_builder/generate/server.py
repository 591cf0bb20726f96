"""A real vLLM, started on a free loopback port with a model's folder, and always ended: as a child process, or as
subclasses have it."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import sys
import tempfile
import time
from abc import abstractmethod
from pathlib import Path

import httpx

from enginewright_builder.contract import DRAFT_FOLDER, with_draft
from enginewright_builder.errors import BuilderError, TransientError, UserError
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.packages import packages
from enginewright_builder.running import Within
from enginewright_builder.triton import process
from enginewright_builder.triton.ports import HOST, free_ports

POLL_SECONDS = 0.2
# On a loaded machine of two cores it took 150 s.
READY_SECONDS = 300.0
# A stopping server ends its streams first, and nothing is in flight when a build stops one.
STOP_SECONDS = 5.0
# How long it keeps an idle connection: longer than a build's client, so that it closes none while a request is on its
# way. vLLM's own 5 s are as long as that client's.
IDLE_SECONDS = 600
# One process of vLLM's sends all streams and answers this: on a busy machine it may be late.
ANSWER_SECONDS = 120.0
# vLLM's log says that its engine's process has failed, whereupon vLLM ends. It does not always: once it held a build
# for the 900 s that a start may take. Where it has not ended after so long, it is not waited for.
ENGINE_FAILED, FAILED_SECONDS = "EngineCore failed to start", 20.0
SERVED_NAME = "model"
# How many of the largest log-probabilities a server may be asked for.
LOGPROBS = 20
LOG_FOLLOWS = "Last lines of its log:"
# With which models are proven, and are to be served: the gate compares greedy choices, which sampling defaults of a
# folder would change.
PROVEN_WORDS = ("--generation-config=vllm",)
# How a process of vLLM ends: behind its name, and the mark of an error's line where it logs. Warnings also name errors.
_MARK = r"(?:\([^)]*\) )?(?:ERROR [^\]]*\] )?"
_ERROR = re.compile(rf"^({_MARK})([\w.]*(?:Error|Exception): (?!Engine core init).*)", re.MULTILINE)
# Behind a list of reasons, on lines that have the error's own mark: what Python and vLLM say next.
_NEXT = re.compile(r"Traceback|Process |During handling|The above exception|\(|(?:ERROR|WARNING|INFO) ")
_LISTED = "Reasons:"
# Of an error's line, and with the reasons that follow it, in characters. A server has some ten kernels.
LINE, LINES = 300, 1200
# In the last vLLM keeps what it has found out of its own models' code; else in its home, which goes with each server.
_PASSED_ON = ("PATH", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VLLM_CACHE_ROOT")
# How GPUs of this machine may speak to each other: a host may forbid one of the ways.
_OF_GPUS = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_")


def first_error(log: str) -> str:
    """In a line, with the list of reasons that may follow it on lines of its own; empty where there is none. The
    engine's own process ends first, and what follows is its consequence."""
    found = _ERROR.search(log)
    if not found:
        return ""
    said = found[2].strip()[:LINE]
    reasons = _reasons(log[found.end():], found[1]) if said.endswith(_LISTED) else []
    return f"{said} {'; '.join(reasons)}".strip()[:LINES]


def _reasons(log: str, mark: str) -> list[str]:
    """Those that ``log`` begins with, behind the line of their error. Each has the error's ``mark``."""
    lines = (line.removeprefix(mark) for line in itertools.takewhile(lambda line: line.startswith(mark),
                                                                     log.removeprefix("\n").splitlines()))
    return [" ".join(line.split()) for line in itertools.takewhile(lambda line: line.strip() and not _NEXT.match(line),
                                                                   lines)]


class Vllm(Within):
    """vLLM with one configuration, as :class:`enginewright_builder.running.Running`. Who starts it is a subclass's.

    It takes no code and no sampling defaults from its model's folder, and nothing from a hub. Errors carry the end of
    its log.
    """

    def __init__(self, arguments: ServerArguments, *, ready_seconds: float) -> None:
        self.arguments, self.ready_seconds = arguments.checked(), ready_seconds
        self.start_seconds, self.version = 0.0, ""
        self._address = ""
        self._http: httpx.AsyncClient | None = None

    @property
    def http_url(self) -> str:
        return f"http://{self._address}"

    async def metrics(self) -> str:
        """Raises :class:`TransientError` ``ServerUnavailable``."""
        return (await self._get("/metrics")).text

    @abstractmethod
    async def memory_bytes(self) -> int:
        """Resident memory of its processes. Of a GPU's it is unknown here."""

    async def stop(self) -> None:
        """Ends the server and its engine's process, whatever state they are in."""
        if self._http is not None:
            await self._http.aclose()
        await self._end()

    def last_words(self) -> str:
        return f"{LOG_FOLLOWS}\n{process.last_lines(self._log())}"

    def words(self) -> list[str]:
        """Of its command line behind the model's folder, but for where it listens."""
        return [f"--served-model-name={SERVED_NAME}", f"--max-logprobs={LOGPROBS}",
                f"--shutdown-timeout={STOP_SECONDS:.0f}", *PROVEN_WORDS, *self.arguments.words()]

    def variables(self) -> dict[str, str]:
        """Of its environment, whatever else is there."""
        return {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
                "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(IDLE_SECONDS), **self.arguments.environment()}

    @abstractmethod
    async def _begin(self, port: int) -> None:
        """Has it started at ``port`` of the loopback."""

    @abstractmethod
    def _status(self) -> int | None:
        """With which it ended by itself; None before."""

    @abstractmethod
    def _log(self) -> str:
        """Its end at least; empty where there is none."""

    @abstractmethod
    async def _end(self) -> None:
        """Safe to call twice, and where nothing began."""

    async def _start(self) -> None:
        (port,) = free_ports(1)
        self._address = f"{HOST}:{port}"
        began = time.monotonic()
        await self._begin(port)
        self._http = httpx.AsyncClient(base_url=self.http_url, trust_env=False, timeout=ANSWER_SECONDS)
        failed = math.inf
        while not await self._ready():
            if (status := self._status()) is not None:  # its port may be another server's
                raise self._failure(f"vLLM ended with status {status}")
            now = time.monotonic()
            if ENGINE_FAILED in self._log():
                failed = min(failed, now)
            if now - failed > FAILED_SECONDS:
                raise self._failure("vLLM's engine failed, and vLLM did not end")
            if now - began > self.ready_seconds:
                raise self._failure(f"vLLM was not ready within {self.ready_seconds:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
        self.start_seconds = time.monotonic() - began
        self.version = str((await self._get("/version")).json()["version"])

    async def _get(self, path: str) -> httpx.Response:
        try:
            return (await self._client.get(path)).raise_for_status()
        except httpx.HTTPError as error:
            raise TransientError("ServerUnavailable", f"the server at {self.http_url} does not answer {path}: "
                                 f"{type(error).__name__}", remedy="read the server's own log") from error

    async def _ready(self) -> bool:
        try:
            return (await self._client.get("/health", timeout=2.0)).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _failure(self, problem: str) -> BuilderError:
        words = self.last_words()
        if cause := first_error(self._log()):
            problem = f"{problem}: {cause}"
        if "address already in use" in words.lower():
            return TransientError("PortTaken", f"{problem}: a port was taken meanwhile", remedy="it is tried again")
        return UserError("ServerLoadFailed", f"{problem}. {words}", field="spec.engine",
                         value=" ".join(self.arguments.words()),
                         remedy="read the log lines: most often the device lacks the memory or the kernels that the "
                                "settings ask for, or vLLM does not know the model's architecture")

    @property
    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            raise RuntimeError("the server was not started")
        return self._http


class VllmServer(Vllm):
    """vLLM with the model in ``folder``, as a child process; ``draft`` has the model that proposes tokens, where the
    arguments ask for one. Of this process's environment it gets no credentials."""

    def __init__(self, folder: Path, arguments: ServerArguments, *, ready_seconds: float = READY_SECONDS,
                 draft: Path | None = None) -> None:
        super().__init__(arguments, ready_seconds=ready_seconds)
        self.folder, self.draft = folder, draft
        self._scratch = tempfile.TemporaryDirectory(prefix="enginewright-vllm-", ignore_cleanup_errors=True)
        self._child: asyncio.subprocess.Process | None = None
        self.log_file = Path(self._scratch.name) / "vllm.log"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the server was not started")
        return self._child.pid

    async def memory_bytes(self) -> int:
        return process.resident_bytes(self.pid)

    def command(self, port: int) -> list[str]:
        """``-S``: of this interpreter's own packages none are on the path."""
        return [sys.executable, "-s", "-S", "-m", "vllm.entrypoints.cli.main", "serve", str(self.folder.resolve()),
                *with_draft(self.words(), str(self._link)), f"--host={HOST}", f"--port={port}"]

    def environment(self) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_OF_GPUS)}
        return {**passed, "HOME": self._scratch.name, "PYTHONPATH": str(packages()), **self.variables()}

    @property
    def _link(self) -> Path:
        """To the draft: vLLM takes some names of folders for other methods of speculation."""
        return Path(self._scratch.name) / DRAFT_FOLDER

    async def _begin(self, port: int) -> None:
        if self.draft is not None:
            self._link.symlink_to(self.draft.resolve())
        with self.log_file.open("wb") as log:
            self._child = await asyncio.create_subprocess_exec(
                *self.command(port), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(),
                cwd=self._scratch.name, start_new_session=True)

    def _status(self) -> int | None:
        return self._child.returncode if self._child else None

    def _log(self) -> str:
        return process.log(self.log_file)

    async def _end(self) -> None:
        if self._child is not None:
            await process.end(self._child, STOP_SECONDS)
        self._scratch.cleanup()
