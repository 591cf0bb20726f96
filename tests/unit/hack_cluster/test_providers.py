"""CLUSTER=local, kind and existing, and the command line in front of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster import cli, kind, provider, steps, volumes
from cluster.existing import Existing, push_command
from cluster.kind import Kind
from cluster.steps import ClusterError


@pytest.mark.parametrize(
    ("value", "name"), [(None, "local"), ("", "local"), ("kind", "kind"), ("existing", "existing")]
)
def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, value: str | None, name: str) -> None:
    monkeypatch.delenv("CLUSTER", raising=False)
    if value is not None:
        monkeypatch.setenv("CLUSTER", value)
    assert provider.choose().name == name


def test_an_unknown_choice_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "minikube")
    with pytest.raises(ClusterError, match="CLUSTER=minikube: use one of local, kind, existing"):
        provider.choose()


def test_existing_without_its_kubeconfig_says_which_it_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match=str(tmp_path / "none")):
        _ = Existing().kubeconfig


def test_existing_tells_what_to_push_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("IMAGE_REGISTRY", raising=False)
    with pytest.raises(ClusterError, match="IMAGE_REGISTRY"):
        Existing().load_images(["localhost/enginewright/operator:1"])
    monkeypatch.setenv("IMAGE_REGISTRY", "ghcr.io/me/")
    Existing().load_images(["localhost/enginewright/operator:1"])
    pushed = "buildah push localhost/enginewright/operator:1 docker://ghcr.io/me/operator:1"
    assert pushed in capsys.readouterr().err
    assert push_command("app:2", "r.io") == "buildah push app:2 docker://r.io/app:2"


@pytest.fixture
def kind_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for kind that keeps its one cluster in a file and notes how it was called."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "kind"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo "$*" >>{calls}
case "$1 $2" in
"get clusters") cat {tmp_path}/clusters 2>/dev/null || true ;;
"create cluster") echo enginewright >{tmp_path}/clusters ;;
"delete cluster") rm {tmp_path}/clusters ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("ENGINEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KIND_NODE_IMAGE", raising=False)
    monkeypatch.setattr("cluster.binaries.node_program", lambda name: Path(name))
    monkeypatch.setattr(kind, "kubectl", lambda *_: "")
    return calls


def test_kind_is_created_once_loaded_and_deleted(kind_calls: Path, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.touch()
    cluster = Kind()
    cluster.up()
    cluster.up()
    cluster.load_images([str(archive), "localhost/app:1"])
    cluster.down()
    cluster.down()
    kubeconfig = f"--kubeconfig={tmp_path}/cache/kind/kubeconfig"
    changes = [call for call in kind_calls.read_text().splitlines() if not call.startswith("get")]
    assert changes == [
        f"create cluster --name=enginewright {kubeconfig}",
        f"export kubeconfig --name=enginewright {kubeconfig}",
        f"load image-archive {archive} --name=enginewright",
        "load docker-image localhost/app:1 --name=enginewright",
        f"delete cluster --name=enginewright {kubeconfig}",
    ]


def test_the_node_of_kind_has_the_image_that_is_asked_for(kind_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND_NODE_IMAGE", "mirror.example.com/node:v1")
    Kind().up()
    assert "--image=mirror.example.com/node:v1" in kind_calls.read_text().split()


def test_a_node_image_that_cannot_be_pulled_is_said(kind_calls: Path) -> None:
    program = kind_calls.parent / "bin" / "kind"
    failing = 'echo "ERROR: failed to pull image kindest/node:v1" >&2; exit 1'
    program.write_text(program.read_text().replace("echo enginewright", failing))
    with pytest.raises(ClusterError, match=r"set KIND_NODE_IMAGE to one .*failed to pull image kindest/node:v1"):
        Kind().up()
    program.write_text(program.read_text().replace("pull image", "start"))
    with pytest.raises(ClusterError, match=r"^kind create cluster .* failed: ERROR: failed to start kindest/node:v1"):
        Kind().up()


def test_kind_is_up_when_its_nodes_are_ready(kind_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str | ClusterError] = [ClusterError("connection refused"), ClusterError("timed out"), ""]

    def kubectl(_: Path, *arguments: str) -> str:
        assert arguments[:4] == ("wait", "node", "--all", "--for=condition=Ready")
        answer = answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    monkeypatch.setattr(kind, "kubectl", kubectl)
    monkeypatch.setattr("time.sleep", lambda _: None)
    Kind().up()
    assert answers == []
    answers.append(ClusterError("connection refused"))
    monkeypatch.setattr(kind, "READY_TIMEOUT_S", -1.0)
    with pytest.raises(ClusterError, match=r"not ready .* `hack/cluster/cluster down` removes it.*: connection"):
        Kind().up()


def test_kind_whose_container_stands_still_is_said(kind_calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kind().up()
    program = kind_calls.parent / "bin" / "kind"
    program.write_text(program.read_text().replace("esac", '"export kubeconfig") exit 1 ;;\nesac'))
    with pytest.raises(ClusterError, match="does not run: start its container, or `hack/cluster/cluster down` removes"):
        Kind().up()


def test_kind_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is built for it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ENGINEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cluster.binaries.node_program", lambda name: pytest.fail(f"built {name}"))
    with pytest.raises(ClusterError, match="kind is not installed"):
        Kind().up()


@pytest.mark.parametrize(
    ("namespace", "claim", "size", "complaint"),
    [
        ("a", "b", "4Gi", None),
        ("../x", "b", "4Gi", r"namespace '\.\./x'"),
        ("a", "B", "4Gi", "claim 'B'"),
        ("a", "x" * 64, "4Gi", "claim"),
        ("a", "b", "4G", "size '4G'"),
        ("a", "b", "0Gi", "size '0Gi'"),
        ("", "b", "1Gi", "namespace ''"),
    ],
)
def test_names_and_sizes_of_volumes(namespace: str, claim: str, size: str, complaint: str | None) -> None:
    if complaint is None:
        volumes.check(namespace, claim, size)
        return
    with pytest.raises(ClusterError, match=complaint):
        volumes.check(namespace, claim, size)


def test_a_local_volume_and_its_claim_name_each_other() -> None:
    volume, claim = json.loads(volumes.local_manifests("ns", "models", "4Gi", Path("/data")))["items"]
    assert volume["spec"]["claimRef"] == {"namespace": "ns", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == volume["spec"]["storageClassName"] == ""
    assert volume["spec"]["local"] == {"path": "/data"}


def test_elsewhere_the_claim_asks_the_default_class() -> None:
    assert "storageClassName" not in json.loads(volumes.claim_manifest("ns", "models", "4Gi"))["spec"]


def test_a_failure_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    text = steps.explain(ClusterError("etcd ended", log))
    assert text.splitlines()[0] == "error: etcd ended"
    assert str(log) in text
    assert text.splitlines()[2:] == [f"line {number}" for number in range(30, 50)]
    assert "(empty)" in steps.explain(ClusterError("x", tmp_path / "none"))


def test_the_command_line_ends_with_one_and_the_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert cli.main(["kubeconfig"]) == 1
    assert capsys.readouterr().err.startswith("error: CLUSTER=existing")


def test_the_kubeconfig_of_an_existing_cluster_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.touch()
    monkeypatch.setenv("CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert cli.main(["kubeconfig"]) == 0
    assert capsys.readouterr().out == f"{path}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["logs", "nonsense"], ["volume", "grow", "a", "b"], ["load-image"]]
)
def test_wrong_arguments_end_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
