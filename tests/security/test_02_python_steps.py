"""Finding 2 once more: functions of a source's folder (docs/adr/0049-python-steps.md) run where the key of engines is
not."""

from __future__ import annotations

import dataclasses
import json
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright.core.request import SIGNING_PATH, build_request
from enginewright_builder.contract import BuildRequest, Interface, PythonSteps, SourceRequest
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.models import load_model, own_steps_process
from enginewright_builder.models.own_steps import OwnStepped
from enginewright_builder.models.own_steps_worker import packed, receive, send
from enginewright_builder.own_steps import check_request
from enginewright_builder.sources.formats import locate
from support.children import children_of, resolved_of, runtime_of
from support.own_steps import BOTH, TEXT, TEXTS, client, folder, runner

JSON = dict[str, Any]
OWN: JSON = {"inputs": [{"name": "text", "dtype": "string", "shape": ["batch", 1]}],
             "pythonSteps": {"preprocess": "steps.py:tokens"}}
SPECS: dict[str, JSON] = {
    "cpu": {"source": {"uri": "pvc://models/a", "secretRef": {"name": "models"}}, "interface": OWN,
            "placement": {"accelerator": "cpu"}},
    "gpu": {"source": {"uri": "pvc://models/a"}, "interface": OWN, "placement": {"gpu": {"product": "NVIDIA-H200"}},
            "engine": {"podTemplate": {"spec": {"containers": [
                {"name": "build", "env": [{"name": "HF_TOKEN", "value": "secret"}]}]}}}},
}
PRYING = """
import os
from pathlib import Path
import numpy as np

def bag(inputs):
    starter = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    return {"bag": np.full((1, 32), int(starter), np.float32)}
"""


@pytest.mark.parametrize("kind", SPECS)
def test_no_container_that_runs_functions_sees_the_key(kind: str) -> None:
    children = children_of("m", SPECS[kind])
    pod = children.all()["build_job"]["spec"]["template"]["spec"]
    found = {one["name"]: one for one in [*pod["initContainers"], *pod["containers"]]}
    assert list(found) == ["python-steps", "build", "server", "prove"]
    mounted = {name: {mount["name"] for mount in one["volumeMounts"]} for name, one in found.items()}
    assert mounted["python-steps"] == {"python-steps", "python-steps-tmp"}
    assert "signing-keys" not in mounted["server"], "it runs the functions as a replica does"
    assert [name for name, volumes in mounted.items() if "signing-keys" in volumes] == ["build", "prove"]
    assert [name for name, volumes in mounted.items() if "python-steps-tmp" in volumes] == ["python-steps"]
    assert [mount.get("readOnly") for mount in found["build"]["volumeMounts"] if mount["name"] == "python-steps"] == [
        True]
    own = found["python-steps"]
    assert own["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "envFrom" not in own
    assert not any("/" in name for amounts in own["resources"].values() for name in amounts)
    assert not pod.get("shareProcessNamespace")
    asked = build_request("m", children.spec, resolved_of(children.spec), children.placement, children.config,
                          runtime_of(children.spec, children.config))
    assert asked.signing_keys == SIGNING_PATH
    assert asked.steps_socket == own["args"][-1]


def test_a_build_that_could_sign_runs_no_function_itself() -> None:
    asked = BuildRequest(model_name="m", source=SourceRequest(uri="/m"), interface=BOTH, signing_keys=SIGNING_PATH)
    with pytest.raises(UserError, match="no container without the key") as caught:
        check_request(asked)
    assert caught.value.reason == "RequestInvalid"
    check_request(dataclasses.replace(asked, steps_socket="/python-steps/socket"))
    check_request(dataclasses.replace(asked, signing_keys=""))


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """What runs in the container: its socket and its process."""
    with runner(tmp_path / "socket") as process:
        yield tmp_path / "socket", process.pid


def opened(source: Path, workspace: Path, at: Path, interface: Interface = BOTH) -> OwnStepped:
    workspace.mkdir()
    model = load_model(locate(source), interface, workspace, runner=at)
    assert isinstance(model, OwnStepped)
    return model


def rows(*texts: str) -> JSON:
    return {"text": np.array(texts, np.object_)[:, None]}


def test_functions_of_a_job_run_in_the_other_container(listening: tuple[Path, int], tmp_path: Path) -> None:
    at, starter = listening
    steps = Interface(inputs=(TEXT,), python_steps=PythonSteps(preprocess="steps.py:bag"))
    model = opened(folder(tmp_path / "prying", PRYING), tmp_path / "one", at, steps)
    assert model.before(rows("a"))["bag"][0, 0] == starter
    whole = opened(folder(tmp_path / "source"), tmp_path / "two", at)
    labels, scores = client(TEXTS)
    found = whole.run(rows(*TEXTS))
    assert [label for label, in found["label"]] == labels
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="this text breaks the function"):
        whole.run(rows("break"))


def test_a_container_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="does not answer"):
        opened(folder(tmp_path / "source"), tmp_path / "work", tmp_path / "socket")


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("planted"),)


@pytest.mark.parametrize(("head", "body"), [
    ({}, pickle.dumps({"bag": Planted()})),
    ({}, b"PK\x03\x04 no archive"),
    ({"size": 1 << 50}, b""),
    ({"size": -1}, b""),
    ([], b""),
], ids=["pickle", "no-archive", "too-large", "negative", "no-object"])
def test_an_answer_is_read_as_a_strangers(head: Any, body: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                          ) -> None:
    """The socket's other side is whatever the user's code makes of it."""
    monkeypatch.chdir(tmp_path)
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rwb") as stranger:
        monkeypatch.setattr(own_steps_process, "_connected", lambda at: ours)
        send(stranger, {})  # to "open"
        told = tmp_path / "own_steps.json"
        told.write_text('{"preprocess": "steps.py:bag", "postprocess": ""}')
        process = own_steps_process.Process({"own_steps.json": told}, tmp_path, tmp_path / "socket")
        if head == {}:
            send(stranger, head, body)
        else:
            stranger.write(json.dumps(head).encode() + b"\n")
            stranger.flush()
        with pytest.raises(UserError) as caught:
            process.ask("before", {"a": np.zeros(1)})
        assert caught.value.reason == "StepInvalid"
        assert [receive(stranger) is not None for _ in range(3)] == [True] * 3
    assert not (tmp_path / "planted").exists()
    assert packed({"a": np.array(["ä"], np.object_)})
