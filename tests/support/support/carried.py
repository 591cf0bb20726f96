"""What modules of this repository import, held against the packages of a machine that has few.

``python -m support.carried NAMES MODULE…`` imports each module where nothing but the standard library and NAMES
(separated by commas) is there, and prints the errors as JSON.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, TypeGuard

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PLACES = tuple(ROOT / folder for folder in ("hack", "studies", "builders", "operator", "tests/support", "tests"))
# In the standard library of Python 3.11, but not of the 3.12 that the GPU machine has.
_REMOVED = {"asynchat", "asyncore", "distutils", "imp", "smtpd"}
# The second is of the platform, so that no list has its name.
STANDARD = sys.stdlib_module_names - _REMOVED | {sysconfig._get_sysconfigdata_name()}  # type: ignore[attr-defined]


def listed(*lists: Path) -> dict[str, set[str]]:
    """Packages of requirements files, with the names to import: the package's own, or those in its comment."""
    found = dict[str, set[str]]()
    for line in "\n".join(one.read_text() for one in lists).splitlines():
        requirement, _, names = line.partition("#")
        if package := re.split(r"[=<>\[; ]", requirement)[0]:
            found[package] = set(names.split()) or {package.replace("-", "_").lower()}
    return found


def required(packages: Iterable[str]) -> set[str]:
    """Names to import of all that ``packages`` require, as far as they are installed here."""
    found, waiting = set[str](), list(packages)
    while waiting:
        package = canonicalize_name(waiting.pop())
        if package not in found:
            found.add(package)
            with contextlib.suppress(metadata.PackageNotFoundError):
                wanted = map(Requirement, metadata.requires(package) or ())
                waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return {name for name, owners in metadata.packages_distributions().items()
            if found & {canonicalize_name(owner) for owner in owners}}


@functools.cache
def file_of(module: str) -> Path | None:
    """Of a module of this repository."""
    paths = (place.joinpath(*module.split(".")) for place in PLACES)
    return next((file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")
                 if file.is_file()), None)


def reached(roots: Iterable[str]) -> dict[str, set[str]]:
    """All modules of this repository that ``roots`` import, at once or later, with all that each of them imports."""
    found, waiting = dict[str, set[str]](), list(roots)
    while waiting:
        module = waiting.pop()
        if module in found or (file := file_of(module)) is None:
            continue
        found[module] = set(_imported_by(file))
        for name in (module, *found[module]):
            parts = name.split(".")
            waiting += [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return found


@functools.cache
def _imported_by(file: Path) -> frozenset[str]:
    return frozenset(_imports(ast.parse(file.read_text())))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Of functions too, and where a name is a text: of ``import_module`` and of ``python -m``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ValueError(f"line {node.lineno}: write the module's whole name")
            yield node.module
            yield from (name for alias in node.names if file_of(name := f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Call) and "import_module" in _called(node.func):
            yield ast.literal_eval(node.args[0])
        elif isinstance(node, ast.Constant) and _is_module(node.value):
            yield node.value


def _called(function: ast.expr) -> str:
    """The last name of what is called."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_module(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(r"\w+(\.\w+)+", value) is not None and file_of(value) is not None


def foreign(modules: Mapping[str, set[str]], known: set[str]) -> list[tuple[str, str]]:
    """Each module of ``modules`` with a package that it imports and that is not among the ``known`` names."""
    return sorted({(module, top) for module, names in modules.items() for name in names
                   if (top := name.partition(".")[0]) not in known | STANDARD and file_of(name) is None})


class Only:
    """Finds modules of this repository, of the standard library and of ``known``; others are as if not installed."""

    def __init__(self, known: set[str]) -> None:
        self._known, self._finders = known | STANDARD, list(sys.meta_path)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._known and file_of(name) is None:
            return None
        specs = (finder.find_spec(name, path, target) for finder in self._finders)
        return next((spec for spec in specs if spec is not None), None)

    find_distributions = staticmethod(PathFinder.find_distributions)


def import_errors(modules: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """By module, in a process of its own where no package is but those of the ``known`` names."""
    path = os.pathsep.join(map(str, PLACES[:-1]))
    done = subprocess.run([sys.executable, "-m", "support.carried", ",".join(sorted(known)), *modules],
                          env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(known: str, *modules: str) -> None:
    sys.meta_path[:] = [Only(set(known.split(",")))]
    errors = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a library raises where it lacks another
            errors[module] = f"{type(error).__name__}: {error}"
    print(json.dumps(errors))


if __name__ == "__main__":
    main(*sys.argv[1:])
