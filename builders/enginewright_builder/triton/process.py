"""A server's processes: memory, end, and what they leave in logs and shared memory. Linux, through /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

PROC = Path("/proc")
LOG_TAIL_LINES = 40
# SIGKILL takes effect at once, except on a process that the kernel holds.
KILL_SECONDS, POLL_SECONDS = 10.0, 0.05
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - not a temporary file of ours: where POSIX shared memory lives


def descendants(pid: int) -> list[int]:
    """``pid`` and all processes below it that live now."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        queue.extend(children.get(current, []))
    return found


def resident_bytes(pid: int) -> int:
    """Memory of the process tree. Pages shared among its processes count once (proportional set size)."""
    return sum(_resident(process) for process in descendants(pid))


def kill_group(group: int, sig: signal.Signals = signal.SIGKILL) -> None:
    """Signals a process group that the caller created; one already gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sig)


async def end(child: asyncio.subprocess.Process, patience: float) -> None:
    """Ends a server that leads a session of its own, so that the group is exactly its process tree: politely, and by
    SIGKILL after ``patience`` seconds. Returns when none of it runs any more: a process that outlives its server by a
    moment would hold its memory while the next one is measured."""
    group = child.pid
    if child.returncode is None:
        child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                await child.wait()
        except TimeoutError:
            kill_group(group)
    kill_group(group)
    await child.wait()
    for _ in range(round(KILL_SECONDS / POLL_SECONDS)):
        if not living(group):
            return
        await asyncio.sleep(POLL_SECONDS)


def log(file: Path) -> str:
    """A server's; empty where there is none."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def log_tail(file: Path) -> str:
    """The last lines of a server's log; empty where there is none."""
    return last_lines(log(file))


def last_lines(text: str) -> str:
    """Of a log, as many as an error's message has."""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def living(group: int) -> list[int]:
    """Processes of a group that still run. Zombies do not: an orphan is reaped whenever its new parent gets to it."""
    return [int(entry.name) for entry in PROC.iterdir()
            if entry.name.isdigit() and (fields := _fields(entry)) and fields[0] != "Z" and int(fields[2]) == group]


def remove_shared_memory(prefix: str) -> None:
    """Removes the shared memory regions of one server: a killed Python backend leaves them behind."""
    if not SHARED_MEMORY.is_dir():
        return
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def _parent(entry: Path) -> int | None:
    fields = _fields(entry)
    return int(fields[1]) if fields else None


def _fields(entry: Path) -> list[str]:
    """State, parent, process group and what else follows the name in ``/proc/PID/stat`` (proc(5)); empty for a process
    that has ended meanwhile."""
    try:
        # The name in parentheses may itself hold spaces and parentheses: split after the last one.
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _resident(pid: int) -> int:
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            lines = (PROC / str(pid) / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0
