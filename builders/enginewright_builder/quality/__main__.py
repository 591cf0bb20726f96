"""Keeps the monitor running, and itself whatever becomes of it: ``python3 -m enginewright_builder.quality …``.

It is the first process of a container beside the server, and a pod is ready only while all its containers run: a
monitor that fails must never take its replica out of service. Standard library only, so that little can go wrong.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

CGROUP = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of cgroup v2, and of v1
# Of the container's memory that is left to this process, to the kernel and to what libraries relocate.
LEFT, LEAST_LEFT = 0.15, 48 << 20
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 1.0, 300.0, 600.0
# What follows the word is of the monitor of language models.
GENERATE = "generate"
# Each thread of these libraries reserves memory of its own, by the number of the machine's cores.
QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """What the monitor may allocate; 0 where the container has no limit or does not say."""
    for name in LIMITS:
        try:
            limit = int((cgroup / name).read_text())
        except (OSError, ValueError):
            continue
        return max(1, limit - max(int(limit * LEFT), LEAST_LEFT))
    return 0


def confine(memory: int) -> None:
    """Of this process: of requests nothing may ever lie on a disk, and what needs too much memory fails by an
    exception. The kernel could end the container with it, and a pod whose container is down gets no requests."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def keep_running(command: Sequence[str], stop: threading.Event, memory: int) -> None:
    """Starts ``command`` again whenever it ends, after ever longer pauses, until ``stop``."""
    pause = FIRST_PAUSE
    while not stop.is_set():
        began = time.monotonic()
        try:
            with subprocess.Popen(command, env={**os.environ, **QUIET}, preexec_fn=lambda: confine(memory)) as child:
                while child.poll() is None and not stop.wait(0.5):
                    pass
                child.terminate()
            if not stop.is_set():
                allowed = f", with {memory >> 20} MiB of spec.quality.resources.limits.memory" if memory else ""
                print(f"the monitor ended with status {child.returncode}{allowed}", file=sys.stderr, flush=True)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"the monitor cannot be started: {error}", file=sys.stderr, flush=True)
        pause = FIRST_PAUSE if time.monotonic() - began > SETTLED else min(LONGEST_PAUSE, 2 * pause)
        stop.wait(pause)


def monitor(words: Sequence[str]) -> list[str]:
    """The module that does the work, and its words."""
    if words[:1] == [GENERATE]:
        return ["enginewright_builder.quality.prompted", *words[1:]]
    return ["enginewright_builder.quality.monitor", *words]


def main() -> int:
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # Without the working folder among the places of modules, as this process was started.
    keep_running([sys.executable, "-P", "-m", *monitor(sys.argv[1:])], stop, memory_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
