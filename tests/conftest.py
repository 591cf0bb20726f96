"""What holds for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from support.exporter import remember_operators
from support.markers import may_choose

# Before NumPy and PyTorch are imported. Matrices are small here, and threads that wait for a second core beside another
# worker spin. The builder's program sets the policy as well.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# PyTorch's exporter makes objects by the million, which stay: a tenth of its time went into looking through them.
gc.set_threshold(50_000, 20, 20)

# A busy machine is no defect: timing never decides a test. The same examples every time: a run is green or red for what
# changed, not by luck. `make fuzz` looks for new ones.
settings.register_profile("enginewright", deadline=None, derandomize=True)
# For `make test-unit`, which is run often; `make test` takes three times as many.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("fuzz", deadline=None, derandomize=False, max_examples=1000, print_blob=True)
settings.load_profile("enginewright")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which ``-m`` can choose no test are not imported: PyTorch alone takes seconds and half a gigabyte of
    each worker."""
    wanted = str(config.option.markexpr)
    if not wanted or not collection_path.match("test_*.py"):
        return None
    return None if may_choose(wanted, collection_path, Path(__file__).parent) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no collection of garbage need go through it meanwhile or
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup() -> None:
    remember_operators()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Of bytes, which may hold the time at which they were made, as what gzip packs does: the name of the argument, to
    which pytest adds a number. Workers that collected tests of different names would refuse to run any."""
    return argname if isinstance(val, (bytes, bytearray)) else None
