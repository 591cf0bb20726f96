"""The pod of a language model's build: who holds the device, who sees what, and by what the containers speak."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from enginewright.core.config import OperatorConfig
from enginewright.core.planner.objects import views_of
from enginewright_builder.cli import _build_parser, _proof_options
from enginewright_builder.supervise import CHECKPOINTS, DRAFTS
from support.children import children_of
from support.specs import language_models

JSON = dict[str, Any]
CONFIG = OperatorConfig(job_env={"HTTPS_PROXY": "http://proxy.example:3128"})
CPU: JSON = {"task": "generate", "source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"},
             "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}}


def pod_of(raw: JSON) -> JSON:
    found: JSON = children_of("m", raw, CONFIG).all()["build_job"]["spec"]["template"]["spec"]
    return found


def containers(raw: JSON) -> dict[str, JSON]:
    pod = pod_of(raw)
    assert [one["name"] for one in pod["initContainers"]] == ["build", "server"]
    assert [one["name"] for one in pod["containers"]] == ["prove"]
    return {one["name"]: one for one in [*pod["initContainers"], *pod["containers"]]}


def mounts(container: JSON, *, writable: bool = False) -> set[str]:
    return {mount["name"] for mount in container["volumeMounts"] if not (writable and mount.get("readOnly"))}


@given(language_models())
def test_the_server_sees_the_model_alone_and_each_folder_has_one_writer(raw: JSON) -> None:
    found = containers(raw)
    server = found["server"]
    assert server["restartPolicy"] == "Always"
    assert mounts(server) == {"work", "control", "witness", "server-tmp", "server-shm"}
    assert mounts(server, writable=True) == {"witness", "server-tmp", "server-shm"}
    shown = {one["subPath"] for one in server["volumeMounts"] if one["name"] == "work"}
    assert shown - {"hand-over/checkpoints", "hand-over/drafts"} == {"hand-over/model", "program"}
    assert "envFrom" not in server
    assert {one["name"] for one in server.get("env", [])} <= {"NVIDIA_VISIBLE_DEVICES"}
    for name in ("build", "prove"):
        assert {"store", "signing-keys", "work"} <= mounts(found[name])
        assert not {"server-tmp", "server-shm"} & mounts(found[name])
    assert not {"control", "witness"} & mounts(found["build"])
    assert not any(name == "request" or name.startswith("source-") for name in mounts(found["prove"]))
    assert "control" in mounts(found["prove"], writable=True)
    assert {"witness", "signing-keys"}.isdisjoint(mounts(found["prove"], writable=True))


@given(language_models())
def test_the_server_alone_has_the_device(raw: JSON) -> None:
    pod = pod_of(raw)
    build, server = pod["initContainers"]
    plain = {**pod, "initContainers": [], "containers": [server]}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {}}
    seen, before = (views_of([node, {"kind": "Pod", "metadata": {"name": "p"}, "spec": {**one, "nodeName": "n"}}])[0]
                    for one in (pod, plain))
    assert [one.devices for one in seen.pods] == [one.devices for one in before.pods]
    for container in (build, *pod["containers"]):
        assert "claims" not in container["resources"]
        assert not any("/" in name for kind in container["resources"].values() for name in kind)
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert build["resources"]["requests"]["memory"] == server["resources"]["requests"]["memory"]


def test_each_program_knows_its_words_and_their_folders_are_those_of_the_mounts() -> None:
    found = containers(CPU)
    built = _build_parser().parse_args(found["build"]["args"][1:])
    proven = _proof_options(found["prove"]["args"][1:])
    assert built.hand_over == proven.hand_over
    words = found["server"]["args"]
    assert found["server"]["command"] == ["python3", "-I", "-S", "/program"]
    assert words[words.index("--"):] == ["--", "vllm", "serve"]
    at = {(one["name"], one.get("subPath", "")): one["mountPath"] for one in found["server"]["volumeMounts"]}
    told = dict(zip(words[:6:2], words[1:6:2], strict=True))
    assert told == {"--control": str(proven.control), "--witness": str(proven.witness), "--model": "/model"}
    assert (at["control", ""], at["witness", ""]) == (told["--control"], told["--witness"])
    assert at["work", "hand-over/model"] == told["--model"]
    assert built.hand_over.relative_to("/work").as_posix() == "hand-over"
    assert built.program.relative_to("/work").as_posix() == "program"


@pytest.mark.parametrize(("field", "folder"), [("checkpoints", CHECKPOINTS), ("drafts", DRAFTS)])
def test_what_is_listed_lies_beside_the_model_where_the_program_looks_for_it(field: str, folder: str) -> None:
    assert f"hand-over/{folder}" not in {one.get("subPath") for one in containers(CPU)["server"]["volumeMounts"]}
    listed = containers({**CPU, "engine": {field: [{"name": "awq", "uri": "pvc://quantised/awq"}]}})
    (mount,) = (one for one in listed["server"]["volumeMounts"] if one.get("subPath") == f"hand-over/{folder}")
    assert mount == {"name": "work", "mountPath": f"/{folder}", "subPath": f"hand-over/{folder}", "readOnly": True}
    assert {"source-0", "source-1"} <= mounts(listed["build"])
    assert not any(name.startswith("source-") for name in mounts(listed["prove"]) | mounts(listed["server"]))


def test_bad_input_of_either_half_is_not_tried_again() -> None:
    rules = children_of("m", CPU, CONFIG).all()["build_job"]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule] == ["build", "prove"]
