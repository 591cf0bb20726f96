"""The verbs of ``kubectl optimisedmodel``.

Exit codes: 0 done (``explain``: Ready, ``diff``: nothing changes), 1 not Ready, refused, or something changes, 2 wrong
usage, 3 the cluster could not be asked, 70 a defect of the plugin.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from enginewright import __version__
from enginewright.clients.credentials import current_namespace, load_configuration
from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.commands.validate import FileError, check_files
from enginewright.core.labels import GROUP, KIND, PLURAL, SHORT_NAMES
from enginewright.piped import until_read
from enginewright.plugin import verbs as does
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import printable

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_DEFECT: Final = 70  # EX_SOFTWARE of sysexits.h


def parser() -> argparse.ArgumentParser:
    what = "Shows why a model is in its state, and what to do next."
    top = argparse.ArgumentParser(prog="kubectl optimisedmodel", description=what)
    top.add_argument("--version", action="version", version=__version__)
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND")
    said = _verb(verbs, "explain", "show why it is in this state, and what to do next", does.explain)
    said.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    _verb(verbs, "watch", "follow builds, rollouts and the queue until it is Ready", does.watch)
    promoted = _verb(verbs, "promote", "give all traffic to the revision that waits", does.promote)
    promoted.add_argument("revision", nargs="?", default="", help="default: the candidate")
    back = _verb(verbs, "rollback", "go back to an earlier revision without a build", does.rollback)
    back.add_argument("revision", nargs="?", default="", help="or the first characters of it; default: the one that "
                                                              "served before")
    back.add_argument("--release", action="store_true", help="follow the spec again")
    _verb(verbs, "retry", "retry what failed", does.retry)
    _verb(verbs, "rebuild", "rebuild the engine, though the store has one", does.rebuild)
    page = _verb(verbs, "report", "save the evidence of the engine that serves, or of REVISION's", does.report)
    page.add_argument("revision", nargs="?", default="", help="or the first characters of it; default: the one that "
                                                              "serves")
    page.add_argument("-f", "--file", type=Path, help="default: NAME-report.html; - is standard output")
    page.add_argument("--json", action="store_true", help="build-report.json instead of the page")
    page.add_argument("--traces", action="store_true", help="also save the traces that spec.engine.profile asks for, "
                      "beside it")
    page.add_argument("--open", action="store_true", help="open it in a browser")
    page.add_argument("--prometheus", metavar="URL", default="", help="add replicas, queue and requests over time from "
                      "this Prometheus, for example http://localhost:9090 by a kubectl port-forward")
    page.add_argument("--hours", type=_hours, default=24.0, metavar="N", help="hours to look back, with --prometheus "
                                                                              "(24)")
    exports = _verb(verbs, "export", "print what serves as manifests of another operator", does.export)
    exports.add_argument("revision", nargs="?", default="", help="or the first characters of it; needed during a "
                                                                 "rollout")
    exports.add_argument("--as", dest="form", choices=("kserve",), required=True,
                         help="kserve: a ServingRuntime and an InferenceService, for kubectl apply")
    tops = verbs.add_parser("top", help="show queue, rate, p99, replicas and cost of all models")
    tops.add_argument("-A", "--all-namespaces", action="store_true")
    tops.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    _cluster_arguments(tops, does.top)
    differs = verbs.add_parser("diff", help="show what a manifest would change, and whether it needs a build")
    differs.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML or JSON; - is standard input")
    differs.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    _cluster_arguments(differs, does.diff)
    check = verbs.add_parser("validate", help="check manifests without a cluster")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML or JSON; - is standard input")
    check.set_defaults(offline=check_files)
    return top


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """As kubectl does, with options anywhere: argparse takes a REVISION for an excess one if it is parted from NAME."""
    top = parser()
    options, left = top.parse_known_args(arguments)
    if len(left) == 1 and not left[0].startswith("-") and getattr(options, "revision", None) == "":
        options.revision = left.pop()
    if left:
        top.error(f"unrecognized arguments: {' '.join(left)}")
    return options


def _verb(verbs: Any, name: str, text: str, act: Callable[..., Any]) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    command.add_argument("name", metavar="NAME", type=object_name, help="name of the OptimisedModel, or om/NAME")
    _cluster_arguments(command, act)
    return command


def _cluster_arguments(command: argparse.ArgumentParser, act: Callable[..., Any]) -> None:
    command.add_argument("-n", "--namespace", metavar="NAME", help="default: the namespace of the kubeconfig's context")
    command.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG or ~/.kube/config")
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig; default: its current one")
    command.set_defaults(act=act)


def object_name(text: str) -> str:
    """Also of what ``kubectl get -o name`` prints, and of ``om/NAME`` as one writes it for kubectl's own verbs."""
    kind, slash, name = text.rpartition("/")
    if slash and not (name and kind.removesuffix(f".{GROUP}") in (*SHORT_NAMES, KIND.lower(), PLURAL)):
        raise argparse.ArgumentTypeError(f"{text}: is not an OptimisedModel; write its name, or om/NAME")
    return name


def _hours(text: str) -> float:
    value = float(text)
    if not 0 < value <= 24 * 366:
        raise argparse.ArgumentTypeError(f"{text}: write hours above 0, a year at most")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return until_read(lambda: _main(arguments))
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        _complain(f"a defect of kubectl optimisedmodel {__version__}; please report it, with what the same command "
                  f"prints with PYTHONDEVMODE=1: {type(error).__name__}: {error}")
        return EXIT_DEFECT


def _complain(words: str) -> None:
    """A message may quote what a model's files or another writer of the cluster say."""
    print(printable(f"error: {words}"), file=sys.stderr)


def _main(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    if not options.verb:  # as kubectl does
        parser().print_help()
        return 0
    if hasattr(options, "offline"):
        return int(options.offline(options))
    try:
        return asyncio.run(_run(options))
    except (WishError, FileError) as error:
        _complain(str(error))
        return EXIT_USAGE if isinstance(error, FileError) else EXIT_REFUSED
    except ClientError as error:
        _complain(str(error))
        return EXIT_UNREACHABLE
    except KeyboardInterrupt:
        return 130


async def _run(options: argparse.Namespace) -> int:
    configuration = await load_configuration(options.kubeconfig, options.context)
    options.namespace = options.namespace or current_namespace(options.kubeconfig, options.context)
    async with KubeClient(configuration) as client:
        result: int = await options.act(client, options)
        return result
