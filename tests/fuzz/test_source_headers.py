"""Headers of models and data: each ends in a value or in :class:`UserError`, whatever bytes there are."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from enginewright_builder.data.files import read_samples
from enginewright_builder.errors import UserError
from enginewright_builder.onnx_interface import graph_interface
from enginewright_builder.sources.exported_program import check_exported_program
from enginewright_builder.sources.formats import check_config, check_weight_index, locate
from enginewright_builder.sources.integrity import check_onnx, check_safetensors
from enginewright_builder.sources.saved_model import _messages as messages
from enginewright_builder.sources.saved_model import check_saved_model, signature_interface

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
                    max_leaves=12)


def ends(check: Callable[[Path], object], content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            check(path)
        except UserError:
            return


@st.composite
def spoilt(draw: st.DrawFn, whole: bytes) -> bytes:
    """Something that was whole, with bytes exchanged, and cut off."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content) - 1))
        content[at:at + 1] = draw(st.binary(max_size=3))
        content = content or bytearray(b"\0")
    return bytes(content[:draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


ENTRY = st.fixed_dictionaries({}, optional={
    "dtype": st.sampled_from(["F32", "I8", "F4", "X"]) | JSON, "shape": st.lists(st.integers(-2, 1 << 70)) | JSON,
    "data_offsets": st.lists(st.integers(-9, 99), min_size=2, max_size=2) | JSON})


@given(st.dictionaries(st.text(max_size=8), ENTRY | JSON, max_size=3) | JSON, st.integers(0, 1 << 64) | st.just(-1),
       st.binary(max_size=32))
def test_safetensors(header: Any, length: int, data: bytes) -> None:
    text = json.dumps(header).encode()
    stated = min(len(text) if length < 0 else length, (1 << 64) - 1)
    ends(check_safetensors, struct.pack("<Q", stated) + text + data, "m.safetensors")


def _graph() -> bytes:
    value = helper.make_tensor_value_info
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="m.data")
    tensor.external_data.add(key="offset", value="0")
    made = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g",
                             [value("x", TensorProto.FLOAT, ["b", 1])], [value("y", TensorProto.FLOAT, ["b", 1])],
                             [tensor])
    content: bytes = helper.make_model(made).SerializeToString()
    return content


def _saved_model() -> bytes:
    model = messages()["SavedModel"]()
    graph = model.graphs.add()
    function = graph.graph.add().library.add().functions.add()
    function.signature.add().name.append(b"answer")
    function.nodes.add().op.append(b"Relu")
    function.nodes[0].attributes.add().value.add().function.add().name.append(b"answer")
    serving = graph.signatures.add(name=[b"serving_default"]).value.add()
    serving.inputs.add(name=[b"x"]).info.add(kind=[1]).shape.add().sizes.add(size=[-1])
    graph.objects.add().nodes.add().bare.add().name.append(b"answer")
    content: bytes = model.SerializeToString()
    return content


@given(st.binary(max_size=64) | spoilt(_saved_model()))
def test_saved_model(content: bytes) -> None:
    def check(path: Path) -> None:
        (path.parent / "variables").mkdir()
        (path.parent / "variables" / "variables.index").touch()
        check_saved_model(path.parent)
        signature_interface(path.parent)

    ends(check, content, "saved_model.pb")


@given(st.dictionaries(st.sampled_from(["class_name", "module", "registered_name", "config"]),
                       st.sampled_from(["Dense", "keras.layers", "Sequential", "keras"]) | JSON) | JSON)
def test_keras(config: Any) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in (("metadata.json", "{}"), ("config.json", json.dumps(config)), ("model.weights.h5", "")):
            archive.writestr(name, member)
    ends(locate, content.getvalue(), "m.keras")


@given(st.binary(max_size=64) | spoilt(_graph()))
def test_onnx(content: bytes) -> None:
    ends(check_onnx, content, "m.onnx")


@given(spoilt(_graph()))
def test_onnx_interfaces(content: bytes) -> None:
    def check(path: Path) -> None:
        try:
            model = onnx.load_from_string(path.read_bytes())
        except Exception:  # of protobuf; such a file is refused before its interface is asked for
            return
        graph_interface(model)

    ends(check, content, "m.onnx")


@given(st.sampled_from(["location", "offset", "length"]), st.text(max_size=12))
def test_onnx_references(key: str, value: str) -> None:
    model = onnx.load_from_string(_graph())
    entries = model.graph.initializer[0].external_data
    for entry in entries:
        if entry.key == key:
            entry.value = value
    ends(check_onnx, model.SerializeToString(), "m.onnx")


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((3, 2), np.float32), y=np.arange(3))
    return file.getvalue()


@given(st.binary(max_size=64) | spoilt(_npz()))
def test_npz(content: bytes) -> None:
    ends(read_samples, content, "s.npz")


@given(st.text(max_size=40) | st.tuples(st.sampled_from(["<f4", "|O", "<i8", "|V9"]),
                                        st.lists(st.integers(-1, 1 << 62), max_size=4)), st.binary(max_size=16))
def test_npz_headers(header: str | tuple[str, list[int]], data: bytes) -> None:
    text = header if isinstance(header, str) else repr(
        {"descr": header[0], "fortran_order": False, "shape": tuple(header[1])})
    line = text.encode() + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line + data)
    ends(read_samples, file.getvalue(), "s.npz")


@given(st.binary(max_size=64) | JSON.map(lambda one: json.dumps(one).encode())
       | st.integers(1, 200_000).map(lambda depth: b"[" * depth))
def test_lines_of_samples(content: bytes) -> None:
    ends(read_samples, content, "s.jsonl")


@given(st.dictionaries(st.sampled_from(["architectures", "auto_map", "text_config", "attn_implementation"]), JSON)
       | JSON)
def test_settings(config: Any) -> None:
    ends(check_config, json.dumps(config).encode(), "config.json")
    index = config if isinstance(config, dict) else {"weight_map": config}
    ends(lambda path: check_weight_index(path.parent), json.dumps(index).encode(), "model.safetensors.index.json")


def _program(graph: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/archive_format", b"pt2")
        archive.writestr("m/models/model.json", json.dumps(graph))
        archive.writestr("m/data/weights/weight_0", b"1234")
        archive.writestr("m/data/weights/model_weights_config.json", json.dumps(graph))
    return file.getvalue()


@given(spoilt(_program({"config": {}})))
def test_exported_programs(content: bytes) -> None:
    ends(check_exported_program, content, "m.pt2")
    ends(locate, content, "m.pt2")


@given(st.dictionaries(st.sampled_from(["config", "range_constraints", "graph_module", "expr_str", "in_spec"]), JSON)
       | JSON)
def test_graphs_of_exported_programs(graph: Any) -> None:
    ends(check_exported_program, _program(graph), "m.pt2")
