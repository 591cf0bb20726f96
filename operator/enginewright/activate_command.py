"""``enginewright activate``: hold requests for a model that has no replica. In a pod of its own, without rights."""

from __future__ import annotations

import argparse
import asyncio
import signal

from enginewright import logs


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", required=True, metavar="HOST", help="where replicas are reached once one is ready")
    parser.add_argument("--hold-seconds", type=_positive, default=120, metavar="N",
                        help="how long a request waits at most (default %(default)s)")  # fmt: skip
    parser.add_argument("--requests", type=_positive, default=1000, metavar="N",
                        help="how many are held at most (default %(default)s)")  # fmt: skip
    parser.add_argument("--bytes", type=_positive, default=128 << 20, metavar="N",
                        help="of how many bytes altogether (default %(default)s)")  # fmt: skip
    parser.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    parser.set_defaults(act=activate)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def activate(options: argparse.Namespace) -> int:
    """Ends with 0 on SIGTERM or SIGINT, when what is held has been answered."""
    # Only this command needs them; the others stay quick.
    from enginewright.activator.serve import Options, run

    logs.set_up(options.log_level)
    wanted = Options(backend=options.backend, requests=options.requests, size=options.bytes, hold=options.hold_seconds)

    async def until_signalled() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(wanted, stop)

    asyncio.run(until_signalled())
    return 0
