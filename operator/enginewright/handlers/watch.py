"""kopf's part: watching. It runs in a thread and an event loop of its own, because it cancels tasks that it did not
start and takes over signals; it writes nothing onto anybody's objects.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import kopf
import structlog
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from enginewright.clients.credentials import load_configuration
from enginewright.clients.resources import Resource
from enginewright.handlers.translate import Body, Translator
from enginewright.observe.fields import Raw
from enginewright.observe.keys import Key
from enginewright.observe.kinds import SELECTORS, WATCHED
from enginewright.reconcile.health import Watching

_TASK: Final = "watcher for "
_LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 15.0
log = structlog.get_logger(__name__)


class NoMemories(ResourceMemories):
    """kopf remembers each object that it watches, for handlers that go on where they have stopped: some 5 KB a model.
    The operator has handlers of events alone, which only put a key into a queue. The class is what
    ``kopf.operator(memories=…)`` takes; kopf does not export it."""

    async def recall(self, raw_body: Any, **how: Any) -> ResourceMemory:
        return await super().recall(raw_body, **{**how, "ephemeral": True})


class Watcher:
    """``saw`` is called with every event, and ``wake`` with every key that the event is news for, and whether the spec
    of that object has not been looked at yet; both in the watching thread. ``ended`` is called there when kopf stops,
    with what it died of, None when it was asked to."""

    def __init__(
        self, translator: Translator, *, wake: Callable[[Key, bool], None],
        ended: Callable[[BaseException | None], None],
        saw: Callable[[Resource, str | None, Raw], None] = lambda *_: None, namespaces: Sequence[str] = (),
        kubeconfig: str | None = None,
    ) -> None:
        self._translator = translator
        self._wake = wake
        self._saw = saw
        self._ended = ended
        self._namespaces = tuple(namespaces)
        self._kubeconfig = kubeconfig
        self._stop = threading.Event()
        self._reported = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when kopf has stopped, or after ``STOP_SECONDS``: it holds nothing that must be saved."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def watching(self) -> Watching:
        """Which watches run. kopf does not start one again that was cancelled, so their tasks are counted by name."""
        expected = frozenset(
            f"{resource.plural}@{namespace}" for resource in WATCHED for namespace in self._namespaces or ("*",)
        )
        if not self._thread.is_alive() or self._loop is None:
            return Watching(self._thread.is_alive(), expected, frozenset())
        try:
            tasks = asyncio.all_tasks(self._loop)
        except RuntimeError:
            # The set of tasks changed a thousand times while it was read: kopf is alive at any rate.
            return Watching(True, expected, expected)
        return Watching(True, expected, frozenset(_watched(task.get_name()) for task in tasks) & expected)

    def tasks(self) -> int:
        """Tasks of kopf's loop that have not ended."""
        return len(asyncio.all_tasks(self._loop)) if self._loop is not None else 0

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as caught:
            error = caught
            log.exception("kopf has died")
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        """Once, for the first that sees it."""
        if not self._reported:
            self._reported = True
            self._ended(error)

    async def _operate(self) -> None:
        self._loop = asyncio.get_running_loop()
        registry = kopf.OperatorRegistry()
        self._register(registry)
        # Begun before kopf, which ends the tasks that were begun after it.
        supervision = asyncio.create_task(self._supervise())
        try:
            await kopf.operator(
                registry=registry,
                settings=settings(),
                memories=NoMemories(),
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=self._stop,
            )
        finally:
            # A thread of the loop's executor waits for the flag, and the loop's end waits for that thread: were it not
            # set when kopf dies by itself, this would never end.
            self._stop.set()
            supervision.cancel()

    async def _supervise(self) -> None:
        """kopf ends when a watch fails for good, but may then wait forever for the other watches, which it cancelled
        while they asked for new credentials: its death is detected here."""
        whole_at: float | None = None
        while not self._stop.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            now, missing = time.monotonic(), self.watching().missing
            if self._stop.is_set():
                return
            if not missing:
                whole_at = now
            elif whole_at is not None and now - whole_at > STOP_SECONDS:
                error = RuntimeError(f"there is no watch on {', '.join(missing)} any more, but kopf goes on")
                log.error("kopf has died", error=str(error))
                self._tell(error)
                return

    def _register(self, registry: kopf.OperatorRegistry) -> None:
        kopf.on.login(registry=registry)(self._login)
        for resource in WATCHED:
            handler = self._handler(resource)
            group, _, version = resource.api_version.rpartition("/")
            kopf.on.event(group, version, resource.plural, registry=registry, id=resource.plural)(handler)

    def _handler(self, resource: Resource) -> Callable[..., Any]:
        async def enqueue(body: Body, event: kopf.RawEvent, **_: Any) -> None:
            self._saw(resource, event["type"], event["object"])
            asked = self._translator.asked(resource, body)
            for key in self._translator.keys(resource, body):
                self._wake(key, asked)

        return enqueue

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """The same credentials as our own client's. Asked again whenever the apiserver rejects them."""
        configuration = await load_configuration(self._kubeconfig)
        header = await configuration.get_api_key_with_prefix("BearerToken") or ""
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert or None,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file or None,
            private_key_path=configuration.key_file or None,
            username=configuration.username or None,
            password=configuration.password or None,
            token=header.split(" ", 1)[-1] or None,
            proxy_url=configuration.proxy or None,
        )


class NoDiffs(kopf.DiffBaseStorage):
    """kopf keeps no copy of an object to find out what has changed in it: a handler of events does not ask."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


class Backoffs:
    """Seconds between tries of a request, without end: where kopf gives one up, it ends and all its watches with it,
    those of other namespaces, too."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0), itertools.repeat(30.0))


def settings() -> kopf.OperatorSettings:
    """Why each: docs/adr/0001-reconcile-loop-on-kopf.md."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    chosen.process.ultimate_exiting_timeout = None
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    chosen.watching.reconnect_backoff = 1.0
    chosen.watching.chunk_size = 500
    chosen.queueing.idle_timeout = 1.0
    chosen.persistence.diffbase_storage = NoDiffs()
    chosen.queueing.error_delays = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 60)
    chosen.networking.request_timeout = 30.0
    chosen.networking.error_backoffs = Backoffs()
    for resource, selector in SELECTORS.items():
        group = resource.api_version.rpartition("/")[0]
        chosen.watching.label_selectors[group, resource.plural] = selector
    return chosen


def _watched(task_name: str) -> str:
    """``watcher for pods.v1@None`` to ``pods@*``; empty for other tasks."""
    if not task_name.startswith(_TASK):
        return ""
    resource, _, namespace = task_name.removeprefix(_TASK).rpartition("@")
    return f"{resource.split('.')[0]}@{'*' if namespace == 'None' else namespace}"
