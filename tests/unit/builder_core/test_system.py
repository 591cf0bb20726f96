"""CPUs this process may use, by affinity and by either version of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enginewright_builder.system import available_cpus

USABLE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("files", "cpus"), [
    ({}, USABLE), ({"cpu.max": "max 100000"}, USABLE), ({"cpu.max": "100000 100000"}, 1),
    ({"cpu.max": "20000 100000"}, 1), ({"cpu.max": "10000000 100000"}, USABLE),
    ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, USABLE),
])
def test_quota_cuts_affinity(files: dict[str, str], cpus: int, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available_cpus(tmp_path) == cpus
