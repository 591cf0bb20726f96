"""Takes samples of a tritonserver's live traffic: asks for a few traces at a time, and picks up what it wrote.

``trace_count`` is Triton's own bound: it counts down and stops, so a monitor that has died leaves no tap open, and the
folder never holds more than was last asked for. Files are removed as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import client
from pathlib import Path
from typing import Final

from enginewright_builder.quality.trace import TRACE_LEVEL, Expected, Traced, UnreadableTraceError, read_traces

HOST: Final = "127.0.0.1"
ANSWER_SECONDS: Final = 5.0
# Text of one request's tensors that is looked at: an image of 224 x 224 has 1.5 MB.
MOST_BYTES: Final = 16 << 20


class TapClosedError(Exception):
    """The server does not take trace settings: it is still loading, or its trace extension is off."""


class Tap:
    """``share`` of requests (0 to 1) are traced, ``per_minute`` at most. ``folder`` is where the server's trace file
    lies; ``skipped`` counts what could not be read. Where a cache stands before the model, ``computed`` is what the
    engine behind it is called: hits are traced as well, and left out. ``expected``: what clients send and get."""

    def __init__(self, model: str, folder: Path, *, share: float, per_minute: int, port: int,
                 computed: str = "", expected: Expected | None = None) -> None:
        self._path = f"/v2/models/{model}/trace/setting"
        self._folder, self._port, self._computed = folder, port, computed
        self._expected = expected
        self._rate, self._per_second = max(1, round(1 / share)), per_minute / 60
        self._allowed = 0.0
        self._odd: set[Path] = set()
        self.skipped = 0

    def open(self, seconds: float) -> int:
        """Lets the server trace as many requests as ``seconds`` since the last time allow; what it did not use of those
        before is lost. Returns how many. Raises :class:`TapClosedError`."""
        self._allowed = min(self._allowed % 1 + self._per_second * seconds, max(1.0, self._per_second * seconds))
        count = int(self._allowed)
        if count:
            self._set({"trace_level": TRACE_LEVEL, "trace_rate": str(self._rate), "trace_count": str(count),
                       "log_frequency": "1"})
        return count

    def drain(self) -> Iterator[Traced]:
        """What was traced since the last time. A file without an end is left once, as it may be half-written. Others
        are removed before they are parsed: what cannot be is not met again, nor do its tensors stay."""
        odd, self._odd = self._odd, set()
        for path in sorted(self._folder.iterdir()):
            text = _bytes(path)
            if not text.endswith(b"]") and path not in odd:
                self._odd.add(path)
                continue
            path.unlink(missing_ok=True)
            try:
                found = list(read_traces(text, self._computed, self._expected))
            except (UnreadableTraceError, MemoryError, RecursionError):
                self.skipped += 1
                continue
            finally:
                del text
            yield from found

    def _set(self, settings: dict[str, object]) -> None:
        connection = client.HTTPConnection(HOST, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", self._path, json.dumps(settings), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, client.HTTPException) as error:
            raise TapClosedError(f"the server does not answer: {error!r}") from error
        finally:
            connection.close()
        if answer.status != client.OK:
            raise TapClosedError(f"the server does not trace: it answered {answer.status}; its log says why")


def _bytes(path: Path) -> bytes:
    """Nothing where it is too large or cannot be read."""
    try:
        return path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
    except (OSError, MemoryError):
        return b""
