"""How the demo's images get to its cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

import demo.__main__ as demo
from demo.shell import CLUSTER, IMAGES, StepError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A fake for the two scripts: notes how they are called, and answers as they do."""
    made: list[tuple[Any, ...]] = []

    def run(*command: Any, **options: Any) -> str:
        made.append(command)
        if command[1] == "push":
            return json.dumps({name: f"{command[2]}/enginewright-{name}:1" for name in demo.ALL_IMAGES})
        return json.dumps({name: {"reference": f"localhost/enginewright-{name}:1", "archive": f"/{name}.tar"}
                           for name in demo.ALL_IMAGES})

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.delenv("CLUSTER", raising=False)
    monkeypatch.delenv("IMAGE_REGISTRY", raising=False)
    return made


def test_a_cluster_of_ours_gets_archives(calls: list[tuple[Any, ...]]) -> None:
    assert demo.load_images()["server"] == "localhost/enginewright-server:1"
    assert calls[-1] == (CLUSTER, "load-image", "/operator.tar", "/builder.tar", "/server.tar")


@pytest.mark.parametrize(("registry", "options"), [("registry.example.com/team", ()),
                                                   ("127.0.0.1:5000", ("--insecure",))])
def test_an_existing_cluster_pulls_from_a_registry(registry: str, options: tuple[str, ...],
                                                   calls: list[tuple[Any, ...]],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "existing")
    monkeypatch.setenv("IMAGE_REGISTRY", registry)
    assert demo.load_images()["operator"] == f"{registry}/enginewright-operator:1"
    assert calls == [(IMAGES, "push", registry, *options, *demo.ALL_IMAGES)]


def test_more_images_travel_the_same_way(calls: list[tuple[Any, ...]]) -> None:
    demo.load_images(("operator", "server"))
    assert calls == [(IMAGES, "build", "--json", "operator", "server"),
                     (CLUSTER, "load-image", "/operator.tar", "/server.tar")]


def test_without_a_registry_nothing_is_started(calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "existing")
    with pytest.raises(StepError, match="IMAGE_REGISTRY: write host"):
        demo.load_images()
    assert calls == []
