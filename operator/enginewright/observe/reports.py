"""What the pods of a Job said: its outcome when it ended, its progress while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import structlog

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.observe.fields import Raw, created, name_of, section, uid_of
from enginewright.observe.pods import has_ended, main_container, termination_messages
from enginewright_builder.contract import ContractError, Outcome, Progress, load

LOG_LINES: Final = 40
LOG_DEADLINE: Final = 3.0
CACHE: Final = 1024
T = TypeVar("T", Outcome, Progress)
log = structlog.get_logger(__name__)


class JobReports:
    """Reads pods' last words. What an ended pod's log says never changes, so it is asked for once."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._said: OrderedDict[str, Outcome | None] = OrderedDict()

    async def outcome(self, namespace: str, pods: Sequence[Raw]) -> Outcome | None:
        """Of the newest pod that ended, if it said anything: in its termination message, else in its log."""
        ended = sorted((pod for pod in pods if has_ended(pod)), key=created, reverse=True)
        if not ended:
            return None
        return newest(Outcome, "outcome", termination_messages(ended[0])) or await self._logged(namespace, ended[0])

    async def progress(self, namespace: str, pods: Sequence[Raw]) -> Progress | None:
        """Of the pod that runs, from the end of its log."""
        running = [pod for pod in pods if section(pod, "status").get("phase") == "Running"]
        if not running:
            return None
        lines = await self._log(namespace, max(running, key=created))
        return newest(Progress, "progress", lines or ())

    async def _logged(self, namespace: str, pod: Raw) -> Outcome | None:
        uid = uid_of(pod)
        if uid not in self._said:
            lines = await self._log(namespace, pod)
            if lines is None:
                return None
            self._said[uid] = newest(Outcome, "outcome", lines)
            if len(self._said) > CACHE:
                self._said.popitem(last=False)
        return self._said[uid]

    async def _log(self, namespace: str, pod: Raw) -> list[str] | None:
        """The newest line first; None when it could not be read. Logs come from nodes, which may be gone: a pass must
        not fail for want of them."""
        try:
            text = await self._kube.logs(
                namespace, name_of(pod), main_container(pod), tail=LOG_LINES, deadline=LOG_DEADLINE
            )
        except ClientError as error:
            log.info("log of a pod cannot be read", pod=f"{namespace}/{name_of(pod)}", error=str(error))
            return None
        return text.splitlines()[::-1]


def newest(kind: type[T], event: str, lines: Iterable[str]) -> T | None:
    """The first of ``lines`` that is a document of that kind. Other lines are other programs' words, or a document that
    was cut off: neither is an error here."""
    for line in lines:
        if event not in line:
            continue
        try:
            document = load(kind, line)
        except ContractError:
            continue
        if document.event == event:
            return document
    return None
