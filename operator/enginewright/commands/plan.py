"""``enginewright plan``: reads models and nodes, from files or the cluster, and prints where replicas would go."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from enginewright.clients.errors import ClientError
from enginewright.core.config import OperatorConfig
from enginewright.core.labels import API_VERSION, KIND
from enginewright.core.planner.models import needs_of
from enginewright.core.planner.nodes import fleet_of
from enginewright.core.planner.planner import plan
from enginewright.core.planner.report import as_data, as_text, grouped, mig_parted
from enginewright.core.problems import Problem
from enginewright_builder.contract import printable

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
Objects = list[Mapping[str, Any]]


class UnreadableError(Exception):
    """What cannot be read, for people."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("-f", "--filename", action="append", default=[], type=Path, metavar="FILE",
                         help="OptimisedModels in YAML or JSON, - is standard input; repeat it for several; default: "
                              "those of the cluster")
    command.add_argument("--nodes", type=Path, metavar="FILE",
                         help="nodes, and pods to see what is in use: kubectl get nodes,pods -A -o json; "
                              "default: those of the cluster")
    command.add_argument("--namespace", metavar="NAME", help="plan only for models of this namespace; default: all")
    command.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG or ~/.kube/config")
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig; default: its current one")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text",
                         help="for people or for programs (default text)")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """0 when there is a plan, whether or not everything fits; 1 when an input is refused; 2 when one cannot be read."""
    try:
        models, nodes = _inputs(options)
    except UnreadableError as error:
        print(printable(f"enginewright: {error}"), file=sys.stderr)
        return EXIT_USAGE
    except ClientError as error:
        print(printable(f"enginewright: {error}; with -f FILE and --nodes FILE no cluster is asked"), file=sys.stderr)
        return EXIT_USAGE
    fleet = fleet_of(nodes)
    if isinstance(fleet, list):
        return _refuse(fleet)
    needs = needs_of(models, fleet, OperatorConfig())
    if isinstance(needs, list):
        return _refuse(needs)
    made = plan(needs.demands, fleet.gpus)
    notes = (*needs.notes, *fleet.notes)
    if options.output == "json":
        print(json.dumps(as_data(made, fleet.gpus, notes), indent=2))
    else:
        fragment = yaml.safe_dump(mig_parted(made, fleet.gpus), sort_keys=False, default_flow_style=None, width=120)
        print(printable(as_text(made, notes, fragment)), end="")
    return 0


def _refuse(problems: Sequence[Problem]) -> int:
    for problem in problems:
        print(printable(f"enginewright: {problem}"), file=sys.stderr)
    return EXIT_REFUSED


def _inputs(options: argparse.Namespace) -> tuple[Objects, Objects]:
    """(models, nodes and pods). Raises UnreadableError, ClientError."""
    models = [one for path in options.filename for one in _models(path)]
    nodes = _nodes(options.nodes) if options.nodes else None
    if not options.filename or nodes is None:
        there = asyncio.run(_cluster(options))
        models = models if options.filename else there[0]
        nodes = there[1] if nodes is None else nodes
    if options.namespace:
        models = [one for one in models if (one.get("metadata") or {}).get("namespace") == options.namespace]
    return models, nodes


def _models(path: Path) -> Objects:
    found = [one for one in grouped(_documents(path)) if one.get("kind") == KIND]
    if not found:
        raise UnreadableError(f"{path}: has no {API_VERSION} {KIND}; give one with kind: {KIND}")
    return found


def _nodes(path: Path) -> Objects:
    found = grouped(_documents(path))
    if not any(one.get("kind") == "Node" for one in found):
        raise UnreadableError(f"{path}: has no Node; write it with: kubectl get nodes,pods -A -o json > {path}")
    return found


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        # A dump of a large cluster takes seconds as YAML.
        documents = [json.loads(text)] if text.lstrip().startswith("{") else list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError also for dates that no calendar has
        raise UnreadableError(f"{path}: is neither YAML nor JSON: {error}") from error
    return (one for one in documents if isinstance(one, dict))


async def _cluster(options: argparse.Namespace) -> tuple[Objects, Objects]:
    # Only this needs a connection; with files the command stays quick.
    from enginewright.clients.credentials import load_configuration
    from enginewright.clients.kube import KubeClient
    from enginewright.clients.resources import NODE, OPTIMISED_MODEL, POD

    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    configuration = await load_configuration(kubeconfig, options.context)
    async with KubeClient(configuration) as client:
        models = [] if options.filename else await client.list_all(OPTIMISED_MODEL, options.namespace)
        if options.nodes:
            return list(models), []
        nodes = [{**one, "kind": "Node"} for one in await client.list_all(NODE, None)]
        pods = [{**one, "kind": "Pod"} for one in await client.list_all(POD, None)]
    return list(models), [*nodes, *pods]
