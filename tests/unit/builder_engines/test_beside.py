"""A process beside the builds ends with the build."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enginewright_builder.engines.base import OutOfTimeError
from enginewright_builder.engines.beside import BesideProcess

CHILD = """
import os, sys, time
from enginewright_builder.system import end_with_parent
end_with_parent()
open(sys.argv[1], "w").close()
time.sleep(600)
"""
# It says which process it began, once that is stopped, and waits to be killed.
PARENT = """
import os, sys, time
from pathlib import Path
from enginewright_builder.engines.beside import BesideProcess
folder = Path(sys.argv[1])
ready = folder / "ready"
one = BesideProcess.started([sys.executable, "-c", sys.argv[2], str(ready)], os.environ, folder)
while not ready.exists():
    time.sleep(0.01)
one.pause()
os.waitid(os.P_PID, one.pid, os.WSTOPPED)
print(one.pid, flush=True)
time.sleep(600)
"""
SECONDS = 60


def test_one_that_is_stopped_ends_when_the_build_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), CHILD], stdout=subprocess.PIPE, text=True,
                          env=environment) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([child], [], [], SECONDS)
    os.close(child)
    assert ended


def test_one_that_takes_longer_than_there_is_time_is_waited_for_no_longer_and_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, "-c", f"import time; time.sleep({10 * SECONDS})"]
    one = BesideProcess.started(words, os.environ, tmp_path)
    for seconds in (-1.0, 0.0, 0.1):
        with pytest.raises(OutOfTimeError):
            one.ended(seconds)
        assert one.running
    one.cancel()
    assert not one.running
    assert BesideProcess.started([sys.executable, "-c", ""], os.environ, tmp_path).ended(SECONDS) == (0, "")
