"""Marks these tests, and gives them a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.control_plane import control_plane, kube, kubelet, models, namespace, operator_kubeconfig

__all__ = ["control_plane", "kube", "kubelet", "models", "namespace", "operator_kubeconfig"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # As text: of the ten thousand tests of all folders that come by, paths would take half a second.
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
