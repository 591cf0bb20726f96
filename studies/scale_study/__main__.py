"""Run the scale study: ``make scale-study N=300,1000``. It writes build/scale/summary.json and summary.md beside it, of
which docs/benchmarks/scale.json and scale.md are made.

Real: etcd, the apiserver, the controller manager and ``enginewright run`` with the rights that the chart grants. Acted:
containers, by writes to the pods' status. It runs in a network namespace of its own, so that it disturbs nothing.
Where ``KSERVE_MANAGER`` is given, KServe's manager does the same work after it on another control plane:
:mod:`scale_study.kserve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cluster.bare import running
from cluster.paths import ClusterPaths
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from scale_study import kserve, record
from scale_study.place import FLAGS, enter, place
from scale_study.study import study

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "build" / "scale" / "summary.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scale_study", description=__doc__)
    parser.add_argument("--n", default="300", help="objects; several sizes parted by commas (default %(default)s)")
    parser.add_argument("--namespaces", default="1", help="over so many namespaces, as --n (default %(default)s)")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds for each size (default %(default)s)")
    parser.add_argument("--minutes", type=float, help="after which what still runs is stopped")
    parser.add_argument("--read", type=int, default=sys.maxsize, metavar="N",
                        help="leave the queues unread where there are more than N objects")
    parser.add_argument("--join", type=Path, nargs="+", metavar="SUMMARY",
                        help="only make one summary of those of studies that ran beside each other")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.join:
        record.write(options.output, record.joined([json.loads(path.read_text()) for path in options.join]))
        return 0
    enter("scale_study")
    # Stopped by a time limit, it stops what it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _study(options, record.Record(options.output))
    return 0


def _study(options: argparse.Namespace, found: record.Record) -> None:
    until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    for n, spaces in ((int(n), int(spaces)) for spaces in options.namespaces.split(",") for n in options.n.split(",")):
        if time.monotonic() > until:
            return
        with found.size(n, spaces) as tell:
            _in_time(until, _run, n, spaces, options.patience, tell, n <= options.read)
        if kserve.given():
            with found.beside() as tell:
                _in_time(until, _kserve, n, spaces, options.patience, tell)


def _in_time(until: float, run: Callable[..., Awaitable[None]], *more: Any) -> None:
    """Raises :class:`RuntimeError` where ``run`` is not done ``until`` then, on the monotonic clock."""
    async def limited(folder: Path) -> None:
        try:
            async with asyncio.timeout(None if until == math.inf else until - time.monotonic()):
                await run(folder, *more)
        except TimeoutError as error:
            raise RuntimeError("the time of the study was over") from error

    with tempfile.TemporaryDirectory(prefix="scale-", ignore_cleanup_errors=True) as scratch:
        asyncio.run(limited(Path(scratch)))


async def _run(folder: Path, n: int, spaces: int, patience: float, tell: record.Tell, reads: bool) -> None:
    async with place(folder) as at:
        await study(at.kubeconfig, at.operators, at.records, folder, at.kube, n, spaces, patience, tell, reads=reads)


async def _kserve(folder: Path, n: int, spaces: int, patience: float, tell: record.Tell) -> None:
    with running(folder / "control-plane", controllers=True, flags=FLAGS) as kubeconfig:
        paths = ClusterPaths(kubeconfig.parent, kubeconfig.parent / "run", kubeconfig.parent / "logs")
        async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
            tell(await kserve.kserve(kubeconfig, paths.records, folder, kube, n, spaces, patience))


if __name__ == "__main__":
    sys.exit(main())
