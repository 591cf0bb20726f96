"""``enginewright activate``: hold requests for a model that has no replica. In a pod of its own, without rights."""

from __future__ import annotations

import argparse
import asyncio

from enginewright import logs
from enginewright.command_line import LEVELS, positive, until_signalled
from enginewright.core.servers.triton import TRITON


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", required=True, metavar="HOST", help="address of the replicas, once one is ready")
    parser.add_argument("--hold-seconds", type=positive, default=120, metavar="N",
                        help="seconds that a request waits at most (default %(default)s)")
    parser.add_argument("--exit-seconds", type=positive, metavar="N",
                        help="seconds that what is held or answered has when the activator ends (default: as many as a "
                             "request waits at most)")
    parser.add_argument("--requests", type=positive, default=1000, metavar="N",
                        help="most requests to hold (default %(default)s)")
    parser.add_argument("--bytes", type=positive, default=128 << 20, metavar="N",
                        help="most bytes of all held requests (default %(default)s)")
    parser.add_argument("--live-path", default=TRITON.live_path, metavar="PATH",
                        help="where the server says that it lives (default %(default)s)")
    parser.add_argument("--ready-path", default=TRITON.ready_path, metavar="PATH",
                        help="where a replica says that it is ready (default %(default)s)")
    parser.add_argument("--log-level", choices=LEVELS, default="INFO")
    parser.set_defaults(act=activate)


def activate(options: argparse.Namespace) -> int:
    """Ends with 0 on SIGTERM or SIGINT, when what is held has been answered."""
    # Only this command needs them; the others stay quick.
    from enginewright.activator.serve import Options, run

    logs.set_up(options.log_level)
    wanted = Options(backend=options.backend, requests=options.requests, size=options.bytes, hold=options.hold_seconds,
                     leave=options.exit_seconds, live_path=options.live_path,
                     ready_path=options.ready_path)
    asyncio.run(until_signalled(lambda stop: run(wanted, stop)))
    return 0
