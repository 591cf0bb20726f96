"""A real node with the operator installed by its chart, one namespace a test, and tiny real models on its volumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.node import bench, furnished, images, janitor, kube, model_files, stock, stocked_bench

__all__ = ["bench", "furnished", "images", "janitor", "kube", "model_files", "stock", "stocked_bench"]
E2E = pytest.mark.e2e
# Whichever test comes first has its fixtures start the node, build images and the engines of the others.
PATIENCE = pytest.mark.timeout(2400)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(E2E)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(PATIENCE)
