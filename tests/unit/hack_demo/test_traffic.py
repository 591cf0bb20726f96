"""How the load generator of the demo and of the drill is ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo import traffic
from demo.shell import Kube, StepError


class Cluster(Kube):
    """Nothing can be run in the generator's pods, which are in ``phases``."""

    phases: tuple[str, ...] = ()

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
        if arguments[0] == "exec":
            raise StepError("cannot exec into a container in a completed pod")
        items: list[dict[str, Any]] = [{"status": {"phase": phase}} for phase in self.phases]
        return json.dumps({"items": items})


@pytest.mark.parametrize(("phases", "ended"), [
    (("Succeeded",), True), (("Failed",), True), (("Running",), False), (("Failed", "Running"), False), ((), False)])
def test_a_generator_that_has_ended_by_itself_needs_no_end(phases: tuple[str, ...], ended: bool) -> None:
    """As on a slow machine, where what it accompanies takes longer than it was given."""
    cluster = type("Cluster", (Cluster,), {"phases": phases})(kubectl="", kubeconfig="", helm="")
    if ended:
        traffic.stop(cluster, "a", "load", patience=0)
        return
    with pytest.raises(StepError, match="cannot exec"):
        traffic.stop(cluster, "a", "load", patience=0)
