"""Start programs that outlive us and stop exactly those: a record of each, and a check that a PID is still its."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.packages import SEARCH_PATH
from cluster.settings import OWNER_VARIABLE
from cluster.steps import ClusterError


@dataclass(frozen=True)
class ProcessRecord:
    """Which process it was. A PID alone may belong to another program by now; PID, start and boot together never do.

    Attributes:
        start_ticks: field 22 of /proc/PID/stat, clock ticks since boot.
        boot_id: /proc/sys/kernel/random/boot_id.
    """

    pid: int
    start_ticks: int
    boot_id: str
    argv: tuple[str, ...]


def boot_id() -> str:
    """A value of this boot of the machine alone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def parse_start_ticks(stat: str) -> int:
    """Start time out of a line of /proc/PID/stat, in clock ticks since boot.

    The second field is the program's name in parentheses and may hold spaces and parentheses itself: count from the
    last one.
    """
    return int(stat.rpartition(")")[2].split()[19])


def parse_state(stat: str) -> str:
    """The one-letter state out of a line of /proc/PID/stat; `Z` is a process that has ended."""
    return stat.rpartition(")")[2].split()[0]


def is_alive(record: ProcessRecord) -> bool:
    """Whether the recorded process, and not a later one of the same PID, still runs."""
    if record.boot_id != boot_id():
        return False
    try:
        stat = Path(f"/proc/{record.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return parse_start_ticks(stat) == record.start_ticks and parse_state(stat) != "Z"


def write_record(path: Path, record: ProcessRecord) -> None:
    """Write whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(record)))
    temporary.rename(path)


def read_record(path: Path) -> ProcessRecord | None:
    """The record at `path`, or None where there is none that can be read."""
    try:
        fields = json.loads(path.read_text())
        return ProcessRecord(
            int(fields["pid"]), int(fields["start_ticks"]), str(fields["boot_id"]), tuple(fields["argv"])
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def start(record: Path, argv: Sequence[str], log: Path, owner: Path) -> None:
    """Start `argv` in a session of its own, output appended to `log`, and record it.

    Raises:
        ClusterError: the program cannot be started.
    """
    environment = {**os.environ, "PATH": SEARCH_PATH, OWNER_VARIABLE: str(owner)}
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment
            )
        except OSError as error:
            raise ClusterError(f"cannot start {argv[0]}: {error.strerror}") from error
    ticks = parse_start_ticks(Path(f"/proc/{child.pid}/stat").read_text())
    write_record(record, ProcessRecord(child.pid, ticks, boot_id(), tuple(argv)))
    # It is meant to outlive us; without this, Popen warns at exit that it still runs.
    child.returncode = 0


def stop(record: ProcessRecord, grace_s: float) -> None:
    """End the process: SIGTERM, then SIGKILL after `grace_s` seconds. Nothing happens when it has already ended."""
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        # The handle pins the process: checked after it was taken, it cannot come to mean another one.
        if not is_alive(record):
            return
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            if _wait(handle, wait_s):
                return
    finally:
        os.close(handle)
        # Ours when the caller of start() is still the same process, as in tests.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(record.pid, os.WNOHANG)


def _wait(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def strays(owner: Path) -> Iterable[ProcessRecord]:
    """Running processes that carry `owner` in their environment: started by us, or by what we started."""
    wanted = f"{OWNER_VARIABLE}={owner}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            argv = tuple((entry / "cmdline").read_bytes().decode(errors="replace").split("\0"))
            ticks = parse_start_ticks((entry / "stat").read_text())
        except (OSError, IndexError):
            continue  # ended meanwhile, or another user's
        yield ProcessRecord(int(entry.name), ticks, boot_id(), argv)


def stop_all(records: Iterable[ProcessRecord], grace_s: float) -> None:
    """Stop several at once: all are signalled before the first is waited for."""
    listed = list(records)
    for record in listed:
        if is_alive(record):
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for record in listed:
        stop(record, max(0.0, deadline - time.monotonic()))
