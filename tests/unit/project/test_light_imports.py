"""What the operator imports: nothing that its image does not have, nothing slow."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import carried

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"torch", "onnx", "onnxruntime", "numpy", "tritonclient", "transformers", "scipy", "tensorrt"}


@pytest.mark.parametrize("module", ["enginewright.cli", "enginewright_builder.contract",
                                    "enginewright_builder.examine"])
def test_imports_nothing_heavy(module: str) -> None:
    assert {name.partition(".")[0] for name in imported(module)} & HEAVY == set()


def imported(module: str) -> set[str]:
    """In a process of its own: this one has imported everything."""
    program = f"import json, sys, {module}; print(json.dumps(list(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT / "builders")))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["enginewright_builder.building", "enginewright_builder.proving"])
def test_a_build_imports_no_statistics_that_it_does_not_use(module: str) -> None:
    """``scipy.stats`` takes half a second in each half of a build."""
    assert "scipy.stats" not in imported(module)


def test_a_builder_imports_no_client_before_it_asks_a_web_server_or_a_registry() -> None:
    """``httpx`` takes a fifth of the start of ``enginewright-build``."""
    assert "httpx" not in imported("enginewright_builder.cli")


def test_the_operators_image_has_all_that_its_programs_import() -> None:
    """All commands, the plugin, and of the builder what verifies and shows engines in replicas' pods."""
    programs = ["enginewright.handlers.watch", "enginewright.activator.serve",
                "enginewright.plugin.main", "enginewright.cli", "enginewright_builder.verify",
                "enginewright_builder.show"]
    known = carried.required(carried.listed(ROOT / "requirements" / "operator.in"))
    assert carried.import_errors(programs, known) == {}
    assert set(carried.import_errors(programs, known - {"kopf"})) == {"enginewright.handlers.watch"}


def test_the_operator_names_only_programs_of_the_builder_that_there_are() -> None:
    """No import shows what the operator writes into manifests: it starts these modules of the builder by name."""
    named = {name for file in sorted((ROOT / "operator").rglob("*.py")) for name in _programs(file)}
    assert named == {"ask", "examine", "quality", "show", "verify"}
    for name in named:
        file = carried.file_of(f"enginewright_builder.{name}")
        assert file is not None, name
        program = file.with_name("__main__.py") if file.name == "__init__.py" else file
        assert 'if __name__ == "__main__":' in program.read_text(), name


def _programs(file: Path) -> Iterator[str]:
    """As whole strings, and what ``core.manifests.common.module`` is called with."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := re.fullmatch(r"enginewright_builder\.([a-z_.]+)", node.value):
                yield match[1]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "module":
            yield ast.literal_eval(node.args[0])
