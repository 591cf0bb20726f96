"""``enginewright adapt``: let a server's batching follow its traffic. In a container beside it, without rights."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from enginewright import logs
from enginewright.command_line import LEVELS, positive, until_signalled
from enginewright.core.labels import BATCHING_PORT, HTTP_PORT, METRICS_PORT

EXIT_USAGE = 2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="name of the model on the server")
    parser.add_argument("--safe-set", required=True, metavar="JSON",
                        help="settings to choose from, as the operator writes them")
    parser.add_argument("--key-file", required=True, type=Path, metavar="FILE",
                        help="file with the key of the server's model control")
    parser.add_argument("--port", type=positive, default=BATCHING_PORT, metavar="N",
                        help="port of /metrics and /batching (default %(default)s)")
    parser.add_argument("--http-port", type=positive, default=HTTP_PORT, metavar="N",
                        help="port of the server (default %(default)s)")
    parser.add_argument("--metrics-port", type=positive, default=METRICS_PORT, metavar="N",
                        help="port of the server's metrics (default %(default)s)")
    parser.add_argument("--log-level", choices=LEVELS, default="INFO")
    parser.set_defaults(act=adapt)


def adapt(options: argparse.Namespace) -> int:
    """Ends with 0 on SIGTERM or SIGINT: what is in force then stays, as the pod ends or another starts from the
    default."""
    # Only this command needs them; the others stay quick.
    from enginewright.batcher.serve import Options, run
    from enginewright.core.batching.wire import safe_set_from_text

    try:
        safe, key = safe_set_from_text(options.safe_set), options.key_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    if not key:
        print(f"enginewright: {options.key_file} holds no key", file=sys.stderr)
        return EXIT_USAGE
    logs.set_up(options.log_level)
    wanted = Options(model=options.model, safe=safe, key=key, port=options.port, http_port=options.http_port,
                     metrics_port=options.metrics_port)
    asyncio.run(until_signalled(lambda stop: run(wanted, stop)))
    return 0
