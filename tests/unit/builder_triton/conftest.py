from __future__ import annotations

from collections.abc import Callable

import pytest

from enginewright_builder.report import BuildReport
from enginewright_builder.sweep import Point
from support import reports


@pytest.fixture
def make_point() -> Callable[..., Point]:
    return reports.make_point


@pytest.fixture
def report() -> BuildReport:
    return reports.build_report()
