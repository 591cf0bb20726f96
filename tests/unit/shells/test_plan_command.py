"""``enginewright plan``: what it reads, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.cli import main
from enginewright.clients.resources import Resource
from support.fleets import H100
from support.nodes import node, pod


def model(name: str, replicas: int = 1, profile: str = "", **placement: Any) -> dict[str, Any]:
    where = {"gpu": {"product": H100}, **({"mig": {"profile": profile}} if profile else {}), **placement}
    return {"apiVersion": "enginewright.io/v1alpha1", "kind": "OptimisedModel", "metadata": {"name": name},
            "spec": {"source": {"uri": "pvc://models/m"}, "placement": where, "replicas": replicas}}


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, *objects: Any) -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(objects) if name.endswith("yaml") else json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_what_fits_what_does_not_and_what_would_help(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    models = files("models.yaml", model("minilm", 2, "1g.10gb"), model("large", 2))
    nodes = files("nodes.json", node("gpu-a", H100, count=1, **{"mig-1g.10gb": 3, "mig-3g.40gb": 1}),
                  node("gpu-b", H100, count=1, **{"mig-3g.40gb": 2}),
                  pod("p", "gpu-a", {"nvidia.com/mig-1g.10gb": 1}))
    code, out, _ = run(capsys, "-f", models, "--nodes", nodes)
    assert code == 0
    assert "  minilm  0        gpu-a  0    1g.10gb at slice 2\n  minilm  1        gpu-a  0    1g.10gb at slice 3" in out
    assert "  large  1         layout    would fit if GPU gpu-b/0 were cut as proposed" in out
    assert "  large  1         capacity  needs a whole GPU each; " in out
    fragment = out[out.index("version: v1"):out.index("Once it is")]
    assert yaml.safe_load(fragment)["mig-configs"] == {
        "enginewright-gpu-b": [{"devices": [0], "mig-enabled": False}]}
    assert "kubectl label node gpu-b nvidia.com/mig.config=enginewright-gpu-b --overwrite" in out


def test_json(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    models = files("models.yaml", model("minilm", 1, "1g.10gb"))
    nodes = files("nodes.yaml", node("gpu-a", H100, count=1, **{"mig-3g.40gb": 2}))
    code, out, _ = run(capsys, "-f", models, "--nodes", nodes, "-o", "json")
    told = json.loads(out)
    assert code == 0
    assert told["placements"] == []
    assert told["doesNotFit"] == [{"demand": "minilm", "replicas": 1, "why": "layout",
                                   "message": "would fit if GPU gpu-a/0 were cut as proposed"}]
    assert told["proposal"]["migParted"]["mig-configs"]["enginewright-gpu-a"] == [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 1, "3g.40gb": 1}}]


def test_the_whole_node_stands_in_the_fragment(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not named there would be for mig-parted to guess."""
    models = files("models.yaml", model("m", 1, "2g.20gb"))
    nodes = files("nodes.json", node("n", H100, count=3, gpu=1, **{"mig-7g.80gb": 2}),
                  pod("p", "n", {"nvidia.com/mig-7g.80gb": 1}), pod("q", "n", {"nvidia.com/gpu": 1}))
    _, out, _ = run(capsys, "-f", models, "--nodes", nodes, "-o", "json")
    parts = json.loads(out)["proposal"]["migParted"]["mig-configs"]["enginewright-n"]
    assert parts == [{"devices": [0], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}},
                     {"devices": [1], "mig-enabled": True, "mig-devices": {"2g.20gb": 1}},
                     {"devices": [2], "mig-enabled": False}]


def test_replicas_that_run_are_not_planned_again(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"enginewright.io/model": "minilm", "app.kubernetes.io/component": "server"}
    models = files("models.yaml", model("minilm", 2, "1g.10gb"))
    nodes = files("nodes.json", node("n", H100, count=1, **{"mig-1g.10gb": 7}),
                  pod("p", "n", {"nvidia.com/mig-1g.10gb": 1}, labels=labels))
    _, out, _ = run(capsys, "-f", models, "--nodes", nodes, "-o", "json")
    assert len(json.loads(out)["placements"]) == 1
    assert "minilm: 1 of 2 replicas already run" in json.loads(out)["notes"]


@pytest.mark.parametrize(("taint", "fits"), [("nvidia.com/gpu", 1), ("team-b", 0)])
def test_taints_and_selectors(files: Files, capsys: pytest.CaptureFixture[str], taint: str, fits: int) -> None:
    tainted = node("n", H100, count=1, gpu=1)
    tainted["spec"]["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    models = files("models.yaml", model("m"), model("elsewhere", nodeSelector={"zone": "x"}))
    _, out, _ = run(capsys, "-f", models, "--nodes", files("nodes.json", tainted), "-o", "json")
    assert [seat["demand"] for seat in json.loads(out)["placements"]] == ["m"] * fits


@pytest.mark.parametrize(("made", "said"), [
    (model("m", 1, "auto"), 'm: spec.placement.mig.profile: neither its manifest nor its '
     'status has the model\'s size (got "auto"); name a profile such as 1g.10gb, or plan with'),
    (model("m", 1, "1g.99gb"),
     'm: spec.placement.mig.profile: is not a profile of NVIDIA-H100-80GB-HBM3 (got "1g.99gb")'),
    (model("m", -1), "m: spec.replicas: is less than 0 (got -1)"),
])
def test_a_model_that_cannot_be_planned_is_refused(
    files: Files, capsys: pytest.CaptureFixture[str], made: dict[str, Any], said: str
) -> None:
    nodes = files("nodes.json", node("n", H100, count=1, gpu=1))
    code, out, err = run(capsys, "-f", files("models.yaml", made), "--nodes", nodes)
    assert (code, out) == (1, "")
    assert said in err


def test_of_a_fleet_each_class_is_planned(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """From its manifest alone, and beside the objects of its classes that a cluster has."""
    slices = {"name": "slice", "gpu": {"product": H100}, "mig": {"profile": "1g.10gb"}, "minReplicas": 2}
    placement = {"classes": [slices, {"name": "cpu", "accelerator": "cpu"}]}
    fleet = {**model("m"), "spec": {"source": {"uri": "pvc://m/a"}, "placement": placement}}
    nodes = files("nodes.json", node("n", H100, count=1, **{"mig-1g.10gb": 3}))
    member = model("m-slice", 1, "1g.10gb")
    for objects, demands in (((fleet,), ["m-slice"] * 2), ((fleet, member), ["m-slice"])):
        _, out, _ = run(capsys, "-f", files("m.yaml", *objects), "--nodes", nodes, "-o", "json")
        assert [seat["demand"] for seat in json.loads(out)["placements"]] == demands
        assert "m-cpu is left out: it runs on CPUs" in json.loads(out)["notes"]


def test_auto_takes_what_the_operator_chose(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = {**model("m", 1, "auto"), "status": {"placement": {"accelerator": "gpu", "migProfile": "2g.20gb"}}}
    nodes = files("nodes.json", node("n", H100, count=1, **{"mig-1g.10gb": 1, "mig-2g.20gb": 1}))
    _, out, _ = run(capsys, "-f", files("m.yaml", chosen), "--nodes", nodes, "-o", "json")
    assert [seat["profile"] for seat in json.loads(out)["placements"]] == ["2g.20gb"]


def test_a_model_that_stands_there_twice(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = files("nodes.json", node("n", H100, count=1, gpu=1))
    code, _, err = run(capsys, "-f", files("m.yaml", model("m"), model("m")), "--nodes", nodes)
    assert (code, err) == (1, "enginewright: metadata.name: is repeated (got m); give each model once, or add "
                              "its namespace\n")


def test_a_node_that_makes_no_sense(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "-f", files("m.yaml", model("m")), "--nodes", files("n.json", node("n", "", gpu=1)))
    assert code == 1
    assert "node n: metadata.labels[nvidia.com/gpu.product]: is missing" in err


@pytest.mark.parametrize(("content", "said"), [
    ("{", "is neither YAML nor JSON"), ("a: 2023-99-99", "is neither YAML nor JSON: month must be in 1..12"),
    ("kind: Pod\n", "has no Node; write it with: kubectl get nodes,pods -A -o json"),
    (None, "cannot be read"),
])
def test_files_that_cannot_be_read(
    files: Files, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "nodes"
    if content is not None:
        path.write_text(content)
    code, _, err = run(capsys, "-f", files("m.yaml", model("m")), "--nodes", str(path))
    assert code == 2
    assert said in err


def test_no_models_in_a_file(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = files("n.json", node("n", H100, gpu=1))
    code, _, err = run(capsys, "-f", files("m.yaml", {"kind": "Pod"}), "--nodes", nodes)
    assert code == 2
    assert "has no enginewright.io/v1alpha1 OptimisedModel" in err


def test_without_files_the_cluster_is_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "--kubeconfig", str(tmp_path / "nothing"))
    assert err.endswith("; with -f FILE and --nodes FILE no cluster is asked\n")
    assert code == 2
    assert "no credentials for Kubernetes" in err


class FakeClient:
    """Lists as the apiserver gives them: items without kind."""

    def __init__(self, _: object) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list_all(self, resource: Resource, namespace: str | None) -> list[dict[str, Any]]:
        there = {"OptimisedModel": [model("m", 2, "1g.10gb")], "Node": [node("n", H100, count=1, **{"mig-1g.10gb": 2})],
                 "Pod": [pod("p", "n", {"nvidia.com/mig-1g.10gb": 1})]}[resource.kind]
        assert namespace is None or resource.kind == "OptimisedModel"
        return [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in there]


def test_models_nodes_and_pods_of_the_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    async def no_configuration(*where: object) -> None:
        asked.append(where)

    monkeypatch.setattr("enginewright.clients.kube.KubeClient", FakeClient)
    monkeypatch.setattr("enginewright.clients.credentials.load_configuration", no_configuration)
    code, out, _ = run(capsys, "-o", "json", "--context", "far")
    assert (code, asked) == (0, [(None, "far")])
    assert [(seat["node"], seat["start"]) for seat in json.loads(out)["placements"]] == [("n", 6)]
    assert [one["why"] for one in json.loads(out)["doesNotFit"]] == ["kept"]
