"""Models of a hub, read by the hub's own client from a fake of the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.hub import HubFetcher
from support.fake_hub import REPOSITORY, TOKEN, FakeHub, commit_of, serving

ONE, TWO = commit_of("one"), commit_of("two")
MODEL = {"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"[]", "1_Pooling/config.json": b"{}"}
BESIDE = {"pytorch_model.bin": b"p", "tf_model.h5": b"t", "onnx/model.onnx": b"o", "README.md": b"r",
          "modeling.py": b"x", ".gitattributes": b"g"}
"""Of what a hub's repository usually has beside the model."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    state = FakeHub(revisions={ONE: {**MODEL, **BESIDE}, TWO: {**MODEL, "model.safetensors": b"others"}},
                    branches={"main": ONE, "next": TWO, "refs/pr/1": TWO})
    with serving(state):
        monkeypatch.setenv("HF_ENDPOINT", state.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield state


def got(uri: str, tmp_path: Path, **fields: object) -> tuple[Path, str]:
    return fetch(uri, FetchContext(mounts={}, scratch=tmp_path / "scratch", **fields))  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("uri", "weights"), [
    (f"hf://{REPOSITORY}", b"weights"), (f"hf://{REPOSITORY}@main", b"weights"), (f"hf://{REPOSITORY}@next", b"others"),
    (f"hf://{REPOSITORY}@{TWO}", b"others"), (f"hf://{REPOSITORY}@refs%2Fpr%2F1", b"others"),
])
def test_a_repository_gives_the_model_and_nothing_that_is_beside_it(uri: str, weights: bytes, hub: FakeHub,
                                                                    tmp_path: Path) -> None:
    path, digest = got(uri, tmp_path)
    assert content(path) == {**MODEL, "model.safetensors": weights}
    copied = tmp_path / "copied"
    for name, data in content(path).items():
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_bytes(data)
    assert digest == content_digest(copied), "the same content on a volume has the same digest"


def test_a_folder_and_a_file_can_be_meant(hub: FakeHub, tmp_path: Path) -> None:
    path, _ = got(f"hf://{REPOSITORY}@main/onnx", tmp_path)
    assert content(path) == {"model.onnx": b"o"}
    path, _ = got(f"hf://{REPOSITORY}@main/onnx/model.onnx", tmp_path / "file", field="spec.accuracy.evaluation.uri")
    assert (path.name, path.read_bytes()) == ("model.onnx", b"o")


def test_all_files_are_of_one_commit_though_the_branch_moves(hub: FakeHub, tmp_path: Path) -> None:
    def move(fraction: float, detail: str) -> None:
        hub.branches["main"] = TWO

    path, _ = got(f"hf://{REPOSITORY}@main", tmp_path, progress=move)
    assert content(path) == MODEL
    assert all(ONE in asked for asked in hub.asked if "/resolve/" in asked)


def test_a_private_repository_wants_the_token(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.private = True
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "SourceAccessDenied"
    assert "HF_TOKEN" in caught.value.remedy
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert content(got(f"hf://{REPOSITORY}", tmp_path)[0]) == MODEL


@pytest.mark.parametrize(("uri", "reason", "said"), [
    ("hf://acme/other", "SourceAccessDenied", "is not there, or may not be read"),
    (f"hf://{REPOSITORY}@none", "SourceNotFound", "Revision"),
    (f"hf://{REPOSITORY}@main/none", "SourceNotFound", "has no none at"),
    ("hf://net", "SourceUriInvalid", "names no repository"),
    ("hf://datasets/acme/net", "SourceUriInvalid", "names no repository"),
    ("hf://acme/net@", "SourceUriInvalid", "names no repository"),
    (f"hf://{REPOSITORY}@main/../../x", "SourceUriInvalid", "names no repository"),
    (f"hf://{REPOSITORY}@main/%2e%2e/x", "SourceUriInvalid", "names no repository"),
])
def test_what_is_not_there_is_told(uri: str, reason: str, said: str, hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got(uri, tmp_path)
    assert (caught.value.reason, caught.value.field) == (reason, "spec.source.uri")
    assert said in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("files", [
    {"config.json": b"{}", "pytorch_model.bin": b"p"}, {"weights.ckpt": b"p"},
    {"config.json": b"{}", "vocab.txt": b"v", "spiece.model": b"s", "pytorch_model.bin": b"p", "tf_model.h5": b"t"},
])
def test_pickles_are_refused_before_they_are_downloaded(files: Mapping[str, bytes], hub: FakeHub,
                                                        tmp_path: Path) -> None:
    hub.revisions[ONE] = files
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "PickleRefused"
    assert not any("/resolve/" in asked for asked in hub.asked)


def test_a_repository_whose_models_lie_in_folders_names_them(hub: FakeHub, tmp_path: Path) -> None:
    hub.revisions[ONE] = {"config.json": b"{}", "onnx/model.onnx": b"o", "onnx/model_fp16.onnx": b"o"}
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "FormatUnknown"
    assert "onnx/model.onnx" in caught.value.message
    assert not any("/resolve/" in asked for asked in hub.asked)


@pytest.mark.parametrize(("files", "kept"), [
    ({"model.onnx": b"o", "weights.bin": b"w"}, {"model.onnx", "weights.bin"}),
    ({**MODEL, "metric.onnx": b"m", "other.onnx": b"o"}, {*MODEL, "metric.onnx"}),
    ({**MODEL, "original/consolidated.00.safetensors": b"x", "runs/events": b"x", "onnx/model.onnx_data_1": b"x"},
     set(MODEL)),
])
def test_what_belongs_to_the_model(files: Mapping[str, bytes], kept: set[str], hub: FakeHub, tmp_path: Path) -> None:
    hub.revisions[ONE] = files
    root = tmp_path / "scratch"
    place = HubFetcher().fetch(f"hf://{REPOSITORY}", FetchContext(mounts={}, scratch=root))
    assert set(content(place)) == kept


def test_a_repository_of_words_alone_is_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.revisions[ONE] = {"README.md": b"r"}
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "SourceNotFound"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://user:hunter2@127.0.0.1:9"])
def test_a_hub_that_cannot_be_reached_is_tried_again_later(endpoint: str, hub: FakeHub, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(TransientError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "SourceUnreachable"
    assert "hunter2" not in caught.value.message


def test_an_address_of_a_hub_that_is_none_is_told(hub: FakeHub, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.source.secretRef")


def test_more_than_there_is_room_for_is_refused_before_it_is_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path, size_limit=10)
    assert caught.value.reason == "SourceTooLarge"
    assert not any("/resolve/" in asked for asked in hub.asked)


def test_a_hub_that_is_down_is_tried_again_later(hub: FakeHub, tmp_path: Path) -> None:
    hub.down = 500
    with pytest.raises(TransientError) as caught:
        got(f"hf://{REPOSITORY}", tmp_path)
    assert caught.value.reason == "SourceUnreachable"


def test_the_environment_names_hub_and_token(hub: FakeHub, tmp_path: Path) -> None:
    """As in a pod: a process of its own, whose environment is all that it knows."""
    hub.private = True
    script = ("import pathlib, sys; from enginewright_builder.sources.base import FetchContext; "
              "from enginewright_builder.sources.fetching import fetch; "
              "print(fetch(sys.argv[1], FetchContext(mounts={}, scratch=pathlib.Path(sys.argv[2])))[1]); "
              "from huggingface_hub import is_offline_mode; assert is_offline_mode()")
    # Offline, as the builder's image is, so that no model that is loaded fetches anything.
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script, f"hf://{REPOSITORY}", str(tmp_path)], env=environment,
                          capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sha256:")
