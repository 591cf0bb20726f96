"""A tritonserver with explicit model control, by its address: awaited, asked and measured, started here or
elsewhere."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2 as schema

from enginewright_builder.contract import MemorySeen
from enginewright_builder.errors import BuilderError, UserError
from enginewright_builder.measure.energy import Meter, open_meter
from enginewright_builder.running import Within
from enginewright_builder.triton.gpu_metrics import PINNED_TOTAL, PINNED_USED, TritonMeter, pinned, reading
from enginewright_builder.triton.patience import READY_SECONDS
from enginewright_builder.triton.process import Memory, cpu_seconds_in, memory_in, spike_in
from enginewright_builder.triton.witness import Witness

POLL_SECONDS = 0.05
UNLOAD_SECONDS = 30
LOAD_REMEDY = "read the log lines: most often a library or a backend is missing in the server image"


class HungError(UserError):
    """A load that came to no end within the server's patience."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """``host:port`` of each of the ways in."""

    http: str
    grpc: str
    metrics: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a server takes now. ``spike`` is how much more its processes had resident once, as their own high-water
    marks tell; ``device`` bytes of its GPUs' memory, ``pinned`` bytes in use of its pool of ``pinned_pool`` bytes.
    None: not known, or there is no GPU."""

    memory: Memory = field(default_factory=Memory)
    spike: int = 0
    cpu_seconds: float | None = None
    device: int | None = None
    pinned: int | None = None
    pinned_pool: int | None = None


class Server(Within):
    """An async context manager around the connection to a tritonserver that runs, or is about to.

    It is entered once the server is ready. A missing library makes Triton hang rather than fail, so every wait has a
    deadline. ``headers`` go with every request: they hold the key where the server's model control asks for one.
    ``witness`` tells what cannot be seen from here. ``sliced``: its GPU is a part of one, of which its metrics know
    nothing. ``start_seconds`` is how long the server took from its start until it was ready; 0 where unknown.
    """

    def __init__(self, address: Address, *, ready_seconds: float = READY_SECONDS, gpus: tuple[int, ...] = (),
                 headers: dict[str, str] | None = None, witness: Witness | None = None, sliced: bool = False) -> None:
        self.address, self.ready_seconds, self.gpus, self.sliced = address, ready_seconds, gpus, sliced
        self.start_seconds = 0.0
        self.version = ""
        self._headers = headers or {}
        self._witness = witness
        self._client: httpx.AsyncClient | None = None

    @property
    def grpc_url(self) -> str:
        return self.address.grpc

    @property
    def http_url(self) -> str:
        return f"http://{self.address.http}"

    @property
    def metrics_address(self) -> str:
        """``host:port`` of the Prometheus endpoint, ``/metrics`` on it."""
        return self.address.metrics

    async def _start(self) -> None:
        await self._connect(time.monotonic() + self.ready_seconds)
        self.start_seconds = self._witness.start_seconds() if self._witness else 0.0

    async def _connect(self, deadline: float) -> None:
        self._client = httpx.AsyncClient(base_url=self.http_url, trust_env=False, timeout=10.0, headers=self._headers)
        while True:
            if ended := self._ended():  # asked first: on its port another server may answer
                raise self._failure(ended)
            if await self._ready():
                break
            if time.monotonic() > deadline:
                raise self._late()
            await asyncio.sleep(POLL_SECONDS)
        self.version = (await self._get("/v2")).get("version", "")

    async def _ready(self) -> bool:
        try:
            return (await self._http.get("/v2/health/ready", timeout=2.0)).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False  # its ports open only once all models are loaded

    async def until_ready(self) -> None:
        """Waits for a server that went away. Raises :class:`BuilderError` where it does not come back in time."""
        deadline = time.monotonic() + self.ready_seconds
        while not await self._ready():
            if time.monotonic() > deadline:
                raise self._late()
            await asyncio.sleep(POLL_SECONDS)

    async def load(self, model: str, config: schema.ModelConfig | None = None) -> float:
        """Loads ``model``, with ``config`` instead of its file if given, and returns how many seconds that took.

        A model already loaded is unloaded first: two copies would double memory and hide the cold start. Raises
        :class:`UserError` ``ServerLoadFailed``, of a load that hangs :class:`HungError`.
        """
        await self.unload(model)
        body: dict[str, Any] = {}
        if config is not None:
            body["parameters"] = {"config": json.dumps(json_format.MessageToDict(
                config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))}
        began = time.monotonic()
        try:
            answer = await self._http.post(f"/v2/repository/models/{model}/load", json=body, timeout=self.ready_seconds)
        except httpx.TimeoutException:
            await self._ask_where()
            problem = f"model {model!r} was not loaded within {self.ready_seconds:.0f} s"
            raise self._failure(problem, HungError) from None
        except httpx.TransportError as error:
            raise self._failure(f"tritonserver went away while it loaded {model!r}: {error!r}") from error
        if answer.is_error:
            raise self._failure(f"model {model!r} does not load: {_error_text(answer)}")
        return time.monotonic() - began

    async def unload(self, model: str) -> None:
        """Returns when the model is gone; one that was not loaded is fine."""
        if not await self.model_ready(model):
            return
        await self._ask("POST", f"/v2/repository/models/{model}/unload")
        deadline = time.monotonic() + UNLOAD_SECONDS
        while await self.model_ready(model):
            if time.monotonic() > deadline:
                raise self._failure(f"model {model!r} was not unloaded within {UNLOAD_SECONDS} s")
            await asyncio.sleep(POLL_SECONDS)

    async def model_ready(self, model: str) -> bool:
        return (await self._ask("GET", f"/v2/models/{model}/ready")).status_code == httpx.codes.OK

    async def described(self, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Metadata and configuration of a model that is loaded; empty where it is not."""
        answers = [await self._ask("GET", f"/v2/models/{model}{path}") for path in ("", "/config")]
        metadata, config = ({} if answer.is_error else dict(answer.json()) for answer in answers)
        return metadata, config

    async def statistics(self, model: str) -> dict[str, Any]:
        """``/v2/models/M/stats`` of the one version: cumulative since the model was loaded."""
        stats = await self._get(f"/v2/models/{model}/stats")
        return dict(stats["model_stats"][0])

    async def metrics(self) -> str:
        answer = await self._ask("GET", f"http://{self.metrics_address}/metrics")
        return answer.raise_for_status().text

    async def memory_bytes(self) -> int:
        """Memory of its GPUs that is in use, as it reports: of the whole devices, so nothing else may run on them.
        Without a GPU what its witness says, since Triton knows the memory of the machine alone. 0 where unknown."""
        if not self.gpus:
            return await self._witness.memory_bytes() if self._witness else 0
        return 0 if self.sliced else reading(await self.metrics()).memory_bytes or 0

    @property
    def seen_by(self) -> MemorySeen:
        """What :meth:`usage` looks at."""
        return "container"

    async def usage(self) -> Usage:
        """Of the host what its witness says, of whole GPUs what its own metrics say."""
        processes = await self._witness.processes() if self._witness else ""
        page = await self._gpu_page()
        return Usage(memory=memory_in(processes), spike=spike_in(processes),
                     cpu_seconds=cpu_seconds_in(processes) if processes else None,
                     device=reading(page).memory_bytes if self.gpus and not self.sliced else None,
                     pinned=pinned(page, PINNED_USED), pinned_pool=pinned(page, PINNED_TOTAL))

    async def _gpu_page(self) -> str:
        """Its metrics, where it has GPUs and answers: what is measured beside them goes on."""
        try:
            return await self.metrics() if self.gpus else ""
        except (httpx.HTTPError, BuilderError):
            return ""

    def meter(self) -> Meter | None:
        """Of its devices: its own metrics, as this process may have no device. None where nothing is metered."""
        if not self.gpus:
            return open_meter(())
        return None if self.sliced else TritonMeter(self.metrics_address)

    async def stop(self) -> None:
        """Ends the connection. Safe to call twice."""
        if self._client is not None:
            await self._client.aclose()

    def last_words(self) -> str:
        """What follows an error's message: the end of the server's log, or where to find it."""
        return f"The log of the server at {self.address.http} says more."

    def _ended(self) -> str:
        """That the server has ended, in words; empty while it may still come up."""
        return ""

    async def _get(self, path: str) -> dict[str, Any]:
        return dict((await self._ask("GET", path)).raise_for_status().json())

    async def _ask(self, method: str, path: str) -> httpx.Response:
        """Asks once more where the connection breaks: one broken connection ends no build. For requests that do no harm
        twice. Raises :class:`UserError` ``ServerLoadFailed``."""
        try:
            return await self._http.request(method, path)
        except httpx.TransportError:
            await asyncio.sleep(POLL_SECONDS)  # of a server that has ended the process is seen to have
        try:
            return await self._http.request(method, path)
        except httpx.TransportError as error:
            raise self._failure(self._ended() or f"tritonserver does not answer {path}: {error!r}") from error

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise RuntimeError("the server was not started")
        return self._client

    def _late(self) -> BuilderError:
        return UserError("ServerDidNotStart",
                         f"the tritonserver at {self.address.http} was not ready within {self.ready_seconds:.0f} s",
                         field="spec.serving.image", value=self.address.http,
                         remedy="read the server's own log: most often the image lacks a library, or is for another "
                                "device or architecture")

    async def _ask_where(self) -> None:
        """Of a server that hangs: lets its processes write to its log what they are doing, where that can be had."""

    def _failure(self, problem: str, kind: type[UserError] = UserError) -> BuilderError:
        return kind("ServerLoadFailed", f"{problem}. {self.last_words()}", field="spec.serving", value=self._place,
                    remedy=LOAD_REMEDY)

    @property
    def _place(self) -> str:
        """What an error names."""
        return self.address.http


def _error_text(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text
