"""Takes down what end-to-end tests leave, while the next ones run: most of it is waiting."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from cluster.provider import choose
from demo.shell import Kube


class Janitor:
    """As a context; its end waits for all that was given to it, and raises what went wrong."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="janitor")
        self._given: list[Future[None]] = []

    def remove(self, namespace: str, claims: Sequence[str] = ()) -> None:
        """``namespace`` with all that is in it, and the volumes of ``claims``; returns at once."""
        self._given.append(self._pool.submit(self._remove, namespace, claims))

    def finish(self) -> None:
        """Waits until there is nothing left to remove. Raises :class:`~demo.shell.StepError` or
        :class:`~cluster.steps.ClusterError`."""
        while self._given:
            self._given.pop(0).result()

    def _remove(self, namespace: str, claims: Sequence[str]) -> None:
        self._kube.remove_namespace(namespace)  # its pods, too: a volume stays while one mounts it
        for claim in claims:
            choose().delete_volume(namespace, claim)

    def __enter__(self) -> Janitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        try:
            self.finish()
        finally:
            self._pool.shutdown()
