"""Command line of the local cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cluster import bare
from cluster.steps import ClusterError, explain, say


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="hack/cluster/cluster", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (
        ("control-plane-up", "start only etcd and an API server in DIR; prints the kubeconfig's path"),
        ("control-plane-down", "stop the control plane of DIR"),
    ):
        sub = verbs.add_parser(verb, help=text, description=text)
        sub.add_argument("--dir", type=Path, required=True, metavar="DIR")
        if verb == "control-plane-up":
            sub.add_argument("--controllers", action="store_true", help="run the controller manager, too")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        if options.verb == "control-plane-up":
            print(bare.up(options.dir, controllers=options.controllers))
        else:
            bare.down(options.dir)
    except ClusterError as error:
        say(explain(error))
        return 1
    return 0
