"""``enginewright validate``: is an object good, before anybody applies it? Needs no cluster."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from enginewright.core.labels import API_VERSION, GROUP, KIND
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec, parse_spec, validate, validate_name
from enginewright.core.spec.cautions import Caution, cautions
from enginewright.core.spec.fleet import classes_of
from enginewright.core.spec.validate import validate_member_name
from enginewright_builder.contract import printable

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


class FileError(Exception):
    """A file cannot be read, or holds nothing of ours; the message names it."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML or JSON; - is standard input")
    command.set_defaults(act=check_files)


def check_files(options: argparse.Namespace) -> int:
    """0 when every OptimisedModel in the files is good, 1 when one is not, 2 when a file cannot be read or holds what
    is nearly one: all files are reported first. What is valid and seldom meant is a warning, and changes no status."""
    refused, unread, models = False, False, 0
    for path in options.files:
        found = list(_read(path))
        for one in found:
            if isinstance(one, FileError):
                unread = True
                print(printable(str(one)), file=sys.stderr)
            else:
                models += 1
                refused |= _report(path, one)
        if not found:
            print(printable(f"{path}: holds no {API_VERSION} {KIND}"), file=sys.stderr)
    return EXIT_USAGE if unread or not models else EXIT_REFUSED if refused else 0


def _report(path: Path, document: dict[str, Any]) -> bool:
    """Whether it is refused."""
    name, problems, warnings = _check(document)
    said = [f"{path}: {name}: {'refused' if problems else 'valid'}", *(f"  {problem}" for problem in problems),
            *(f"  warning: {warning}" for warning in warnings)]
    print(printable("\n".join(said)))  # a manifest may come from anywhere
    return bool(problems)


def models_in(files: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every OptimisedModel, with its file. Raises :class:`FileError`, also where there is none at all."""
    found = False
    for path in files:
        for one in _read(path):
            if isinstance(one, FileError):
                raise one
            found = True
            yield path, one
    if not found:
        raise FileError(f"no {API_VERSION} {KIND} in {', '.join(map(str, files))}")


def _read(path: Path) -> Iterator[dict[str, Any] | FileError]:
    """Each OptimisedModel of a file, and in its place what is nearly one or cannot be read."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and (one := _ours(path, document)):
                yield one
    except FileNotFoundError:
        yield FileError(f"{path} does not exist")
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError for dates that no calendar has
        yield FileError(f"{path}: {error}")


def _ours(path: Path, document: dict[str, Any]) -> dict[str, Any] | FileError | None:
    version, kind = (str(document.get(name, "")) for name in ("apiVersion", "kind"))
    if kind == KIND and version in (API_VERSION, ""):
        return document
    if version.startswith(f"{GROUP}/") or difflib.get_close_matches(kind.lower(), [KIND.lower()], cutoff=0.8):
        return FileError(f"{path}: has apiVersion: {version}, kind: {kind}; write apiVersion: {API_VERSION}, "
                         f"kind: {KIND}")
    return None


def _check(document: dict[str, Any]) -> tuple[str, Sequence[Problem], Sequence[Caution]]:
    name = str((document.get("metadata") or {}).get("name") or "")
    bad_name = validate_name(name)
    spec = parse_spec(document.get("spec") or {})
    problems = [*validate(spec), *_long(name, spec)] if isinstance(spec, Spec) else spec
    warnings = cautions(spec) if isinstance(spec, Spec) else ()
    return name or "(no name)", [*([bad_name] if bad_name else []), *problems], warnings


def _long(name: str, spec: Spec) -> Iterator[Problem]:
    """Names of objects that a fleet is to have and that are too long."""
    for entry in classes_of(spec) if name else ():
        if problem := validate_member_name(name, entry):
            yield problem
