"""A file in the folder where a program starts becomes a module of it: downloaded Python runs with the rights of who
builds by hand beside it.

``tests/unit/hack_krew/test_krew.py`` has the same attack on the plugin.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.engines.beside import environment
from enginewright_builder.loadgen.scenarios import OFFLINE, Target
from enginewright_builder.loadgen.sut import Drive
from enginewright_builder.mlperf.command import in_a_process

# That the programs below import, and Python's own start of a process.
MODULES = ("argparse.py", "dataclasses.py", "json.py", "multiprocessing.py", "runpy.py", "numpy.py")


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once a module of the current folder has run."""
    mark = tmp_path / "taken"
    stranger = tmp_path / "downloads"
    stranger.mkdir()
    for name in MODULES:
        (stranger / name).write_text(f"open({str(mark)!r}, 'w').close()")
    monkeypatch.chdir(stranger)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as a program that pip installed
    return mark


@pytest.mark.parametrize("worker", ["modelopt_worker", "profile_worker", "torch_ahead"])
def test_a_process_beside_a_build_runs_nothing_of_the_current_folder(worker: str, taken: Path) -> None:
    words = [sys.executable, "-m", f"enginewright_builder.engines.{worker}", "absent.json"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert not taken.exists()
    assert "absent.json" in done.stderr, "it has started, and looked for its job"


async def test_nor_does_the_process_that_loadgen_has(taken: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    task = Drive(url="localhost:1", model="net", rows=[{"x": np.zeros((1, 1), np.float32)}],
                 target=Target(scenario=OFFLINE, value=1.0), folder=tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        await in_a_process(task)
    assert not taken.exists()  # noqa: ASYNC240
