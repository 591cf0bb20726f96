"""A real Prometheus, on a free port for the length of a block."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.apiserver import eventually
from support.stand_in import free_port

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "charts" / "enginewright" / "files" / "rules.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"


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
        async with httpx.AsyncClient(timeout=60) as http:
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


async def fired(http: httpx.AsyncClient, url: str) -> set[tuple[str, str]]:
    """Alarms and their models."""
    found = await series(http, url, 'ALERTS{alertstate="firing"}')
    return {(one["alertname"].removeprefix("Enginewright"), one.get("optimisedmodel", "")) for one in found}


async def fires_only(http: httpx.AsyncClient, url: str, *alarms: tuple[str, str]) -> None:
    """Waits until these fire and no other does."""

    async def they_do() -> bool:
        found = await fired(http, url)
        assert found == set(alarms), found
        return True

    await eventually(they_do)


async def runbook_finds(http: httpx.AsyncClient, url: str, alarm: str, model: str = "") -> None:
    """Waits until each expression on the alarm's page finds something where ``NAME`` is ``model``, in the namespace
    ``models``."""
    page = (RUNBOOKS / f"Enginewright{alarm}.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    asked = [line.replace('"NAMESPACE"', '"models"').replace('"NAME"', f'"{model}"')
             for language, block in blocks if not language for line in block.splitlines()]
    assert asked, f"the runbook of {alarm} asks Prometheus nothing"

    async def all_do() -> bool:
        empty = [text for text in asked if not await answers(http, url, text)]
        assert empty == [], empty
        return True

    await eventually(all_do)


async def _ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.TransportError:
        return False
