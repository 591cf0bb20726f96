"""What the pods of a Job said: its outcome when it ended, its progress while it runs.

Termination messages are in the pods that a pass has read. Logs come from nodes, which may not answer: they are read
beside passes (:mod:`enginewright.reconcile.log_reader`), and a pass takes what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from enginewright.observe.fields import Raw, created, name_of, section, uid_of
from enginewright.observe.keys import Key
from enginewright.observe.pods import (
    container_ended_well,
    has_ended,
    last_words,
    out_of_reach,
    phase_of,
    working_container,
)
from enginewright_builder.contract import ContractError, Outcome, Progress, load

# Of a log, how much is parsed at most: a user who makes a pod with our labels chooses what it prints.
PARSED_BYTES: Final = 64 << 10
# Of one document, to be parsed once. Kubernetes takes this much of a termination message.
REMEMBERED_BYTES: Final = 4 << 10
T = TypeVar("T", Outcome, Progress)


@dataclass(frozen=True, kw_only=True)
class PodLog:
    """Whose log is to be read, and whether the pod has ended: then it is read once, for the outcome. ``well``: the
    container ended with exit code 0."""

    namespace: str
    pod: str
    container: str
    ended: bool
    well: bool = False


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a log has told so far. ``tried``: it was asked for since the pod ended, with or without success."""

    progress: Progress | None = None
    outcome: Outcome | None = None
    tried: bool = False


class Logs(Protocol):
    """The reader beside the passes."""

    def follow(self, key: Key, wanted: Mapping[str, PodLog]) -> None:
        """From now on reads these logs for the object, by the pod's UID, and none that it wanted before. Wakes ``key``
        when one tells something new."""

    def said(self, uid: str) -> Said: ...


@dataclass(frozen=True, kw_only=True)
class Report:
    """Of one Job. ``awaited`` names the pod that has ended and whose log, which may hold the outcome, is not read yet:
    until then it is unknown how the Job ended."""

    outcome: Outcome | None = None
    progress: Progress | None = None
    awaited: str = ""


@dataclass(frozen=True)
class JobReports:
    logs: Logs

    def of(self, key: Key, pods_by_job: Mapping[str, Sequence[Raw]]) -> Mapping[str, Report]:
        """By Job, of all Jobs of the object. Waits for nothing."""
        wanted: dict[str, PodLog] = {}
        chosen = {job: _Pods.of(pods) for job, pods in pods_by_job.items()}
        for pods in chosen.values():
            wanted |= pods.logs
        self.logs.follow(key, wanted)
        return {job: self._report(pods) for job, pods in chosen.items()}

    def forget(self, key: Key) -> None:
        self.logs.follow(key, {})

    def _report(self, pods: _Pods) -> Report:
        progress = self.logs.said(uid_of(pods.running)).progress if pods.running else None
        if pods.outcome or pods.ended is None or uid_of(pods.ended) not in pods.logs:
            return Report(outcome=pods.outcome, progress=progress)
        said = self.logs.said(uid_of(pods.ended))
        return Report(outcome=said.outcome, progress=progress or said.progress,
                      awaited="" if said.tried else name_of(pods.ended))


def outcome_of(pods: Sequence[Raw]) -> Outcome | None:
    """What the newest of a Job's pods that ended wrote as its termination message, if that was an outcome."""
    return _Pods.of(pods).outcome


@dataclass(frozen=True, kw_only=True)
class _Pods:
    """Of a Job: the newest that ended, with the outcome in its termination message, and the newest that runs. ``logs``
    are those that can tell more, of pods within reach."""

    ended: Raw | None = None
    running: Raw | None = None
    outcome: Outcome | None = None
    logs: Mapping[str, PodLog] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Sequence[Raw]) -> _Pods:
        ended = max(filter(has_ended, pods), key=created, default=None)
        running = max((pod for pod in pods if phase_of(pod) == "Running" and not has_ended(pod)), key=created,
                      default=None)
        words = last_words(ended) if ended else ()
        outcome = next((found for one in words if (found := outcome_in([one.message], well=one.well))), None)
        asked = [running, None if outcome else ended]
        return cls(ended=ended, running=running, outcome=outcome,
                   logs={uid_of(pod): _log(pod) for pod in asked if pod and not out_of_reach(pod)})


def _log(pod: Raw) -> PodLog:
    container = working_container(pod)
    return PodLog(namespace=str(section(pod, "metadata").get("namespace") or ""), pod=name_of(pod),
                  container=container, ended=has_ended(pod), well=container_ended_well(pod, container))


def outcome_in(lines: Iterable[str], *, well: bool) -> Outcome | None:
    """The first of ``lines``, the newest first, that is an outcome. A container that did not end ``well`` reports
    errors alone: the builder ends with exit code 0 after each success, while a model can print any line before its
    process is killed, and Kubernetes takes the end of the log for the message of a container that failed without."""
    return next((one for one in documents(Outcome, "outcome", lines) if well or not one.ok), None)


def newest(kind: type[T], event: str, lines: Iterable[str]) -> T | None:
    """The first of ``lines`` that is a document of that kind."""
    return next(iter(documents(kind, event, lines)), None)


def documents(kind: type[T], event: str, lines: Iterable[str]) -> Iterable[T]:
    """Those of that kind among ``lines``. Other lines are other programs' words, or a document that was cut off:
    neither is an error here. Lines are parsed up to ``PARSED_BYTES`` in all."""
    left = PARSED_BYTES
    for line in lines:
        if event not in line:
            continue
        left -= len(line)
        if left < 0:
            return
        document: Any = _outcome(line) if kind is Outcome and len(line) <= REMEMBERED_BYTES else _document(kind, line)
        if document is not None and document.event == event:
            yield document


@lru_cache(maxsize=256)  # what a pod has said when it ended stays, and each pass reads it
def _outcome(line: str) -> Outcome | None:
    return _document(Outcome, line)


def _document(kind: type[T], line: str) -> T | None:
    try:
        return load(kind, line)
    except ContractError:
        return None
