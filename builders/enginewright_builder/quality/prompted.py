"""The monitor of one replica of a language model: every few seconds it asks some of the build's prompts.

``python3 -m enginewright_builder.quality generate REFERENCE --model=NAME …``; run by the package's own ``__main__``,
which lives on if this does not.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from enginewright_builder.contract import AGREEMENT, ContractError
from enginewright_builder.errors import BuilderError
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.kept_prompts import KeptPrompts, read_prompts
from enginewright_builder.logs import log_to_stderr
from enginewright_builder.quality.asking import Allowance, Asking
from enginewright_builder.quality.monitor import PERIOD
from enginewright_builder.quality.page import idle, served
from enginewright_builder.triton.ports import HOST

# For an answer of some dozens of tokens: a server that takes longer is too busy for questions.
ANSWER_SECONDS: Final = 60.0
log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        kept = read_prompts(options.reference)
    except (OSError, ContractError) as error:
        return idle(AGREEMENT, 0.0, f"the build's prompts cannot be read: {error}", options.port)
    asyncio.run(_watch(options, kept))
    return 0


async def _watch(options: argparse.Namespace, kept: KeptPrompts) -> None:
    async with Client(f"http://{HOST}:{options.server_port}", model=options.model, connections=1,
                      limit_seconds=ANSWER_SECONDS) as client:
        asking = Asking(kept, client.choose, Allowance(options.share, options.per_minute), window=options.window,
                        draw=secrets.randbelow, word=lambda: secrets.token_hex(8), clock=time.monotonic)
        latest = asking.snapshot()
        log.info("asks %s some of %d prompts of its build, %d requests a minute at most", options.model,
                 len(kept.prompts), options.per_minute)
        with served(lambda: latest, options.port):
            while True:
                began = time.monotonic()
                try:
                    await asking.turn(await client.metrics(), PERIOD)
                except BuilderError as error:
                    asking.trouble(f"the server's metrics cannot be read: {error.reason}")
                latest = asking.snapshot()
                await asyncio.sleep(max(0.0, PERIOD - (time.monotonic() - began)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.quality generate", description=__doc__)
    parser.add_argument("reference", type=Path, help="<store>/<fingerprint>/reference")
    parser.add_argument("--model", required=True, help="the name that vLLM serves it as")
    parser.add_argument("--share", type=float, required=True, help="of live requests that the monitor asks, 0 to 1")
    parser.add_argument("--per-minute", type=int, required=True, help="most requests of the monitor in a minute")
    parser.add_argument("--window", type=int, required=True, help="newest questions that agreement is taken over")
    parser.add_argument("--port", type=int, required=True, help="of /quality and /metrics")
    parser.add_argument("--server-port", type=int, default=8000, help="of the server's HTTP endpoint")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
