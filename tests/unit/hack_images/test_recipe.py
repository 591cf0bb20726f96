"""What the images are called, and the copy of the sources that a build works on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from images import containerfile
from images.cli import _archives_of, _parser
from images.recipe import NAMES, OPTIONAL, Recipe


def test_references_are_local_and_by_content() -> None:
    recipe = Recipe.read()
    for name in (*NAMES, *OPTIONAL):
        assert re.fullmatch(rf"localhost/enginewright-{name}:[0-9a-f]{{12}}", recipe.reference(name))


def test_a_snapshot_has_the_same_keys_and_does_not_follow_edits(tmp_path: Path) -> None:
    text = "FROM x AS server\nCOPY tree /tree\nCOPY file /file\n"
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "tree" / "__pycache__").mkdir(parents=True)
    (source / "tree" / "__pycache__" / "a.pyc").write_text("x")
    (source / "tree" / "a.py").write_text("a")
    (source / "file").write_text("f")
    (source / "file").chmod(0o600)

    recipe = Recipe(text, source, {})
    snapshot = recipe.snapshot(copy)
    assert snapshot.key("server") == recipe.key("server")
    assert sorted(path.name for path in copy.rglob("*") if path.is_file()) == ["a.py", "file"]
    assert {(path.stat().st_mtime, path.stat().st_mode & 0o777) for path in copy.rglob("*")} == {(0, 0o755)}

    before = snapshot.key("server")
    (source / "tree" / "a.py").write_text("edited")
    assert snapshot.key("server") == before != recipe.key("server")


def test_the_accelerator_changes_all_but_the_operator() -> None:
    cpu, cuda = Recipe.read("cpu"), Recipe.read("cuda")
    assert [name for name in NAMES if cpu.key(name) != cuda.key(name)] == ["server", "builder"]


def test_the_image_with_tensorflow_has_the_builders_layers_below() -> None:
    """A change of TensorFlow's lock leaves the other images as they are."""
    stages = Recipe.read()._stages
    assert stages["builder-tensorflow"].parent == stages["builder"].parent
    assert not [name for name in NAMES if any("tensorflow" in path for path in stages[name].inputs)]


@pytest.mark.parametrize(("accelerator", "lock"), [("cpu", "vllm.txt"), ("cuda", "vllm-gpu.txt")])
def test_the_server_of_language_models_has_the_accelerators_lock(
        accelerator: str, lock: str) -> None:
    """And a change of either lock leaves the images that are always built as they are."""
    recipe = Recipe.read(accelerator)
    stages = containerfile.parse(recipe.containerfile("server-vllm"), recipe.arguments)
    locks = [path for stage in stages.values() for path in stage.inputs if path.startswith("requirements/")]
    assert locks == [f"requirements/{lock}"]
    assert not [name for name in NAMES if any("vllm" in path for path in recipe._stages[name].inputs)]


@pytest.mark.parametrize("words", [
    ["refs"], ["refs", "--accelerator", "cuda"], ["refs", "server-vllm", "--accelerator", "cuda"]])
def test_the_command_names_the_images_of_an_accelerator(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = _parser().parse_args(words)
    given.run(given)
    recipe = Recipe.read("cuda" if "cuda" in words else "cpu")
    names = ["server-vllm"] if "server-vllm" in words else NAMES
    assert json.loads(capsys.readouterr().out) == {name: recipe.reference(name) for name in names}


def test_an_accelerator_that_has_no_images_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["push", "--accelerator", "tpu", "registry.example.com/team"])
    assert "choose from 'cpu', 'cuda'" in capsys.readouterr().err


def test_archives_of_one_image_are_not_those_of_another_whose_name_begins_alike(tmp_path: Path) -> None:
    for name in ("builder-0123456789ab", "builder-tensorflow-0123456789ab"):
        (tmp_path / f"{name}.tar").touch()
    assert [path.stem for path in _archives_of(tmp_path, "builder")] == ["builder-0123456789ab"]
    assert [path.stem for path in _archives_of(tmp_path, "builder-tensorflow")] == ["builder-tensorflow-0123456789ab"]


def test_another_base_image_gives_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Recipe.read().reference("server")
    monkeypatch.setenv("ENGINEWRIGHT_BASE_IMAGE", "registry.example/debian:12")
    assert Recipe.read().reference("server") != own


def test_a_stage_that_others_mount_is_an_argument_of_the_build() -> None:
    arguments = Recipe.read().build_arguments()
    assert set(arguments) == {"DEBIAN", "ACCELERATOR", "TOOLS", "BUILDER_TOOLS", "GPU_TOOLS", "TENSORRT", "TENSORFLOW",
                              "VLLM_TOOLS"}
