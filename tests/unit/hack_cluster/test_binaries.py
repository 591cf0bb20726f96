"""What a cached binary is known by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster import binaries, toolchain
from cluster.steps import ClusterError

GO_MOD = """module example

go 1.24.0

require (
\tk8s.io/client-go v0.34.4
\tk8s.io/kubernetes v1.34.4
)

require helm.sh/helm/v3 v3.19.5 // indirect
"""


def module(directory: Path) -> Path:
    directory.mkdir()
    (directory / "main.go").write_text("package main")
    (directory / "go.mod").write_text("module x")
    (directory / "go.sum").write_text("sum")
    (directory / "part").mkdir()
    (directory / "part" / "main.go").write_text("package main")
    return directory


@pytest.mark.parametrize("name", ["main.go", "go.mod", "go.sum", "part/main.go"])
def test_a_changed_source_changes_the_key(tmp_path: Path, name: str) -> None:
    directory = module(tmp_path / "m")
    before = binaries.content_key(directory)
    (directory / name).write_text("other")
    assert binaries.content_key(directory) != before


def test_place_time_and_other_files_do_not_change_the_key(tmp_path: Path) -> None:
    first, second = module(tmp_path / "a"), module(tmp_path / "b")
    (second / "README.md").write_text("words")
    (second / "main.go").touch()
    assert binaries.content_key(first) == binaries.content_key(second)


def test_settings_and_their_limits_change_the_key(tmp_path: Path) -> None:
    directory = module(tmp_path / "m")
    keys = {binaries.content_key(directory, *settings) for settings in [(), ("a",), ("b",), ("a", "b"), ("ab",)]}
    assert len(keys) == 5


@pytest.mark.parametrize(("wanted", "version"), [("k8s.io/kubernetes", "v1.34.4"), ("helm.sh/helm/v3", "v3.19.5")])
def test_a_required_modules_version_is_read(wanted: str, version: str) -> None:
    assert binaries.module_version(GO_MOD, wanted) == version


def test_a_module_that_is_not_required_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"k8s\.io/kube"):
        binaries.module_version(GO_MOD, "k8s.io/kube")


def test_the_version_that_programs_report_is_that_of_their_module() -> None:
    flags = binaries.linker_flags(binaries.KUBERNETES, GO_MOD)
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.4" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=34" in flags
    helm = binaries.linker_flags(binaries.HELM, GO_MOD)
    assert "version.version=v3.19.5" in helm
    assert "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34" in helm, "what helm template takes a cluster for"
    assert binaries.linker_flags(binaries.PAUSE, GO_MOD) == "-s -w"


@pytest.mark.parametrize("program", binaries.PROGRAMS, ids=lambda program: program.name)
def test_each_program_has_its_module(program: binaries.Program) -> None:
    assert binaries.linker_flags(program, (program.directory / "go.mod").read_text())


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("go1.26.8", (1, 26)),
        ("go version go1.24 linux/amd64", (1, 24)),
        ("go1.27rc1", (1, 27)),
        ("devel +abc", None),
        ("", None),
    ],
)
def test_go_versions_are_read(output: str, version: tuple[int, int] | None) -> None:
    assert toolchain.parse_version(output) == version


def test_the_last_few_versions_of_a_binary_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEWRIGHT_CACHE", str(tmp_path))
    for age in range(binaries.KEPT_VERSIONS + 2):
        binary = tmp_path / "bin" / f"pause-{age}" / "pause"
        binary.parent.mkdir(parents=True)
        binary.touch()
        os.utime(binary, (age, age))
    other = tmp_path / "bin" / "helm-0" / "helm"
    other.parent.mkdir()
    other.touch()
    binaries._forget_old("pause")
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["helm-0", "pause-2", "pause-3", "pause-4"]


def test_programs_that_are_given_are_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.GIVEN, str(tmp_path))
    monkeypatch.setattr(toolchain, "find_go", lambda: pytest.fail("a machine without Go"))
    for name in ("kubernetes", *binaries.NODE_PROGRAMS):
        (tmp_path / name).touch()
    assert binaries.node_program("kube-apiserver") == tmp_path / "kube-apiserver"
    with pytest.raises(ClusterError, match=f"{binaries.GIVEN}={tmp_path} has no helm: put it there, or unset"):
        binaries.build(binaries.HELM)
