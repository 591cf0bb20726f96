"""``enginewright validate``: is an object good, before anybody applies it? Needs no cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from enginewright.core.labels import API_VERSION, KIND
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec, parse_spec, validate, validate_name

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


def check_files(options: argparse.Namespace) -> int:
    """0 when every OptimisedModel in the files is good, 1 when one is not, 2 when a file cannot be read."""
    found = refused = 0
    for path in options.files:
        try:
            documents = list(_documents(path))
        except (OSError, yaml.YAMLError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return EXIT_USAGE
        for document in documents:
            name, problems = _check(document)
            found += 1
            refused += bool(problems)
            print(f"{path}: {name}: {'refused' if problems else 'good'}")
            for problem in problems:
                print(f"  {problem}")
    if not found:
        print(f"no {API_VERSION} {KIND} in {', '.join(map(str, options.files))}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_REFUSED if refused else 0


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text()
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and document.get("kind") == KIND:
            yield document


def _check(document: dict[str, Any]) -> tuple[str, Sequence[Problem]]:
    name = str((document.get("metadata") or {}).get("name") or "")
    bad_name = validate_name(name)
    spec = parse_spec(document.get("spec") or {})
    problems = validate(spec) if isinstance(spec, Spec) else spec
    return name or "(no name)", [*([bad_name] if bad_name else []), *problems]
