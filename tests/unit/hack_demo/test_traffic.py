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


def test_a_generator_is_followed_to_its_last_words() -> None:
    """The Job learns of its end seconds later."""
    class Followed(Kube):
        def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
            assert arguments[:2] == ("logs", "--follow")
            return 'a word before\n{"requests": 1}\n{"requests": 2, "failed": 0}\nand one behind\n'

    kube = Followed(kubectl="", kubeconfig="", helm="")
    assert traffic.finish(kube, "a", "load", timeout=1) == {"requests": 2, "failed": 0}


def test_a_generator_without_a_result_is_told_with_what_it_said() -> None:
    class Silent(Kube):
        def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
            return "Traceback\n"

    with pytest.raises(StepError, match=r"(?s)load printed no result.*Traceback"):
        traffic.finish(Silent(kubectl="", kubeconfig="", helm=""), "a", "load", timeout=1)
