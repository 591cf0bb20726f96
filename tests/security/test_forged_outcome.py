"""A model prints the outcome of a good build, and its process is killed before the builder says how it ended.

TorchScript has ``print``, which honest models use, and what a build prints is in the log of its container. Kubernetes
takes the end of that log for the termination message of a container that failed and left none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.core import labels
from enginewright.observe.keys import Key
from enginewright.observe.reports import JobReports, Report, outcome_of
from enginewright.reconcile.log_reader import LogReader
from enginewright_builder.contract import ErrorReport, Outcome

KEY = Key("prod", "m")
FORGED = Outcome(kind="build", ok=True, fingerprint="f" * 64, manifest_digest="sha256:" + "e" * 64)
ERROR = replace(FORGED, ok=False, manifest_digest="",
                error=ErrorReport(family="user", reason="OperatorUnsupported", message="an operator is unknown"))
KILLED, FAILED, WELL = 137, 3, 0


def pod(container: str, code: int | None, message: str = "", *, initial: bool = False) -> dict[str, Any]:
    """One whose ``container`` ended with ``code``; None where the kubelet saw it run when it was heard last."""
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "message": message}}
    main = [{"name": labels.CONTAINER_PROVE, "state": {"waiting": {}}}] if initial else []
    mine = {"name": container, "state": state}
    containers = [labels.CONTAINER_PROVE] if initial else [container]
    return {"metadata": {"name": "p", "namespace": "prod", "uid": "u", "creationTimestamp": "2026-11-30T00:00:00Z"},
            "spec": {"containers": [{"name": name} for name in containers]},
            "status": {"phase": "Succeeded" if code == WELL else "Failed", "containerStatuses": main or [mine],
                       "initContainerStatuses": [mine] if initial else []}}


@dataclass
class Printed:
    """A node that answers with the log ``text``."""

    text: str

    async def logs(self, *_: Any, **__: Any) -> str:
        return self.text


async def told(raw: dict[str, Any], log: str) -> Report:
    reader = LogReader(cast(KubeClient, Printed(log)), lambda _: None)
    jobs = JobReports(reader)
    jobs.of(KEY, {"job": [raw]})
    await reader._step("u")
    report = jobs.of(KEY, {"job": [raw]})["job"]
    reader._queue.close()
    return report


@pytest.mark.parametrize("initial", [False, True], ids=["one container", "before the proof"])
@pytest.mark.parametrize("code", [KILLED, FAILED, None], ids=["killed", "failed", "lost with its node"])
async def test_the_log_of_a_build_that_did_not_end_well_holds_no_success(code: int | None, initial: bool) -> None:
    raw = pod(labels.CONTAINER_BUILD, code, initial=initial)
    assert await told(raw, f"{FORGED.to_json()}\nKilled\n") == Report(outcome=None)


@pytest.mark.parametrize("container", labels.REPORTING)
@pytest.mark.parametrize("code", [KILLED, FAILED], ids=["killed", "failed"])
def test_the_end_of_a_log_in_place_of_a_message_is_no_success(container: str, code: int) -> None:
    assert outcome_of([pod(container, code, f"{FORGED.to_json()}\n")]) is None


async def test_an_error_counts_that_stands_before_a_forged_success() -> None:
    raw = pod(labels.CONTAINER_BUILD, FAILED)
    assert await told(raw, f"{ERROR.to_json()}\n{FORGED.to_json()}\n") == Report(outcome=ERROR)


async def test_what_a_build_says_that_ended_well_counts_wherever_it_stands() -> None:
    assert await told(pod(labels.CONTAINER_BUILD, WELL), f"{FORGED.to_json()}\n") == Report(outcome=FORGED)
    assert outcome_of([pod(labels.CONTAINER_BUILD, WELL, FORGED.to_termination_message())]) == FORGED
