"""A real tritonserver as a child process: started on free loopback ports, and always ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
import uuid
from pathlib import Path

from enginewright_builder.contract import MemorySeen
from enginewright_builder.errors import BuilderError, TransientError, UserError
from enginewright_builder.measure.energy import Meter, open_meter
from enginewright_builder.pod import device
from enginewright_builder.triton import install, process
from enginewright_builder.triton.client import Address, Server, Usage
from enginewright_builder.triton.gpu_metrics import PINNED_TOTAL, PINNED_USED, pinned
from enginewright_builder.triton.patience import READY_SECONDS
from enginewright_builder.triton.ports import HOST, free_ports

# In which a process writes its stacks.
STACKS_SECONDS = 0.5


class TritonServer(Server):
    """A server of our own with explicit model control, ended when the context is left.

    Python-backend models get shared memory regions under a name of this server's own, so that it can clear what a
    killed stub leaves. Errors carry the tail of Triton's log. ``options`` are given to the server as they are.
    """

    def __init__(self, repository: Path, *, models: tuple[str, ...] = (), ready_seconds: float = READY_SECONDS,
                 gpus: tuple[int, ...] = (), options: tuple[str, ...] = ()) -> None:
        super().__init__(Address(http="", grpc="", metrics=""), ready_seconds=ready_seconds, gpus=gpus)
        self.repository, self.models, self.options = repository, models, options
        self._prefix = f"enginewright-{uuid.uuid4().hex[:12]}-"
        self._scratch = tempfile.TemporaryDirectory(prefix="enginewright-triton-")
        self._child: asyncio.subprocess.Process | None = None
        self._free_before: int | None = None
        self.log_file = Path(self._scratch.name) / "tritonserver.log"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the server was not started")
        return self._child.pid

    async def _start(self) -> None:
        http, grpc, metrics = (f"{HOST}:{port}" for port in free_ports(3))
        self.address = Address(http=http, grpc=grpc, metrics=metrics)
        installation = install.find(Path(self._scratch.name))
        self._free_before = self._free_bytes()
        began = time.monotonic()
        with self.log_file.open("wb") as log:
            self._child = await asyncio.create_subprocess_exec(
                str(installation.binary), *self._arguments(installation), stdin=asyncio.subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **installation.environment}, start_new_session=True)
        await self._connect(began + self.ready_seconds)
        self.start_seconds = time.monotonic() - began

    def _arguments(self, installation: install.Installation) -> list[str]:
        arguments = {
            "model-repository": str(self.repository), "model-control-mode": "explicit",
            "http-address": HOST, "http-port": _port(self.address.http), "grpc-address": HOST,
            "grpc-port": _port(self.address.grpc), "metrics-address": HOST,
            "metrics-port": _port(self.address.metrics),
            "allow-gpu-metrics": str(bool(self.gpus)).lower(), "exit-timeout-secs": 5,
            "backend-config": f"python,shm-region-prefix-name={self._prefix}",
        }
        if installation.backends is not None:
            arguments["backend-directory"] = str(installation.backends)
        # The configuration is complete; completing it would start one more stub a model only to ask it.
        return ["--disable-auto-complete-config", *(f"--{key}={value}" for key, value in arguments.items()),
                *(f"--load-model={model}" for model in self.models), *self.options]

    async def memory_bytes(self) -> int:
        """Device memory that it took since it was started where it has GPUs, 0 where CUDA does not tell; else resident
        memory of its processes."""
        return self._device_bytes() or 0 if self.gpus else process.resident_bytes(self.pid)

    @property
    def seen_by(self) -> MemorySeen:
        return "processes"

    async def usage(self) -> Usage:
        """Of its process tree, and of its GPUs what they have less since it was started."""
        page = await self._gpu_page()
        return Usage(memory=process.memory(self.pid), spike=process.spike_bytes(self.pid),
                     cpu_seconds=process.cpu_seconds(self.pid), device=self._device_bytes(),
                     pinned=pinned(page, PINNED_USED), pinned_pool=pinned(page, PINNED_TOTAL))

    def meter(self) -> Meter | None:
        """This process has the devices as well, and the driver's own counters are finer than Triton's."""
        return open_meter(self.gpus)

    def _device_bytes(self) -> int | None:
        """None without a GPU, and where CUDA does not tell."""
        free = self._free_bytes()
        return None if free is None or self._free_before is None else max(0, self._free_before - free)

    def _free_bytes(self) -> int | None:
        return device.free_bytes(self.gpus) if self.gpus else None

    async def stop(self) -> None:
        """Ends the server and its stubs, whatever state they are in. Safe to call twice."""
        await super().stop()
        if self._child is not None:
            # Nothing is in flight, and what its stubs leave is cleared below: Triton's own end takes five seconds.
            await process.end(self._child, patience=0.0)
            process.remove_shared_memory(self._prefix)
        self._scratch.cleanup()

    def last_words(self) -> str:
        return f"Last lines of its log:\n{self.log_tail()}"

    def log_tail(self) -> str:
        return process.log_tail(self.log_file)

    def _ended(self) -> str:
        if self._child is None or self._child.returncode is None:
            return ""
        return f"tritonserver ended with status {self._child.returncode}"

    def _late(self) -> BuilderError:
        return self._failure(f"tritonserver was not ready within {self.ready_seconds:.0f} s")

    async def _ask_where(self) -> None:
        """The Python backend's processes answer this signal with their stacks, as model.py has it; one that is not so
        far ends by it."""
        for child in process.descendants(self.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGUSR1)
        await asyncio.sleep(STACKS_SECONDS)

    def _failure(self, problem: str, kind: type[UserError] = UserError) -> BuilderError:
        if "address already in use" in self.log_tail().lower():
            return TransientError("PortTaken", f"{problem}: a port was taken meanwhile", remedy="it is tried again")
        return super()._failure(problem, kind)

    @property
    def _place(self) -> str:
        return str(self.repository)


def _port(address: str) -> str:
    return address.rpartition(":")[2]
