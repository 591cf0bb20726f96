"""What `make demo-clean` takes away, by the cluster that the demo ran on."""

from __future__ import annotations

from typing import Any

import pytest

import demo.__main__ as demo
from demo.shell import CLUSTER, Kube


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Fakes for the scripts, kubectl and Helm: note how they are called, and say that all is there that they name."""
    made: list[tuple[Any, ...]] = []

    def run(*command: object, **_: object) -> str:
        made.append(command)
        return " ".join(map(str, command))

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr("demo.shell.run", run)
    monkeypatch.setattr(Kube, "of_cluster", lambda: Kube("kubectl", "config", "helm"))
    return made


@pytest.mark.parametrize("provider", ["", "local", "kind"])
def test_a_cluster_that_the_demo_made_goes_with_it(provider: str, calls: list[tuple[Any, ...]],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", provider)
    demo.clean()
    assert calls == [(CLUSTER, "down")]


def test_somebody_elses_cluster_stays_and_the_demo_goes(calls: list[tuple[Any, ...]],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "existing")
    demo.clean()
    assert (CLUSTER, "down") not in calls
    said = [" ".join(str(word) for word in call) for call in calls]
    # The demo deletes the owners first, which would make pods again, and orphans the pods: garbage collection would end
    # them with their drain. It deletes pods before their namespace, which is slow to look again.
    left = "--all -n enginewright-demo --cascade=orphan"
    wanted = [f"delete om {left}", f"delete deployment,replicaset,job {left}", "delete pod --all",
              "delete namespace enginewright-demo", "uninstall enginewright", "delete crd optimisedmodels"]
    found = [next((number for number, call in enumerate(said) if one in call), -1) for one in wanted]
    assert -1 not in found
    assert found == sorted(found)
