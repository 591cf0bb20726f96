"""One shard, from the first chunk that has no answers to its manifest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from enginewright_builder.contract import ShardSummary, shard_range
from enginewright_builder.engine_store.manifest import sha256_file
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.load import Channels
from enginewright_builder.offline.answers import Answers, Run, begin, begun
from enginewright_builder.offline.asking import Asker, served
from enginewright_builder.offline.rows import INPUT, Rows, data_format, open_rows
from enginewright_builder.triton.client import Address, Server

# Of one file of answers: what is in memory, twice, and what a kill costs.
CHUNK_BYTES, CHUNK_ROWS = 32 << 20, 4096
# Chunks that are worked on at once: while one is read or written, the server answers the other.
AT_ONCE: Final = 2
# One executes and the next one is there, of each instance of the model.
ON_THE_WAY: Final = 2
# Takes the fraction done, 0 to 1, and words.
Report = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``engine`` is the fingerprint of what the server serves as ``model``. ``chunk_rows`` 0: chosen by the size of
    rows."""

    input: Path
    output: Path
    engine: str
    model: str
    shard: int
    shards: int
    http: str
    grpc: str
    ready_seconds: float
    chunk_rows: int = 0


def run_shard(asked: Asked, report: Report) -> ShardSummary:
    """Raises :class:`BuilderError` and :class:`OSError`; what was answered by then stays."""
    return asyncio.run(_run(asked, report))


async def _run(asked: Asked, report: Report) -> ShardSummary:
    began = time.monotonic()
    if not 0 <= asked.shard < asked.shards:
        raise UserError("BatchShardInvalid", f"there is no shard {asked.shard} of {asked.shards}", field="--shard",
                        value=asked.shard, remedy="count shards from 0")
    answers = _begin(asked)
    missing = answers.missing(asked.shard)
    if missing:
        with open_rows(asked.input, answers.run.rows) as rows:
            await _answer(asked, answers, missing, rows, report)
    if not answers.manifest_path(asked.shard).exists():
        answers.finish(asked.shard)
    mine = shard_range(answers.run.rows, asked.shards, asked.shard)
    return ShardSummary(shard=asked.shard, shards=asked.shards, rows=len(mine), total=answers.run.rows,
                        answered=sum(map(len, missing)), seconds=round(time.monotonic() - began, 3))


def _begin(asked: Asked) -> Answers:
    """The file is read for its digest once: a shard that finds the digest of a file of this size and time takes it."""
    kind, about = data_format(asked.input), asked.input.stat()
    before = begun(asked.output)
    known = before and (before.bytes, before.modified) == (about.st_size, about.st_mtime_ns)
    if before and known:
        digest, count, chunk = before.input, before.rows, before.chunk_rows
    else:
        digest = f"sha256:{sha256_file(asked.input)}"
        with open_rows(asked.input) as rows:
            count, chunk = rows.count, asked.chunk_rows or _chunk_rows(rows)
    if not count:
        raise INPUT.invalid(f"{asked.input.name} holds no rows", asked.input, "give at least one")
    return begin(asked.output, Run(
        engine=asked.engine, input=digest, rows=count, shards=asked.shards, chunk_rows=chunk, format=kind,
        bytes=about.st_size, modified=about.st_mtime_ns))


def _chunk_rows(rows: Rows) -> int:
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, rows.row_bytes)))


async def _answer(asked: Asked, answers: Answers, missing: list[range], rows: Rows, report: Report) -> None:
    """A server that does not answer is another try's, as it may be that of a node that goes."""
    try:
        await _through(asked, answers, missing, rows, report)
    except UserError as error:
        if error.reason != "ServerDidNotStart":
            raise
        raise TransientError("BatchRequestFailed", error.message, remedy="read the log of the server") from error


async def _through(asked: Asked, answers: Answers, missing: list[range], rows: Rows, report: Report) -> None:
    address = Address(http=asked.http, grpc=asked.grpc, metrics="")
    async with Server(address, ready_seconds=asked.ready_seconds) as server:
        about = await served(server, asked.model)
        on_the_way = ON_THE_WAY * about.instances
        async with Channels(server.grpc_url, count=min(4, on_the_way)) as channels:
            work = _Work(answers, rows, Asker(server, channels, about, on_the_way), asked.shard, report)
            await work.through(missing)


class _Work:
    """Chunks from rows to files."""

    def __init__(self, answers: Answers, rows: Rows, asker: Asker, shard: int, report: Report) -> None:
        self._answers, self._rows, self._asker, self._report = answers, rows, asker, report
        self._total = len(shard_range(answers.run.rows, answers.run.shards, shard))
        self._done = self._total
        self._reading = asyncio.Lock()

    async def through(self, missing: list[range]) -> None:
        self._done -= sum(map(len, missing))
        left = iter(missing)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._chunks(left))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _chunks(self, left: Iterator[range]) -> None:
        while True:
            async with self._reading:  # the file is read forwards
                chunk = next(left, None)
                if chunk is None:
                    return
                samples = await asyncio.to_thread(self._rows.read, chunk.start, chunk.stop)
            asked = await asyncio.to_thread(self._asker.checked, samples, chunk.start)
            answers = await self._asker.answers(asked)
            await asyncio.to_thread(self._answers.write, chunk, answers)
            self._done += len(chunk)
            self._report(self._done / self._total, f"{self._done} of {self._total} rows")
