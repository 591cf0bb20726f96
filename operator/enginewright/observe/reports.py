"""What the pods of a Job said: its outcome when it ended, its progress while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from enginewright.clients.kube import KubeClient
from enginewright.observe.fields import Raw, created, name_of, section, uid_of
from enginewright.observe.pods import has_ended, main_container, termination_messages
from enginewright_builder.contract import ContractError, Outcome, Progress, load

LOG_LINES: Final = 40
CACHE: Final = 1024
T = TypeVar("T", Outcome, Progress)


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
        pod = max(running, key=created)
        text = await self._kube.logs(namespace, name_of(pod), main_container(pod), tail=LOG_LINES)
        return newest(Progress, "progress", reversed(text.splitlines()))

    async def _logged(self, namespace: str, pod: Raw) -> Outcome | None:
        uid = uid_of(pod)
        if uid not in self._said:
            text = await self._kube.logs(namespace, name_of(pod), main_container(pod), tail=LOG_LINES)
            self._said[uid] = newest(Outcome, "outcome", reversed(text.splitlines()))
            if len(self._said) > CACHE:
                self._said.popitem(last=False)
        return self._said[uid]


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
