"""A watch by kubectl, as rows: nothing of the operator's own code tells when the operator has done something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from cluster import binaries

# A row holds these, parted by spaces; an absent field is empty.
Row = list[str]


@contextlib.asynccontextmanager
async def watching(kubeconfig: Path, resource: str, fields: str, take: Callable[[Row], None]) -> AsyncIterator[None]:
    """``take`` gets ``fields`` (jsonpath, such as ``{.metadata.name} {.spec.replicas}``) of each object as it is, and
    again whenever it changes."""
    line = f'jsonpath={fields}{{"\\n"}}'
    process = await asyncio.create_subprocess_exec(
        str(binaries.node_program("kubectl")), f"--kubeconfig={kubeconfig}", "get", resource, "--all-namespaces",
        "--watch", "-o", line, stdout=asyncio.subprocess.PIPE,
    )

    async def read() -> None:
        assert process.stdout
        async for told in process.stdout:
            take(told.decode().rstrip("\n").split(" "))

    reading = asyncio.create_task(read(), name=f"watch of {resource}")
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        await process.wait()
        await asyncio.wait({reading})
