"""Marks these tests, and gives them a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.control_plane import (
    another_control_plane,
    control_plane,
    kube,
    kubelet,
    models,
    namespace,
    operator_kubeconfig,
    without_crd,
)
from support.operators import operator

__all__ = ["another_control_plane", "control_plane", "kube", "kubelet", "models", "namespace", "operator",
           "operator_kubeconfig", "without_crd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
