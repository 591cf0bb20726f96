"""Each alarm of the chart is fired by a test that asks a real Prometheus, by name, whether it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "charts" / "enginewright" / "files" / "rules.yaml"
TESTS = [*(ROOT / "tests" / "integration").rglob("test_*.py"), *(ROOT / "tests" / "e2e").rglob("test_*.py")]
PREFIX = "Enginewright"
# Alarms that no test fires yet, and why not.
UNFIRED: dict[str, str] = {}


def _alarms() -> set[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"].removeprefix(PREFIX) for group in groups for rule in group["rules"] if "alert" in rule}


def _names(tree: ast.Module) -> Iterator[str]:
    """Strings of a test that starts a Prometheus with the chart's rules."""
    nodes = list(ast.walk(tree))
    starts = any(isinstance(node, ast.ImportFrom) and node.module == "support.prometheus"
                 and any(name.name == "running" for name in node.names) for node in nodes)
    if starts and any(isinstance(node, ast.Name) and node.id in ("at_once", "RULES") for node in nodes):
        yield from (node.value.removeprefix(PREFIX) for node in nodes
                    if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_a_real_prometheus_fires_each_alarm_of_the_chart() -> None:
    named = {name for path in TESTS for name in _names(ast.parse(path.read_text()))}
    alarms = _alarms()
    assert len(alarms) > 20
    assert alarms - named == UNFIRED.keys(), "fire it in tests/integration, or say in UNFIRED why that cannot be"
    assert all(UNFIRED.values())
