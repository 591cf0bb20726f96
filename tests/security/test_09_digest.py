"""Finding 9: a digest left out ``.git``, ``lost+found`` and all names with two dots in front, and weights could lie
there."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.errors import UserError
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.formats import check_weight_index
from enginewright_builder.sources.integrity import check_onnx

VERSION = "..2026_11_24_19_10_00.123456789"


def graph(folder: Path, location: str) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="4")
    value = helper.make_tensor_value_info
    made = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", TensorProto.FLOAT, [1])],
                             [value("y", TensorProto.FLOAT, [1])], [tensor])
    onnx.save(helper.make_model(made), str(folder / "m.onnx"))
    return folder / "m.onnx"


@pytest.mark.parametrize("name", [".git", "lost+found", "..hidden", "..data", "..2026_11_24", "..data_x", VERSION[2:]])
def test_files_in_every_folder_count(name: str, tmp_path: Path) -> None:
    """What looks like the kubelet's and is not counts as well: its ``..data`` is a link."""
    (tmp_path / name).mkdir()
    digests = set()
    for content in (b"1234", b"4321"):
        (tmp_path / name / "w.bin").write_bytes(content)
        digests.add(content_digest(tmp_path))
    assert len(digests) == 2


@pytest.mark.parametrize("name", ["..x", VERSION, "..data"])
def test_files_with_two_dots_in_front_count(name: str, tmp_path: Path) -> None:
    empty = content_digest(tmp_path)
    (tmp_path / name).write_bytes(b"1")
    assert content_digest(tmp_path) != empty


def test_what_the_kubelet_keeps_counts_once(tmp_path: Path) -> None:
    plain, projected = tmp_path / "plain", tmp_path / "projected"
    (projected / VERSION).mkdir(parents=True)
    plain.mkdir()
    for folder in (plain, projected / VERSION):
        (folder / "w.bin").write_bytes(b"1234")
    (projected / "..data").symlink_to(VERSION)
    (projected / "w.bin").symlink_to("..data/w.bin")
    assert content_digest(projected) == content_digest(plain)


@pytest.mark.parametrize("location", [
    "lost+found/w.bin", ".git/w.bin", f"{VERSION}/w.bin", "..data/w.bin", "sub/.hidden/w.bin", "./lost+found/w.bin",
])
@pytest.mark.parametrize("check", [check_onnx, content_digest])
def test_no_graph_takes_weights_from_there(check: object, location: str, tmp_path: Path) -> None:
    (tmp_path / VERSION).mkdir()
    (tmp_path / "..data").symlink_to(VERSION)
    (tmp_path / location).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / location).write_bytes(b"1234")
    with pytest.raises(UserError) as caught:
        check(graph(tmp_path, location))  # type: ignore[operator]
    assert caught.value.reason == "SourceCorrupt"


@pytest.mark.parametrize("shard", ["lost+found/w.safetensors", "../w.safetensors", "w.bin", "..data/w.safetensors"])
def test_no_index_names_shards_elsewhere(shard: str, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    (folder / shard).parent.mkdir(parents=True, exist_ok=True)
    (folder / shard).write_bytes(b"")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(UserError, match="is no safetensors file of the folder"):
        check_weight_index(folder)
