"""That what ships in the operator is used by it: studies and their rules live in studies/."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[3]


def test_some_command_reaches_every_module_of_the_operator() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    graph = grimp.build_graph("enginewright", "enginewright_simulation", cache_dir=None)
    starts = [name for name in (script.partition(":")[0] for script in scripts) if name in graph.modules]
    reached = set(starts).union(*map(graph.find_upstream_modules, starts))
    # A package is reached by what is in it; `python -m` by itself.
    plain = {name for name in graph.modules if not graph.find_children(name) and not name.endswith(".__main__")}
    assert plain - reached == set()
