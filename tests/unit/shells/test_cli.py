"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from enginewright import __version__, logs, runtime
from enginewright.cli import main

GOOD = """
apiVersion: enginewright.io/v1alpha1
kind: OptimisedModel
metadata: {name: minilm}
spec:
  source: {uri: "pvc://models/minilm"}
  accuracy: {evaluation: {uri: "pvc://models/evaluation.jsonl"}}
  placement: {accelerator: cpu}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "om.yaml"
    path.write_text(GOOD)
    return path


def test_who_stops_reading_gets_no_traceback() -> None:
    """``enginewright crd | head``."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "enginewright", "crd"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("command", "others"), [
    ("activate", ("enginewright.core.spec", "enginewright_simulation", "kopf")),
    ("version", ("enginewright.core.spec", "enginewright_simulation", "kopf", "grpc")),
], ids=lambda one: one if isinstance(one, str) else "")
def test_a_command_imports_nothing_that_only_others_need(command: str, others: tuple[str, ...]) -> None:
    """In a process of its own: this one has imported everything. An activator starts while a request waits."""
    program = ("import sys, enginewright.cli\n"
               f"try: enginewright.cli.main([{command!r}, '--help'])\n"
               f"except SystemExit: print(*(name for name in {others} if name in sys.modules))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_what_the_operator_imports_is_not_looked_through_by_full_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = 0

    async def run(*_: object) -> None:
        nonlocal frozen
        frozen = gc.get_freeze_count()

    monkeypatch.setattr(runtime, "run", run)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    try:
        assert main(["run"]) == 0
    finally:
        gc.unfreeze()
    assert frozen > 0.9 * len(gc.get_objects())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "version") == (0, f"{__version__}\n", "")


def test_crd_is_the_one_in_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "crd")
    (written,) = (Path(__file__).parents[3] / "crds").glob("*.yaml")
    assert (code, yaml.load(out, yaml.CSafeLoader)) == (0, yaml.load(written.read_text(), yaml.CSafeLoader))


def test_a_good_manifest(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    assert run(capsys, "validate", str(manifest)) == (0, f"{manifest}: minilm: valid\n", "")


def test_what_is_good_and_seldom_meant_is_a_warning(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    text = GOOD.replace('  accuracy: {evaluation: {uri: "pvc://models/evaluation.jsonl"}}\n', "")
    manifest.write_text(text.replace("accelerator: cpu", "accelerator: gpu"))
    code, out, err = run(capsys, "validate", str(manifest))
    assert (code, err) == (0, "")
    first, *warnings = out.splitlines()
    assert first == f"{manifest}: minilm: valid"
    assert [line.partition(" is left out")[0] for line in warnings] == [
        "  warning: spec.accuracy.evaluation:", "  warning: spec.placement.gpu.product:"]


def test_every_problem_is_named_with_a_remedy(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    text = GOOD.replace("accelerator: cpu", "accelerator: cpu, colour: red").replace("minilm}", "Mini_LM}")
    manifest.write_text(text)
    code, out, _ = run(capsys, "validate", str(manifest))
    assert code == 1
    assert "Mini_LM: refused" in out
    assert "metadata.name" in out
    assert "spec.placement.colour" in out


def test_rules_between_fields_are_checked_too(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    manifest.write_text(GOOD + "  replicas: 2\n  autoscaling: {maxReplicas: 3}\n")
    code, out, _ = run(capsys, "validate", str(manifest))
    assert code == 1
    assert "spec.replicas: excludes spec.autoscaling" in out


def test_several_documents_of_which_one_is_bad(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    bad = GOOD.replace("minilm}", "second}").replace("pvc://models/minilm", "ftp://models")
    manifest.write_text(f"{GOOD}---\n{bad}---\nkind: ConfigMap\n")
    code, out, _ = run(capsys, "validate", str(manifest))
    assert (code, out.count(": valid"), out.count("refused")) == (1, 1, 1)


@pytest.mark.parametrize("text", ["", "kind: ConfigMap\n", "a: [\n", "a: 2023-99-99\n"])
def test_a_file_without_an_object(capsys: pytest.CaptureFixture[str], manifest: Path, text: str) -> None:
    manifest.write_text(text)
    code, _, err = run(capsys, "validate", str(manifest))
    assert code == 2
    assert str(manifest) in err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert run(capsys, "validate", str(missing)) == (2, "", f"{missing} does not exist\n")


@pytest.mark.parametrize(("version", "kind"), [
    ("enginewright.io/v1", "OptimisedModel"), ("enginewright.io/v1", "OptimizedModel"),
    ("enginewright.io/v1alpha1", "Model"), ("v1", "optimisedModels"),
])
def test_what_is_nearly_one_of_ours(capsys: pytest.CaptureFixture[str], manifest: Path, version: str, kind: str
                                    ) -> None:
    manifest.write_text(f"apiVersion: {version}\nkind: {kind}\n")
    assert run(capsys, "validate", str(manifest)) == (
        2, "", f"{manifest}: has apiVersion: {version}, kind: {kind}; write apiVersion: enginewright.io/v1alpha1, "
               "kind: OptimisedModel\n")


def test_all_files_are_reported_before_it_ends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = "apiVersion: enginewright.io/v1\nkind: OptimisedModel\n"
    texts = {"a": other, "b": "a: [\n", "c": f"{other}---\n{GOOD}", "d": "kind: Service\n",
             "e": GOOD.replace("pvc://models/minilm", "ftp://models")}
    paths = {name: tmp_path / f"{name}.yaml" for name in [*texts, "gone"]}
    for name, text in texts.items():
        paths[name].write_text(text)
    code, out, err = run(capsys, "validate", *map(str, paths.values()))
    assert code == 2
    assert [line for line in out.splitlines() if line[0] != " "] == [
        f"{paths['c']}: minilm: valid", f"{paths['e']}: minilm: refused"]
    told = [line for line in err.splitlines() if line.startswith(str(tmp_path))]
    wrong = "has apiVersion: enginewright.io/v1, kind: OptimisedModel; "
    for name, begin in (("a", f": {wrong}"), ("b", ": while parsing"), ("c", f": {wrong}"),
                        ("d", ": holds no enginewright.io/v1alpha1 OptimisedModel"), ("gone", " does not exist")):
        assert told.pop(0).startswith(f"{paths[name]}{begin}")
    assert not told


def test_files_of_other_kinds_beside_a_good_one_are_named_and_no_error(
    capsys: pytest.CaptureFixture[str], manifest: Path, tmp_path: Path
) -> None:
    other = tmp_path / "service.yaml"
    other.write_text("kind: Service\n")
    assert run(capsys, "validate", str(other), str(manifest)) == (
        0, f"{manifest}: minilm: valid\n", f"{other}: holds no enginewright.io/v1alpha1 OptimisedModel\n")


def test_data_without_its_field(capsys: pytest.CaptureFixture[str], manifest: Path) -> None:
    manifest.write_text(GOOD.replace('{uri: "pvc://models/evaluation.jsonl"}', '"pvc://models/evaluation.jsonl"'))
    code, out, _ = run(capsys, "validate", str(manifest))
    assert (code, out.splitlines()[1:]) == (1, [
        '  spec.accuracy.evaluation: is not an object (got "pvc://models/evaluation.jsonl"); write {uri: pvc://…}'])


def test_the_operator_does_not_start_with_settings_that_it_does_not_understand(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text("job_tll: 5")
    code, _, err = run(capsys, "run", "--config", str(tmp_path / "config.yaml"))
    assert code == 2
    assert "unknown field 'job_tll'" in err


@pytest.mark.usefixtures("logging_as_it_was")
def test_the_operator_does_not_start_without_credentials(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "run", "--kubeconfig", str(tmp_path / "none"))
    assert code == 1
    assert "no credentials for Kubernetes" in err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "--workers", "0"], ["run", "--workers", "many"],
                                       ["run", "--leader-lease", "no-namespace"], ["run", "--leader-lease", "a/b/c"]])
def test_bad_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
