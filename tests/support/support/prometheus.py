"""A real Prometheus, on a free port for the length of a block."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.apiserver import eventually
from support.stand_in import free_port

RULES = Path(__file__).resolve().parents[3] / "charts" / "enginewright" / "files" / "rules.yaml"


def at_once(directory: Path) -> Path:
    """A file of the chart's rules, with alarms that wait for nothing."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


@contextlib.asynccontextmanager
async def running(directory: Path, targets: Sequence[dict[str, Any]], rules: Sequence[Path] = ()) -> AsyncIterator[str]:
    """Its URL. It scrapes ``targets`` (Prometheus' own ``static_configs``) each second."""
    program = shutil.which("prometheus")
    assert program, "install Debian's package prometheus: hack/bin-deps.sh"
    (directory / "prometheus.yml").write_text(yaml.safe_dump({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "tested", "static_configs": list(targets)}]}))
    address = f"127.0.0.1:{free_port()}"
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={address}", stdout=log, stderr=log)
    try:
        async with httpx.AsyncClient() as http:
            await eventually(lambda: _ready(http, f"http://{address}/-/ready"))
        yield f"http://{address}"
    finally:
        process.terminate()
        async with asyncio.timeout(120):
            await process.wait()


async def answers(http: httpx.AsyncClient, url: str, query: str) -> bool:
    """Whether there is any data. Raises ``AssertionError`` for an expression that Prometheus refuses."""
    return bool(await series(http, url, query))


async def series(http: httpx.AsyncClient, url: str, query: str) -> list[dict[str, str]]:
    """Labels of what ``query`` finds. Raises ``AssertionError`` for an expression that Prometheus refuses."""
    answer = (await http.get(f"{url}/api/v1/query", params={"query": query})).json()
    assert answer["status"] == "success", (query, answer)
    return [one["metric"] for one in answer["data"]["result"]]


async def _ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.TransportError:
        return False
