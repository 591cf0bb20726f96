"""One program of the cluster: how it is started, when it is ready, how it is stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster import process
from cluster.paths import ClusterPaths
from cluster.probes import Probe, wait_for
from cluster.steps import step


@dataclass(frozen=True)
class Component:
    """What to run under which name.

    Attributes:
        ready: holds once the component serves.
    """

    name: str
    argv: tuple[str, ...]
    ready: Probe
    ready_timeout_s: float = 60.0


def record_path(paths: ClusterPaths, name: str) -> Path:
    return paths.records / f"{name}.json"


def is_running(paths: ClusterPaths, name: str) -> bool:
    """Whether the component's recorded process still runs."""
    record = process.read_record(record_path(paths, name))
    return record is not None and process.is_alive(record)


def launch(paths: ClusterPaths, component: Component) -> None:
    """Start it unless it runs; does not wait."""
    if is_running(paths, component.name):
        return
    log = paths.log(component.name)
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    process.start(record_path(paths, component.name), component.argv, log, paths.state)


def await_ready(paths: ClusterPaths, component: Component) -> None:
    """Wait until it serves.

    Raises:
        ClusterError: it ended or did not become ready in time; names its log.
    """
    with step(f"{component.name} ready"):
        record, log = record_path(paths, component.name), paths.log(component.name)
        wait_for(component.name, component.ready, record, log, component.ready_timeout_s)


def halt(paths: ClusterPaths, name: str, grace_s: float = 10.0) -> None:
    """Stop it if it runs, and forget it."""
    path = record_path(paths, name)
    record = process.read_record(path)
    if record is not None:
        process.stop(record, grace_s)
    path.unlink(missing_ok=True)


def halt_together(paths: ClusterPaths, names: Iterable[str], grace_s: float = 15.0) -> None:
    """Stop several, all at once."""
    listed = list(names)
    records = [record for name in listed if (record := process.read_record(record_path(paths, name))) is not None]
    with step(f"{', '.join(listed)} stopped"):
        process.stop_all(records, grace_s)
    for name in listed:
        record_path(paths, name).unlink(missing_ok=True)
