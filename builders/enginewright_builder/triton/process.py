"""A server's processes: their memory, their end, and what they leave in shared memory. Linux, through /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

PROC = Path("/proc")
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
