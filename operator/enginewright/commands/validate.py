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

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


class FileError(Exception):
    """A file cannot be read, or holds nothing of ours; the message names it."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML or JSON; - is standard input")
    command.set_defaults(act=check_files)


def check_files(options: argparse.Namespace) -> int:
    """0 when every OptimisedModel in the files is good, 1 when one is not, 2 when a file cannot be read. What is valid
    and seldom meant is a warning, and changes no status."""
    refused = False
    try:
        found = list(models_in(options.files))
    except FileError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    for path, document in found:
        name, problems, warnings = _check(document)
        refused |= bool(problems)
        print(f"{path}: {name}: {'refused' if problems else 'valid'}")
        for problem in problems:
            print(f"  {problem}")
        for warning in warnings:
            print(f"  warning: {warning}")
    return EXIT_REFUSED if refused else 0


def models_in(files: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every OptimisedModel, with its file. Raises :class:`FileError`, also where there is none at all."""
    found = False
    for path in files:
        try:
            documents = list(_documents(path))
        except FileNotFoundError as error:
            raise FileError(f"{path} does not exist") from error
        except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError for dates that no calendar has
            raise FileError(f"{path}: {error}") from error
        for document in documents:
            found = True
            yield path, document
    if not found:
        raise FileError(f"no {API_VERSION} {KIND} in {', '.join(map(str, files))}")


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Raises :class:`FileError` for what is nearly one of ours, beside what reading raises."""
    text = sys.stdin.read() if str(path) == "-" else path.read_text()
    for document in yaml.safe_load_all(text):
        if not isinstance(document, dict):
            continue
        version, kind = (str(document.get(name, "")) for name in ("apiVersion", "kind"))
        if kind == KIND and version in (API_VERSION, ""):
            yield document
        elif version.startswith(f"{GROUP}/") or difflib.get_close_matches(kind.lower(), [KIND.lower()], cutoff=0.8):
            raise FileError(f"{path}: has apiVersion: {version}, kind: {kind}; write apiVersion: {API_VERSION}, "
                            f"kind: {KIND}")


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
