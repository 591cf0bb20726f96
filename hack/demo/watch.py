"""Following a build as it happens: the builder's JSON progress lines become one bar."""

from __future__ import annotations

import json
import time
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from demo.follow import Followed
from demo.shell import Kube, StepError
from enginewright_builder.contract import printable

POLL_SECONDS = 0.5
# While a build measures on the same cores: a call of kubectl, for its progress, takes an eighth of a second of one.
BUILDING_POLL_SECONDS = 2.0
# Characters of what a build does now: more would leave no room for the bar.
DETAIL_WIDTH = 48


def condition(model: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of type ``kind``, or an empty mapping while there is none."""
    conditions = model.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


def wait_for(kube: Kube, namespace: str, name: str, kind: str, timeout: float) -> dict[str, Any]:
    """Waits until condition ``kind`` is True for the current generation, with a bar while a build runs; where no
    terminal shows that, with a line for each step.

    Raises :class:`StepError` with the conditions' messages after ``timeout`` seconds, or at once when a condition says
    that nothing will change by itself.
    """
    deadline = time.monotonic() + timeout
    columns = (TextColumn("  {task.description:<28}", markup=False), BarColumn(36), TaskProgressColumn(),
               TimeElapsedColumn(), TextColumn("{task.fields[detail]}", markup=False))
    with Followed(kube, "optimisedmodel", namespace, name) as models, Progress(*columns, transient=False) as bars:
        bar, printed = bars.add_task("waiting for the operator", total=1.0, detail=""), ""
        while time.monotonic() < deadline:
            (model,) = models.now(timeout)
            shown = printable(_show(bars, bar, kube, namespace, name, model))
            if shown not in ("", printed) and not bars.console.is_terminal:
                bars.console.print(f"  {shown}", markup=False, highlight=False, soft_wrap=True)
                printed = shown
            found = condition(model, kind)
            if found.get("status") == "True" and found.get("observedGeneration") == model["metadata"]["generation"]:
                bars.update(bar, completed=1.0, description=f"{kind}: {found['reason']}", detail="")
                return model
            _fail_early(model)
            measures = condition(model, "EngineBuilt").get("reason") == "Building" and not bars.finished
            time.sleep(BUILDING_POLL_SECONDS if measures else POLL_SECONDS)
    raise StepError(f"{kind} did not become True within {timeout:.0f} s\n{explain(model)}")


def explain(model: dict[str, Any]) -> str:
    """One line for each condition."""
    lines = [f"  {c['type']:<17} {c['status']:<6} {c['reason']}: {c['message']}"
             for c in model.get("status", {}).get("conditions", [])]
    return "\n".join(lines) or "  no condition yet: is the operator running?"


def _fail_early(model: dict[str, Any]) -> None:
    """Stops waiting for what waits for the user: the operator then names the command that tries again."""
    for item in model.get("status", {}).get("conditions", []):
        if item["status"] == "False" and "kubectl optimisedmodel retry" in item["message"]:
            raise StepError(f"{item['type']} is False: {item['reason']}\n{explain(model)}")


def _show(bars: Progress, bar: Any, kube: Kube, namespace: str, name: str, model: dict[str, Any]) -> str:
    """What it shows, in words."""
    built = condition(model, "EngineBuilt")
    if built.get("status") == "True":
        rollout = condition(model, "RolloutComplete")
        text = f"rollout: {rollout.get('reason', '')}"
        bars.update(bar, completed=1.0, description=text, detail="")
        return text
    line = _newest_progress(kube, namespace, name) if built.get("reason") == "Building" else None
    if line:
        bars.update(bar, completed=line["fraction"], description=f"build: {line['step']}",
                    detail=printable(line["detail"][:DETAIL_WIDTH]))
        return f"build: {line['step']}: {line['detail']}"
    if built:
        bars.update(bar, description=built["reason"])
    return str(built.get("reason", ""))


def _newest_progress(kube: Kube, namespace: str, name: str) -> dict[str, Any] | None:
    """Of one container after the other: the first builds, the last proves what it built."""
    selector = f"enginewright.io/model={name},app.kubernetes.io/component=build"
    try:
        # A container that has not started is an error among the lines.
        text = kube("logs", "-n", namespace, "-l", selector, "--all-containers", "--ignore-errors", "--tail=5")
    except StepError:
        return None  # no pod
    found = [entry for entry in map(_entry, text.splitlines()) if entry.get("event") == "progress"]
    return max(reversed(found), key=lambda entry: float(entry["fraction"]), default=None)


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return entry if isinstance(entry, dict) else {}
