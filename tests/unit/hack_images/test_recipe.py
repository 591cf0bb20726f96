"""What the images are called, and the copy of the sources that a build works on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images import containerfile
from images.buildah import BuildError
from images.cli import _archives_of
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


def test_the_accelerator_changes_all_but_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEWRIGHT_ACCELERATOR", "cpu")
    cpu = Recipe.read()
    monkeypatch.setenv("ENGINEWRIGHT_ACCELERATOR", "cuda")
    cuda = Recipe.read()
    assert [name for name in NAMES if cpu.key(name) != cuda.key(name)] == ["server", "builder"]


def test_the_image_with_tensorflow_has_the_builders_layers_below() -> None:
    """A change of TensorFlow's lock leaves the other images as they are."""
    stages = Recipe.read()._stages
    assert stages["builder-tensorflow"].parent == stages["builder"].parent
    assert not [name for name in NAMES if any("tensorflow" in path for path in stages[name].inputs)]


@pytest.mark.parametrize(("accelerator", "lock"), [("cpu", "vllm.txt"), ("cuda", "vllm-gpu.txt")])
def test_the_server_of_language_models_has_the_accelerators_lock(
        accelerator: str, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a change of either lock leaves the images that are always built as they are."""
    monkeypatch.setenv("ENGINEWRIGHT_ACCELERATOR", accelerator)
    recipe = Recipe.read()
    stages = containerfile.parse(recipe.containerfile("server-vllm"), recipe.arguments)
    locks = [path for stage in stages.values() for path in stage.inputs if path.startswith("requirements/")]
    assert locks == [f"requirements/{lock}"]
    assert not [name for name in NAMES if any("vllm" in path for path in recipe._stages[name].inputs)]


def test_archives_of_one_image_are_not_those_of_another_whose_name_begins_alike(tmp_path: Path) -> None:
    for name in ("builder-0123456789ab", "builder-tensorflow-0123456789ab"):
        (tmp_path / f"{name}.tar").touch()
    assert [path.stem for path in _archives_of(tmp_path, "builder")] == ["builder-0123456789ab"]
    assert [path.stem for path in _archives_of(tmp_path, "builder-tensorflow")] == ["builder-tensorflow-0123456789ab"]


def test_an_unknown_accelerator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEWRIGHT_ACCELERATOR", "tpu")
    with pytest.raises(BuildError, match=r"'tpu': write one of cpu, cuda"):
        Recipe.read()


def test_another_base_image_gives_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Recipe.read().reference("server")
    monkeypatch.setenv("ENGINEWRIGHT_BASE_IMAGE", "registry.example/debian:12")
    assert Recipe.read().reference("server") != own


def test_a_stage_that_others_mount_is_an_argument_of_the_build() -> None:
    arguments = Recipe.read().build_arguments()
    assert set(arguments) == {"DEBIAN", "ACCELERATOR", "TOOLS", "BUILDER_TOOLS", "GPU_TOOLS", "TENSORRT", "TENSORFLOW",
                              "VLLM_TOOLS"}
