"""Messages are copied: a command in one names the namespace that it is for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import enginewright
from enginewright.core.commands import kubectl

ROOT = Path(enginewright.__file__).parent
PLACES = [*(ROOT / "core" / "decide").rglob("*.py"), ROOT / "plugin" / "words.py", ROOT / "plugin" / "verbs.py"]
COMMAND = re.compile(r"kubectl (?!describe nodes|get (?:deploy|om) -A)[a-z]")


def texts(source: str) -> list[str]:
    """All strings but docstrings, adjacent ones as one."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.append(node.value)
    return found


def test_the_namespace_is_where_kubectl_and_its_plugins_take_it() -> None:
    assert kubectl("optimisedmodel promote minilm", "prod") == "kubectl optimisedmodel promote minilm -n prod"


def test_no_message_has_a_command_of_its_own_making() -> None:
    assert len(PLACES) > 40
    bare = {path.name: said for path in PLACES if (said := list(filter(COMMAND.search, texts(path.read_text()))))}
    assert not bare


def test_one_would_be_found() -> None:
    assert list(filter(COMMAND.search, texts('said = (f"{x}: kubectl " f"logs {y}")')))
