"""What kubectl's watch tells of objects, kept. To ask again and again takes an eighth of a second of a core each time,
which builds and replicas on the same cores lack."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any, Self

from demo.shell import TRIES, Kube, StepError

# Before another watch begins where one has ended, as the apiserver ends each after a while.
PAUSE_SECONDS = 0.5


class Followed:
    """Objects of ``kind`` in ``namespace``, by name, while a block runs; ``which`` are further words of kubectl's: a
    name, or ``-l`` and a selector."""

    def __init__(self, kube: Kube, kind: str, namespace: str, *which: str) -> None:
        self._kube = kube
        self._words = ("get", kind, *which, "-n", namespace, "--watch", "--output-watch-events", "-o", "json")
        self._known: dict[str, dict[str, Any]] = {}
        self._problem, self._heard = "", False
        self._begun, self._over = threading.Event(), threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, daemon=True, name=f"watch of {kind}")

    def now(self, timeout: float) -> list[dict[str, Any]]:
        """Those that are there, once the apiserver has told of any. Raises :class:`StepError` after ``timeout`` seconds
        without a word, and where kubectl cannot begin."""
        if not self._begun.wait(timeout):
            raise StepError(f"'kubectl {' '.join(self._words)}' said nothing within {timeout:.0f} s")
        if not self._heard:
            raise StepError(self._problem)
        return list(self._known.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()
            if self._process is not None:
                self._process.terminate()
        self._thread.join()

    def _follow(self) -> None:
        tries = TRIES
        while not self._over.is_set():
            self._watch()
            tries -= 1
            if not self._heard and not tries:
                self._begun.set()
                return
            self._over.wait(PAUSE_SECONDS)

    def _watch(self) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._process = self._kube.spawn(*self._words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with self._process as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                self._keep(json.loads(line))
            self._problem = process.stderr.read().strip()

    def _keep(self, event: dict[str, Any]) -> None:
        name = event["object"]["metadata"]["name"]
        known = {**self._known, name: event["object"]}
        if event["type"] == "DELETED":
            del known[name]
        self._known, self._heard = known, True
        self._begun.set()
