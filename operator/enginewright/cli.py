"""``enginewright``: run the operator, print the CRD, check an object before it is applied, plan placements."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import yaml

from enginewright import __version__, logs, tracing
from enginewright.clients.errors import ClientError
from enginewright.command_line import LEVELS, positive, until_signalled
from enginewright.piped import until_read

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
COMMANDS: Final = {
    "validate": "check OptimisedModel manifests without a cluster",
    "migrate": "give fields the names that they have today",
    "plan": "show where replicas fit, and which MIG layout would help",
    "simulate": "replay a trace against the scaler and its peers",
    "activate": "hold requests for a model that has no replica",
}


def parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """For a command line of these ``words``: a command that is not among them has no arguments, as nothing that only
    another needs is imported. Without ``words`` all have theirs."""
    top = argparse.ArgumentParser(prog="enginewright", description="Serves only engines that were measured.")
    top.add_argument("--version", action="version", version=__version__)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _run_arguments(verbs.add_parser("run", aliases=["operator"], help="run the operator"))
    verbs.add_parser("crd", help="print the CustomResourceDefinition as YAML").set_defaults(act=print_crd)
    for name, what in COMMANDS.items():
        command = verbs.add_parser(name, help=what)
        if words is None or name in words:
            _module(name).arguments(command)
    verbs.add_parser("version", help="print the version").set_defaults(act=print_version)
    return top


def _module(name: str) -> ModuleType:
    """Of one of :data:`COMMANDS`. An activator starts while a request waits, and imports no other."""
    if name == "activate":
        from enginewright.commands import activate

        return activate
    from enginewright.commands import migrate, plan, simulate, validate

    return {"migrate": migrate, "plan": plan, "simulate": simulate, "validate": validate}[name]


def _run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("--config", type=Path, default=os.environ.get("ENGINEWRIGHT_CONFIG"), metavar="FILE",
                     help="settings (YAML or JSON); default: $ENGINEWRIGHT_CONFIG, else the built-in ones")
    run.add_argument("--namespace", action="append", default=[], metavar="NAME",
                     help="watch only this namespace; repeat it for several; default: all")
    run.add_argument("--kubeconfig", type=Path, metavar="FILE",
                     help="default: the pod's service account, else $KUBECONFIG or ~/.kube/config")
    run.add_argument("--metrics-port", type=int, default=8080, metavar="PORT", help="/metrics (default %(default)s)")
    run.add_argument("--health-port", type=int, default=8081, metavar="PORT",
                     help="/healthz and /readyz (default %(default)s)")
    run.add_argument("--workers", type=positive, default=8, metavar="N",
                     help="passes to run at once, beside three times as many of queues that rise (default %(default)s)")
    run.add_argument("--resync", type=positive, default=300, metavar="SECONDS",
                     help="seconds between full resyncs (default %(default)s)")
    run.add_argument("--leader-lease", type=_lease, metavar="NAMESPACE/NAME",
                     help="work only while holding this Lease; operators of the same objects need the same one; "
                          "default: enginewright in the first --namespace, or the credentials' own")
    run.add_argument("--log-level", choices=LEVELS, default="INFO")
    run.set_defaults(act=run_operator)


def _lease(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return namespace, name


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    options = parser(words).parse_args(words)
    return until_read(lambda: int(options.act(options)))


def run_operator(options: argparse.Namespace) -> int:
    """Ends with 0 on SIGTERM or SIGINT, with 1 when a part of it died: the kubelet starts it again."""
    # Only this command needs the clients; the others stay quick.
    from enginewright.reconcile.leadership import LeadershipLostError
    from enginewright.runtime import Options, run
    from enginewright.settings import SettingsError, read_settings

    try:
        config = read_settings(options.config)
    except SettingsError as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    logs.set_up(options.log_level)
    wanted = Options(
        config=config, namespaces=tuple(options.namespace), kubeconfig=options.kubeconfig,
        metrics_port=options.metrics_port, health_port=options.health_port, workers=options.workers,
        resync=options.resync, lease=options.leader_lease,
    )
    # What was imported stays for as long as the process. To look through it at each full collection would stop the
    # event loop for 70 ms longer.
    gc.collect()
    gc.freeze()
    try:
        with tracing.exporting():
            asyncio.run(until_signalled(lambda stop: run(wanted, stop)))
    except tracing.TracingError as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (ClientError, LeadershipLostError) as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


def print_crd(_: argparse.Namespace) -> int:
    from enginewright.core.spec.crd import crd

    yaml.safe_dump(crd(), sys.stdout, sort_keys=False, allow_unicode=True, width=120)
    return 0


def print_version(_: argparse.Namespace) -> int:
    print(__version__)
    return 0
