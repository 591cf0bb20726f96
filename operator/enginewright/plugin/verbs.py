"""What each verb does: reads the object, says or asks something, gives the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import webbrowser
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.live import Live

from enginewright.clients.errors import NotFoundError, TransientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import OPTIMISED_MODEL
from enginewright.commands.validate import models_in
from enginewright.core.conditions import find
from enginewright.core.reasons import Condition
from enginewright.plugin import changes, history, kserve, screen, wishes
from enginewright.plugin import report as reports
from enginewright.plugin.words import explain as explained
from enginewright_builder.contract import printable

EXIT_REFUSED: Final = 1
WATCH_SECONDS: Final = 1.0
# Of a table that goes to a file or a pipe.
WIDE: Final = 200
Object = dict[str, Any]


async def explain(client: KubeClient, options: argparse.Namespace) -> int:
    obj = await _get(client, options)
    said = explained(obj, datetime.now(UTC))
    _print(vars(said) if options.output != "text" else "\n".join(screen.lines(said)), options.output)
    return 0 if _ready(obj) else EXIT_REFUSED


async def watch(client: KubeClient, options: argparse.Namespace) -> int:
    """Until it is Ready, or is back where a rollback asked for, or the user stops it. In a pipe each new explanation is
    printed once."""
    console, last = Console(), ""
    with Live(console=console, auto_refresh=False) if console.is_terminal else contextlib.nullcontext() as picture:
        while True:
            try:
                obj = await _get(client, options)
            except TransientError:
                await asyncio.sleep(WATCH_SECONDS)
                continue
            now = datetime.now(UTC)
            said, held = explained(obj, now), wishes.is_held(obj)
            if picture:
                picture.update(screen.live(obj, now), refresh=True)
            elif said.headline != last:
                last = said.headline
                print(printable("\n".join((f"{now:%H:%M:%S} {last}", *(said.next if held else ())))), flush=True)
            if held or _ready(obj):
                return 0
            await asyncio.sleep(WATCH_SECONDS)


async def promote(client: KubeClient, options: argparse.Namespace) -> int:
    return await _wish(client, options, lambda obj: wishes.promote(obj, options.revision))


async def rollback(client: KubeClient, options: argparse.Namespace) -> int:
    return await _wish(
        client, options, lambda obj: wishes.release(obj) if options.release else wishes.roll_back(obj, options.revision)
    )


async def retry(client: KubeClient, options: argparse.Namespace) -> int:
    return await _wish(client, options, lambda obj: wishes.retry(obj, _stamp()))


async def rebuild(client: KubeClient, options: argparse.Namespace) -> int:
    return await _wish(client, options, lambda obj: wishes.rebuild(obj, _stamp()))


def _stamp() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


async def _wish(client: KubeClient, options: argparse.Namespace,
                asked: Callable[[Object], tuple[wishes.Annotations, str]]) -> int:
    obj = await _get(client, options)
    annotations, sentence = asked(obj)
    body = {"metadata": {"annotations": annotations, "resourceVersion": obj["metadata"]["resourceVersion"]}}
    await client.patch(OPTIMISED_MODEL, options.namespace, options.name, body)
    print(printable(sentence))
    return 0


async def report(client: KubeClient, options: argparse.Namespace) -> int:
    obj = await _get(client, options)
    revision = wishes.reported(obj, options.revision)
    file = "build-report.json" if options.json else "report.html"
    now, measured = datetime.now(UTC), None
    if options.prometheus:
        if options.json:
            raise wishes.WishError("--prometheus adds to the page, --json asks for build-report.json: leave one out")
        from enginewright.plugin.measured import over_time  # only here: its client takes a while to import

        measured = await over_time(options.prometheus, obj, now, options.hours)
    if options.traces and str(options.file) == "-":
        raise wishes.WishError("--traces saves files beside the report's, and --file - saves none: leave one out")
    content = await reports.fetch(client, obj, revision, file)
    traces = await _traces(client, options, obj, revision, content) if options.traces else {}
    if not options.json:
        content = _with_history(content, history.history(obj, now, measured))
    if other := wishes.also_live(obj, revision):
        print(printable(f"note: {other}"), file=sys.stderr)
    if str(options.file) == "-":
        sys.stdout.buffer.write(content)
        return 0
    path: Path = options.file or Path(f"{options.name}-{'report.json' if options.json else 'report.html'}")
    for saved, data in {path: content, **{path.with_name(name): trace for name, trace in traces.items()}}.items():
        await asyncio.to_thread(saved.write_bytes, data)
        print(printable(str(saved)))
    if options.open:
        webbrowser.open(Path.cwd().joinpath(path).as_uri())
    return 0


async def _traces(client: KubeClient, options: argparse.Namespace, obj: Object, revision: str,
                  content: bytes) -> dict[str, bytes]:
    """By the name of the file that it is saved as. ``content`` is of the report, as it was brought."""
    record = content if options.json else await reports.fetch(client, obj, revision, "build-report.json")
    return {f"{options.name}-{trace.rpartition('/')[2]}": await reports.fetch(client, obj, revision, trace)
            for trace in reports.traces(options.name, record)}


async def export(client: KubeClient, options: argparse.Namespace) -> int:
    obj = await _get(client, options)
    found = await reports.deployment_of(client, obj, wishes.serving(obj, options.revision))
    sys.stdout.write(kserve.exported(found))
    return 0


def _with_history(page: bytes, found: Mapping[str, Any]) -> bytes:
    filled = history.filled(page.decode(), found)
    if filled is None:
        print("note: this page was written by an earlier release, without room for how the model has scaled",
              file=sys.stderr)
        return page
    return filled.encode()


async def top(client: KubeClient, options: argparse.Namespace) -> int:
    found = await client.list_all(OPTIMISED_MODEL, None if options.all_namespaces else options.namespace)
    found.sort(key=lambda obj: (obj["metadata"]["namespace"], obj["metadata"]["name"]))
    if options.output != "text":
        _print(screen.rows(found), options.output)
    elif found:
        console = Console()
        console.width = console.width if console.is_terminal else WIDE
        console.print(screen.table(found))
    else:
        where = "in any namespace" if options.all_namespaces else f"in namespace {options.namespace}"
        print(f"no OptimisedModel {where}", file=sys.stderr)
    return 0


async def _get(client: KubeClient, options: argparse.Namespace) -> Object:
    try:
        return await client.get(OPTIMISED_MODEL, options.namespace, options.name)
    except NotFoundError as error:
        if error.reason != "NotFound":  # the whole API is not there: the apiserver's words say more
            raise
        raise NotFoundError(f"no OptimisedModel {options.name} in namespace {options.namespace}; "
                            f"kubectl get om -A lists those of all namespaces") from error


async def diff(client: KubeClient, options: argparse.Namespace) -> int:
    """As ``kubectl diff``, with what the change costs."""
    found: dict[str, changes.Difference] = {}
    for _, wanted in models_in(options.files):
        meta = wanted.get("metadata") or {}
        name, namespace = str(meta.get("name") or ""), meta.get("namespace") or options.namespace
        live: Object | None = None
        with contextlib.suppress(NotFoundError):
            live = await client.get(OPTIMISED_MODEL, namespace, name)
        found[f"{namespace}/{name}"] = changes.difference(live, wanted)
    if options.output == "text":
        lines = [line for name, difference in found.items() for line in changes.lines(name, difference)]
        print(printable("\n".join(lines)))
    else:
        _print({name: changes.plain(difference) for name, difference in found.items()}, options.output)
    differs = any(one.problems or one.effect != changes.NOTHING for one in found.values())
    return EXIT_REFUSED if differs else 0


def _ready(obj: Mapping[str, Any]) -> bool:
    """Of the current generation: Ready is written for the one that it speaks of."""
    entry = find((obj.get("status") or {}).get("conditions"), Condition.READY)
    return entry.get("status") == "True" and entry.get("observedGeneration") == obj["metadata"].get("generation")


def _print(data: Any, output: str) -> None:
    if output == "text":
        print(printable(data))
        return
    text = json.dumps(data, indent=2, ensure_ascii=False, default=list)
    plain = printable(text) == text  # else both forms write such characters as escapes, and programs read what it was
    if output == "yaml":
        yaml.safe_dump(json.loads(text), sys.stdout, sort_keys=False, allow_unicode=plain, width=120)
    else:
        print(text if plain else json.dumps(data, indent=2, default=list))
