"""A real tritonserver as a child process: started on free loopback ports, awaited, measured, and always ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2 as schema

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.triton import device_memory, install, process
from enginewright_builder.triton.ports import HOST, free_ports

POLL_SECONDS = 0.05
UNLOAD_SECONDS = 30
# Nothing is in flight when we stop it: Triton's own drain, in steps of seconds, need not be sat out.
STOP_SECONDS = 1.5
# SIGKILL takes effect at once, except on a process that the kernel holds.
KILL_SECONDS = 10.0
LOG_TAIL_LINES = 40


class TritonServer:
    """An async context manager around one tritonserver with explicit model control.

    Python-backend models get shared memory regions under a name of this server's own, so that it can clear what a
    killed stub leaves. A missing library makes Triton hang rather than fail, so every wait has a deadline, and the
    error carries the tail of Triton's log. ``options`` are given to the server as they are.
    """

    def __init__(self, repository: Path, *, models: tuple[str, ...] = (), ready_seconds: float = 120.0,
                 gpus: tuple[int, ...] = (), options: tuple[str, ...] = ()) -> None:
        self.repository, self.models, self.ready_seconds, self.gpus = repository, models, ready_seconds, gpus
        self.options = options
        self.start_seconds = 0.0
        self.version = ""
        self._prefix = f"enginewright-{uuid.uuid4().hex[:12]}-"
        self._scratch = tempfile.TemporaryDirectory(prefix="enginewright-triton-")
        self._child: asyncio.subprocess.Process | None = None
        self._client: httpx.AsyncClient | None = None
        self._free_before: int | None = None
        self.log_file = Path(self._scratch.name) / "tritonserver.log"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.stop()

    @property
    def grpc_url(self) -> str:
        return f"{HOST}:{self._ports['grpc']}"

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self._ports['http']}"

    @property
    def metrics_address(self) -> str:
        """``host:port`` of the Prometheus endpoint, ``/metrics`` on it."""
        return f"{HOST}:{self._ports['metrics']}"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the server was not started")
        return self._child.pid

    async def _start(self) -> None:
        self._ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
        installation = install.find(Path(self._scratch.name))
        self._free_before = self._free_bytes()
        began = time.monotonic()
        with self.log_file.open("wb") as log:
            self._child = await asyncio.create_subprocess_exec(
                str(installation.binary), *self._arguments(installation), stdin=asyncio.subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **installation.environment}, start_new_session=True)
        self._client = httpx.AsyncClient(base_url=self.http_url, trust_env=False, timeout=10.0)
        await self._wait_ready(began + self.ready_seconds)
        self.start_seconds = time.monotonic() - began
        self.version = (await self._get("/v2")).get("version", "")

    def _arguments(self, installation: install.Installation) -> list[str]:
        arguments = {
            "model-repository": str(self.repository), "model-control-mode": "explicit",
            "http-address": HOST, "http-port": self._ports["http"], "grpc-address": HOST,
            "grpc-port": self._ports["grpc"], "metrics-address": HOST, "metrics-port": self._ports["metrics"],
            "allow-gpu-metrics": str(bool(self.gpus)).lower(), "exit-timeout-secs": 5,
            "backend-config": f"python,shm-region-prefix-name={self._prefix}",
        }
        if installation.backends is not None:
            arguments["backend-directory"] = str(installation.backends)
        # The configuration is complete; completing it would start one more stub a model only to ask it.
        return ["--disable-auto-complete-config", *(f"--{key}={value}" for key, value in arguments.items()),
                *(f"--load-model={model}" for model in self.models), *self.options]

    async def _wait_ready(self, deadline: float) -> None:
        while True:
            if self._child is not None and self._child.returncode is not None:
                raise self._failure(f"tritonserver ended with status {self._child.returncode}")
            try:
                if (await self._http.get("/v2/health/ready", timeout=2.0)).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass  # its ports open only once all models are loaded
            if time.monotonic() > deadline:
                raise self._failure(f"tritonserver was not ready within {self.ready_seconds:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    async def load(self, model: str, config: schema.ModelConfig | None = None, *,
                   deadline_seconds: float | None = None) -> float:
        """Loads ``model``, with ``config`` instead of its file if given, and returns how many seconds that took.

        A model already loaded is unloaded first: two copies would double memory and hide the cold start. Raises
        :class:`UserError` ``ServerLoadFailed``.
        """
        await self.unload(model)
        body: dict[str, Any] = {}
        if config is not None:
            body["parameters"] = {"config": json.dumps(json_format.MessageToDict(
                config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))}
        began = time.monotonic()
        limit = deadline_seconds or self.ready_seconds
        try:
            answer = await self._http.post(f"/v2/repository/models/{model}/load", json=body, timeout=limit)
        except httpx.TimeoutException:
            raise self._failure(f"model {model!r} was not loaded within {limit:.0f} s") from None
        except httpx.TransportError as error:
            raise self._failure(f"tritonserver went away while it loaded {model!r}: {error!r}") from error
        if answer.is_error:
            raise self._failure(f"model {model!r} does not load: {_error_text(answer)}")
        return time.monotonic() - began

    async def unload(self, model: str) -> None:
        """Returns when the model is gone; one that was not loaded is fine."""
        if not await self.model_ready(model):
            return
        await self._http.post(f"/v2/repository/models/{model}/unload")
        deadline = time.monotonic() + UNLOAD_SECONDS
        while await self.model_ready(model):
            if time.monotonic() > deadline:
                raise self._failure(f"model {model!r} was not unloaded within {UNLOAD_SECONDS} s")
            await asyncio.sleep(POLL_SECONDS)

    async def model_ready(self, model: str) -> bool:
        return (await self._http.get(f"/v2/models/{model}/ready")).status_code == httpx.codes.OK

    async def statistics(self, model: str) -> dict[str, Any]:
        """``/v2/models/M/stats`` of the one version: cumulative since the model was loaded."""
        stats = await self._get(f"/v2/models/{model}/stats")
        return dict(stats["model_stats"][0])

    async def metrics(self) -> str:
        answer = await self._http.get(f"http://{self.metrics_address}/metrics")
        return answer.raise_for_status().text

    def memory_bytes(self) -> int:
        """Device memory that it took since it was started where it has GPUs, 0 where CUDA does not tell; else resident
        memory of its processes."""
        if not self.gpus:
            return process.resident_bytes(self.pid)
        free = self._free_bytes()
        return 0 if free is None or self._free_before is None else max(0, self._free_before - free)

    def _free_bytes(self) -> int | None:
        return device_memory.free_bytes(self.gpus) if self.gpus else None

    async def stop(self) -> None:
        """Ends the server and its stubs, whatever state they are in. Safe to call twice."""
        if self._client is not None:
            await self._client.aclose()
        if self._child is not None:
            group = self._child.pid  # it leads a session of its own, so the group is exactly its process tree
            if self._child.returncode is None:
                self._child.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await self._child.wait()
                except TimeoutError:
                    process.kill_group(group)
            process.kill_group(group)
            await self._child.wait()
            await _emptied(group)
            process.remove_shared_memory(self._prefix)
        self._scratch.cleanup()

    def log_tail(self) -> str:
        try:
            text = self.log_file.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])

    async def _get(self, path: str) -> dict[str, Any]:
        return dict((await self._http.get(path)).raise_for_status().json())

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise RuntimeError("the server was not started")
        return self._client

    def _failure(self, problem: str) -> UserError | TransientError:
        tail = self.log_tail()
        if "address already in use" in tail.lower():
            return TransientError("PortTaken", f"{problem}: a port was taken meanwhile", remedy="it is tried again")
        return UserError("ServerLoadFailed", f"{problem}. Last lines of its log:\n{tail}", field="spec.serving",
                         value=str(self.repository),
                         remedy="read the log lines: most often a library or a backend is missing in the server image")


async def _emptied(group: int) -> None:
    """Waits until nobody of a killed process group runs any more: a stub that outlives its server by a moment would
    hold its memory while the next one is measured."""
    for _ in range(round(KILL_SECONDS / POLL_SECONDS)):
        if not process.living(group):
            return
        await asyncio.sleep(POLL_SECONDS)


def _error_text(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text
