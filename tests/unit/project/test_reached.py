"""That what ships is used by it: studies and their rules live in studies/, what tests alone need in tests/support."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (ROOT / "operator/enginewright", ROOT / "operator/enginewright_simulation",
            ROOT / "builders/enginewright_builder")
# Studies and benchmarks measure what ships, and may take more of it than it does.
USERS = (*PACKAGES, ROOT / "hack", ROOT / "studies")
# What Triton's Python backend calls.
CALLED_FROM_OUTSIDE = {"TritonPythonModel"}
# As programs and options are written: `import main`, `--middleware=renewing.Renewing`.
NAMED = re.compile(r"(?:\bimport |=\w+\.)(\w+)")
ANY = ""
Name = tuple[str, str]  # of a module, and of what it defines


def test_some_command_reaches_every_module_of_the_operator() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    graph = grimp.build_graph("enginewright", "enginewright_simulation", cache_dir=None)
    starts = [name for name in (script.partition(":")[0] for script in scripts) if name in graph.modules]
    reached = set(starts).union(*map(graph.find_upstream_modules, starts))
    # A package is reached by what is in it; `python -m` by itself.
    plain = {name for name in graph.modules if not graph.find_children(name) and not name.endswith(".__main__")}
    assert plain - reached == set()


@dataclass
class Module:
    """``imported`` has what each name in it may stand for: a module and a name there."""

    name: str
    tree: ast.Module
    imported: dict[str, set[Name]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    self.imported[one.asname or one.name].add((node.module, one.name))

    def defined(self) -> Iterator[str]:
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name

    def used(self) -> Iterator[Name]:
        """Names, and attributes: of any module where it is known only at run time. A function
        that only calls itself is not used."""
        for top in self.tree.body:
            own = getattr(top, "name", None)
            for node in ast.walk(top):
                if isinstance(node, ast.Name) and node.id != own:
                    yield from self.imported.get(node.id, {(self.name, node.id)})
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    yield from ((f"{module}.{name}", node.attr) for module, name in
                                self.imported.get(node.value.id, ()))
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
                    yield ANY, node.attr
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from ((ANY, name) for name in NAMED.findall(node.value))


def modules_of(folders: Iterable[Path]) -> dict[str, Module]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*.py"):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
            found[name] = Module(name, ast.parse(path.read_text()))
    return found


def test_no_function_or_class_of_what_ships_is_there_for_tests_alone() -> None:
    modules = modules_of(USERS)

    def origins(name: Name) -> set[Name]:
        """Where it is defined: a package may hand on what its modules define."""
        handed_on = modules[name[0]].imported.get(name[1], set()) if name[0] in modules else set()
        return set[Name]().union(*map(origins, handed_on)) or {name}

    used = set[Name]().union(*(origins(name) for name in {name for one in modules.values() for name in one.used()}))
    pages = " ".join(path.read_text() for package in PACKAGES for path in package.rglob("*.jinja"))
    anywhere = {name for module, name in used if module == ANY} | set(re.findall(r"\w+", pages)) | CALLED_FROM_OUTSIDE
    unused = {f"{module.name}.{name}" for module in modules_of(PACKAGES).values() for name in module.defined()
              if (module.name, name) not in used and name not in anywhere}
    assert unused == set()
