"""Who watches reads something every few seconds, whatever takes its time: a program, an import, a pod."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO, cast

QUIET_SECONDS = 4.0


class _Output:
    """Standard output that knows when the last was said; ``others`` are programs that talk on the terminal by
    themselves."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.said, self.others = stream, time.monotonic(), 0

    def write(self, text: str) -> int:
        self.said = time.monotonic()
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Within the block a line says how long it has been going on, each time that nothing was said for a while."""
    output, ended = _Output(sys.stdout), threading.Event()
    ticker = threading.Thread(target=_tick, args=(output, ended), daemon=True)
    with contextlib.redirect_stdout(cast(TextIO, output)):
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            ticker.join()


@contextlib.contextmanager
def others_talk() -> Iterator[None]:
    """Within the block a program is under way that says by itself what it does."""
    output = sys.stdout
    if not isinstance(output, _Output):
        yield
        return
    output.others += 1
    try:
        yield
    finally:
        output.others -= 1
        output.said = time.monotonic()


def _tick(output: _Output, ended: threading.Event) -> None:
    began = time.monotonic()
    while not ended.wait(max(0.05, output.said + QUIET_SECONDS - time.monotonic())):
        if output.others:
            output.said = time.monotonic()
        elif time.monotonic() - output.said >= QUIET_SECONDS:
            print(f"  … {time.monotonic() - began:.0f} s", file=cast(TextIO, output), flush=True)
