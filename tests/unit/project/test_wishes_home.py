"""A fleet steers the objects of its classes by annotations, which one module reads (docs/adr/0033)."""

from __future__ import annotations

import ast
from pathlib import Path

import enginewright.core

CORE = Path(enginewright.core.__file__).parent
WISHES = {"HELD_BACK", "AFTER", "LEAST_REPLICAS"}
# The fleet writes them, and looks whether a user took one away.
WRITERS = {"fleet/agreement.py", "fleet/departure.py", "fleet/turns.py"}
READER = "context.py"


def named(source: str) -> set[str]:
    """Names of ``labels.NAME`` in ``source``."""
    return {node.attr for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "labels"}


def test_one_module_reads_what_a_fleet_wishes() -> None:
    found = {path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if named(path.read_text()) & WISHES}
    assert found - WRITERS == {READER}
    assert found >= WRITERS, "a writer that is none any more goes from the list"


def test_a_name_is_seen_wherever_it_stands() -> None:
    assert named("from x import labels\nif obj.annotations.get(labels.AFTER): pass") == {"AFTER"}
