"""Builds measure for no longer than tests need: those in this process by a fixture, which a ``conftest.py`` imports
where tests build, and the program in a process of its own by :func:`short_program`. What a build proves does not hang
on how sure it is which candidate is faster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from enginewright_builder.tensors import Call

# Seconds that the race of candidates and the sweep take, whatever the budget. One point and one batch of the curve are
# measured however little time there is.
RACE, SWEEP = 0.2, 0.5
# Of a sweep: each point's warm-up, each batch of the curve, and requests that find the server idle; plain serving for
# comparison, and ways to join requests; what the processor could do at most, by smaller products and copies; how long
# memory must have stayed level.
SHORT = {"sweep.bench.WARMUP_SECONDS": 0.05, "sweep.bench.CURVE_SECONDS": 0.1, "sweep.curve.ALONE_SECONDS": 0.2,
         "evidence.appraisal.COMPARED_SECONDS": (0.2, 0.2), "triton.memory.LEAST_SECONDS": 0.2,
         "triton.memory.STEADY_SECONDS": 0.2, "measure.ceilings.SECONDS": 0.05, "measure.ceilings._Cpu.side": 512,
         "measure.ceilings._Cpu.copy_bytes": 32 << 20}


@contextmanager
def short() -> Iterator[None]:
    """A closed loop on a small model keeps two processors busy for as long as it is asked for, and a build may have
    more time than a busy machine needs."""
    from enginewright_builder.steps import MEASURE_SECONDS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enginewright_builder.building.MEASURE_SECONDS", dict.fromkeys(MEASURE_SECONDS, (RACE, RACE)))
        patch.setattr("enginewright_builder.proving.SWEEP_SECONDS", (SWEEP, SWEEP))
        for name, seconds in SHORT.items():
            patch.setattr(f"enginewright_builder.{name}", seconds)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_measurements() -> Iterator[None]:
    with short():
        yield


def ten_times(call: Call) -> Call:
    """A source that is timed by this is slower than what is built of it, on any machine, however busy."""
    return lambda: [call() for _ in range(10)][-1]


def short_program(*words: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``enginewright-build`` with these arguments, which ends within 800 s: a tritonserver that hangs while it
    loads is replaced after four minutes."""
    return subprocess.run([sys.executable, "-m", "support.measuring", *map(str, words)], text=True, timeout=800,
                          capture_output=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})})


if __name__ == "__main__":
    from enginewright_builder.__main__ import main

    with short():
        sys.exit(main())
