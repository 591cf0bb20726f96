"""``enginewright migrate``: OptimisedModels that still have old names of fields, in files or in the cluster, under
today's. Without ``--write`` it only says what it would change."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from enginewright.clients.errors import ClientError
from enginewright.core.labels import API_VERSION, KIND
from enginewright.core.spec.renames import current, old_names

EXIT_OLD: Final = 1
EXIT_USAGE: Final = 2
STDIN: Final = "-"
JSON = dict[str, Any]


class UnreadableError(Exception):
    """What cannot be read, for people."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="*", type=Path, metavar="FILE",
                         help="manifests, YAML or JSON; - is standard input, written to standard output")
    command.add_argument("--all", action="store_true", help="the objects of the cluster instead of files")
    command.add_argument("--write", action="store_true",
                         help="rewrite the files (their comments go) or the objects; without it, say what would change")
    command.add_argument("--namespace", metavar="NAME", help="with --all: of this namespace only")
    command.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG or ~/.kube/config")
    command.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """0 when no old name is left, 1 when some are and ``--write`` is not given, 2 when something cannot be read or
    written."""
    if options.all == bool(options.files):
        print("enginewright: give either files or --all", file=sys.stderr)
        return EXIT_USAGE
    try:
        found = asyncio.run(_objects(options)) if options.all else sum([_file(path, options) for path in options.files])
    except (UnreadableError, ClientError) as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    if found and not options.write:
        print("Nothing was written. Add --write to do it.", file=sys.stderr)
    return EXIT_OLD if found and not options.write else 0


def _file(path: Path, options: argparse.Namespace) -> int:
    """How many old fields there were. Standard input is always written out."""
    piped = str(path) == STDIN
    try:
        text = sys.stdin.read() if piped else path.read_text()
        documents = list(yaml.safe_load_all(text))
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError for dates that no calendar has
        raise UnreadableError(f"{path}: {error}") from error
    ours = [one for document in documents for one in _models(document)]
    found = sum(_say(f"{path}: {_name(one)}", one) for one in ours)
    if found and options.write:
        for one in ours:
            one["spec"] = current(one["spec"])
        text = _text(documents, as_json=text.lstrip().startswith("{"))
        if not piped:
            path.write_text(text)
    if piped:
        sys.stdout.write(text)
    return found


def _text(documents: list[Any], *, as_json: bool) -> str:
    if as_json and len(documents) == 1:
        return json.dumps(documents[0], indent=2, ensure_ascii=False) + "\n"
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)


def _models(document: Any) -> Iterable[JSON]:
    """Those that ``document`` is or, as a List, holds."""
    if not isinstance(document, dict):
        return []
    inside = document.get("items") if str(document.get("kind", "")).endswith("List") else [document]
    return [one for one in inside if isinstance(one, dict) and one.get("apiVersion") == API_VERSION
            and one.get("kind") == KIND and isinstance(one.get("spec"), dict)] if isinstance(inside, list) else []


def _say(where: str, obj: Mapping[str, Any]) -> int:
    found = old_names(obj["spec"])
    for one in found:
        print(f"{where}: {one.old_path} {one.fate}", file=sys.stderr)
    return len(found)


def _name(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("name") or "(no name)")


async def _objects(options: argparse.Namespace) -> int:
    # Only this needs a connection; with files the command stays quick.
    from enginewright.clients.credentials import load_configuration
    from enginewright.clients.kube import KubeClient
    from enginewright.clients.resources import OPTIMISED_MODEL

    path = str(options.kubeconfig) if options.kubeconfig else None
    found = 0
    async with KubeClient(await load_configuration(path, options.context)) as client:
        for obj in await client.list_all(OPTIMISED_MODEL, options.namespace):
            meta = obj["metadata"]
            if any(owner.get("kind") == KIND for owner in meta.get("ownerReferences", ())):
                continue  # of a fleet's class: the operator writes it itself
            old = _say(f"{meta['namespace']}/{meta['name']}", obj)
            found += old
            if old and options.write:
                body = {"metadata": {"resourceVersion": meta["resourceVersion"]},
                        "spec": merge_patch(obj["spec"], current(obj["spec"]))}
                await client.patch(OPTIMISED_MODEL, meta["namespace"], meta["name"], body)
    return found


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> JSON:
    """What a JSON merge patch (RFC 7386) has to say to make ``after`` of ``before``."""
    patch: JSON = {name: None for name in before if name not in after}
    for name, value in after.items():
        known = before.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(known, value):
                patch[name] = inner
        elif name not in before or known != value:
            patch[name] = value
    return patch
