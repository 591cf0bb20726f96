"""Only the recorded process is ever stopped, whatever has taken its PID since."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import process
from cluster.settings import OWNER_VARIABLE
from cluster.steps import ClusterError

SLEEP = (sys.executable, "-c", "import signal; print('up', end='', flush=True); signal.pause()")
STUBBORN = (
    sys.executable, "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', end='', flush=True); signal.pause()",
)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours to stop."""
    child = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL)
    yield child
    child.kill()
    child.wait()


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """What a failed test started ends with it."""
    yield
    process.stop_all(process.strays(tmp_path), grace_s=0)


def record_of(pid: int) -> process.ProcessRecord:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return process.ProcessRecord(pid, process.parse_start_ticks(stat), process.boot_id(), ("x",))


def start(tmp_path: Path, argv: tuple[str, ...] = SLEEP) -> process.ProcessRecord:
    """Start a program and wait until it has set up what it does with signals: it says so on its output."""
    output = tmp_path / "output"
    os.mkfifo(output)
    reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    process.start(tmp_path / "p.json", argv, output, tmp_path)
    os.set_blocking(reader, True)
    # All that it writes, hence no end of line: unbuffered, Python writes that apart, and would die of a closed pipe.
    assert os.read(reader, 2) == b"up"
    os.close(reader)
    record = process.read_record(tmp_path / "p.json")
    assert record is not None
    return record


@pytest.mark.parametrize("name", ["etcd", "a b", "x) R 1 (y", ")(", "((("])
def test_start_ticks_are_found_behind_any_program_name(name: str) -> None:
    fields = ["S", *(str(number) for number in range(4, 53))]
    assert process.parse_start_ticks(f"17 ({name}) {' '.join(fields)}\n") == 22


def test_a_started_process_is_recorded_alive_in_a_session_of_its_own_and_stopped(tmp_path: Path) -> None:
    record = start(tmp_path)
    assert process.is_alive(record)
    assert os.getsid(record.pid) == record.pid
    process.stop(record, grace_s=10)
    assert not process.is_alive(record)


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    record = start(tmp_path, STUBBORN)
    process.stop(record, grace_s=0.05)
    assert not process.is_alive(record)


def test_a_recycled_pid_is_not_signalled(bystander: subprocess.Popen[bytes]) -> None:
    earlier = dataclasses.replace(record_of(bystander.pid), start_ticks=1)
    assert not process.is_alive(earlier)
    process.stop(earlier, grace_s=0)
    process.stop_all([earlier], grace_s=0)
    assert bystander.poll() is None


def test_a_record_of_another_boot_is_not_signalled(bystander: subprocess.Popen[bytes]) -> None:
    earlier = dataclasses.replace(record_of(bystander.pid), boot_id="another")
    process.stop(earlier, grace_s=0)
    assert bystander.poll() is None


def test_stopping_what_has_ended_is_no_error(tmp_path: Path) -> None:
    record = start(tmp_path)
    process.stop(record, grace_s=10)
    process.stop(record, grace_s=10)


def test_several_are_stopped_together(tmp_path: Path) -> None:
    records = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        records.append(start(tmp_path / name))
    process.stop_all(records, grace_s=10)
    assert not any(process.is_alive(record) for record in records)


def test_strays_are_found_by_their_environment_alone(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    record = start(tmp_path)
    try:
        assert [stray.pid for stray in process.strays(tmp_path)] == [record.pid]
        assert list(process.strays(tmp_path / "other")) == []
        assert f"{OWNER_VARIABLE}={tmp_path}".encode() in Path(f"/proc/{record.pid}/environ").read_bytes()
    finally:
        process.stop(record, grace_s=10)


def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL)
    record = record_of(child.pid)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
    assert not process.is_alive(record)
    child.wait()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "start_ticks": 1, "boot_id": "", "argv": []}']
)
def test_an_unreadable_record_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    assert process.read_record(path) is None


def test_a_record_survives_the_round_trip(tmp_path: Path) -> None:
    record = process.ProcessRecord(7, 8, "boot", ("a", "b"))
    process.write_record(tmp_path / "p.json", record)
    assert process.read_record(tmp_path / "p.json") == record
    assert json.loads((tmp_path / "p.json").read_text())["pid"] == 7


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="/nowhere/etcd"):
        process.start(tmp_path / "p.json", ["/nowhere/etcd"], tmp_path / "log", tmp_path)
