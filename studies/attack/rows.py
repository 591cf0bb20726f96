"""A watch by kubectl, as rows: nothing of the operator's own code tells when the operator has done something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from cluster import binaries

# A row holds these, parted by spaces; an absent field is empty.
Row = list[str]
PAUSE: Final = 1.0


@contextlib.asynccontextmanager
async def watching(kubeconfig: Path, resource: str, fields: str, take: Callable[[Row], None]) -> AsyncIterator[None]:
    """``take`` gets ``fields`` (jsonpath, such as ``{.metadata.name} {.spec.replicas}``) of each object as it is, and
    again whenever it changes. The apiserver ends each watch within an hour: then it gets all of them again."""
    line = f'jsonpath={fields}{{"\\n"}}'
    command = (str(binaries.node_program("kubectl")), f"--kubeconfig={kubeconfig}", "get", resource, "--all-namespaces",
               "--watch", "-o", line)

    async def read() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            try:
                assert process.stdout
                async for told in process.stdout:
                    take(told.decode().rstrip("\n").split(" "))
            finally:
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    process.kill()
                await process.wait()
            await asyncio.sleep(PAUSE)

    reading = asyncio.create_task(read(), name=f"watch of {resource}")
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait({reading})
