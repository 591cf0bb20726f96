"""Opsets that are taken, converted and refused, by the check that needs no device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.models import load_model
from enginewright_builder.models.onnx_tidy import tidied
from enginewright_builder.sources.formats import locate
from support.inputs import graphs


def saved(folder: Path, opset: int, ir_version: int = 9, operator: str = "Relu") -> Path:
    model = graphs.model([graphs.node(operator, "x", "y")], [graphs.value("x", graphs.F32, ["batch", 16])],
                         [graphs.value("y", graphs.F32, ["batch", 16])], opset=opset)
    model.ir_version = ir_version
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize(("opset", "ir_version"), [(6, 3), (7, 3), (13, 7), (18, 9), (21, 10)])
def test_taken(opset: int, ir_version: int, tmp_path: Path) -> None:
    model = load_model(locate(saved(tmp_path, opset, ir_version)), None, tmp_path / "work")
    values = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
    np.testing.assert_array_equal(model.run({"x": values})["y"], np.maximum(values, 0))


@pytest.mark.parametrize(("opset", "ir_version", "told", "value"), [
    (28, 9, "knows opsets up to", "opset 28"), (18, 99, "has the IR version 99", "IR version 99"),
])
def test_too_new_is_told_with_the_newest_that_is_known(opset: int, ir_version: int, told: str, value: str,
                                                       tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        locate(saved(tmp_path, opset, ir_version))
    assert (caught.value.reason, caught.value.value) == ("UnsupportedModel", value)
    assert "opset 18" in caught.value.remedy or "ir_version" in caught.value.remedy


def test_a_conversion_that_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrongly(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.load(saved(path.parent / "other", 13, operator="Neg"))

    path = saved(tmp_path, 6)
    located = locate(path)
    (tmp_path / "other").mkdir()
    monkeypatch.setattr("enginewright_builder.models.onnx_tidy.modern", wrongly)
    with pytest.raises(UserError, match="is of opset 6, and its output 'y' has other values"):
        load_model(located, None, tmp_path / "work")


def test_what_cannot_be_converted_is_told_without_a_device(tmp_path: Path) -> None:
    """ONNX's converter knows no newer form of this one."""
    model = graphs.model([graphs.node("Pad", "x", "y", paddings=[0, 1, 0, 1])],
                         [graphs.value("x", graphs.F32, ["batch", 4])],
                         [graphs.value("y", graphs.F32, ["batch", 6])], opset=1)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UserError) as caught:
        locate(tmp_path / "model.onnx")
    assert (caught.value.reason, caught.value.field) == ("UnsupportedModel", "spec.source.uri")


def test_what_is_as_it_should_be_is_not_written_again(tmp_path: Path) -> None:
    path = saved(tmp_path, 18)
    assert tidied(path, tmp_path) == path


def test_operators_within_functions_of_the_file_are_looked_at(tmp_path: Path) -> None:
    model = graphs.function()
    model.functions[0].node[0].domain = "com.elsewhere"
    model.opset_import.append(onnx.helper.make_opsetid("com.elsewhere", 1))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UserError, match=r"'Relu' of domain 'com\.elsewhere'") as caught:
        locate(tmp_path / "model.onnx")
    assert "define Relu as an ONNX function" in caught.value.remedy
