"""A server's processes: memory, end, and what they leave in logs and shared memory. Linux, through /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LOG_TAIL_LINES = 40
# SIGKILL takes effect at once, except on a process that the kernel holds.
KILL_SECONDS, POLL_SECONDS = 10.0, 0.05
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - not a temporary file of ours: where POSIX shared memory lives
# proc(5), smaps_rollup: proportional shares, whose anonymous and shared parts the kernel cannot drop and read again.
_PSS = re.compile(r"^(Pss|Pss_Anon|Pss_Shmem):\s+(\d+) kB$", re.MULTILINE)
_STATUS = re.compile(r"^(VmHWM|VmRSS|RssAnon|RssShmem):\s+(\d+) kB$", re.MULTILINE)
# proc(5), stat: the name in parentheses, the state, ten numbers, then ticks in user mode and in the kernel.
_TICKS = re.compile(r"^\d+ \(.*\) \S (?:-?\d+ ){10}(\d+) (\d+) ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one or more processes; pages that they share count once. ``held`` is the part of ``resident`` that the
    kernel cannot take back without swap: anonymous and shared memory, where the rest are pages of files."""

    resident: int = 0
    held: int = 0


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
    return memory(pid).resident


def memory(pid: int) -> Memory:
    """Of the process tree."""
    found = [_memory(process) for process in descendants(pid)]
    return Memory(resident=sum(one.resident for one in found), held=sum(one.held for one in found))


def memory_in(rollups: str) -> Memory:
    """Of all processes whose ``smaps_rollup`` are in the text, one after another."""
    sizes = dict.fromkeys(("Pss", "Pss_Anon", "Pss_Shmem"), 0)
    for name, kilobytes in _PSS.findall(rollups):
        sizes[name] += int(kilobytes) << 10
    return Memory(resident=sizes["Pss"], held=sizes["Pss_Anon"] + sizes["Pss_Shmem"])


def spike_bytes(pid: int) -> int:
    """Of the process tree, as :func:`spike_in`."""
    return spike_in("\n".join(_read(process, "status") for process in descendants(pid)))


def spike_in(statuses: str) -> int:
    """How much more memory the processes whose ``status`` are in the text had resident once than they have now, each by
    its own high-water mark: more than all of them had at one time, where they had it at different times."""
    found = _sizes(statuses)
    return max(0, found.get("VmHWM", 0) - found.get("VmRSS", 0))


def cpu_seconds(pid: int) -> float:
    """Of the process tree, as :func:`cpu_seconds_in`."""
    return cpu_seconds_in("".join(_read(process, "stat") for process in descendants(pid)))


def cpu_seconds_in(stats: str) -> float:
    """That the processes whose ``stat`` are in the text have computed since each began."""
    return sum(int(user) + int(kernel) for user, kernel in _TICKS.findall(stats)) / os.sysconf("SC_CLK_TCK")


def kill_group(group: int, sig: signal.Signals = signal.SIGKILL) -> None:
    """Signals a process group that the caller created; one already gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sig)


async def end(child: asyncio.subprocess.Process, patience: float) -> None:
    """Ends a server that leads a session of its own, so that the group is exactly its process tree: politely, and by
    SIGKILL after ``patience`` seconds, without which it is killed at once. Returns when none of it runs any more: a
    process that outlives its server by a moment would hold its memory while the next one is measured."""
    group = child.pid
    if child.returncode is None and patience > 0:
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


def _memory(pid: int) -> Memory:
    if rollup := _read(pid, "smaps_rollup"):
        return memory_in(rollup)
    sizes = _sizes(_read(pid, "status"))
    return Memory(resident=sizes.get("VmRSS", 0), held=sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0))


def _sizes(statuses: str) -> dict[str, int]:
    """In bytes, added up over processes."""
    found: dict[str, int] = {}
    for name, kilobytes in _STATUS.findall(statuses):
        found[name] = found.get(name, 0) + (int(kilobytes) << 10)
    return found


def _read(pid: int, file: str) -> str:
    """Empty where it may not be read, or the process has ended."""
    try:
        return (PROC / str(pid) / file).read_text()
    except OSError:
        return ""
