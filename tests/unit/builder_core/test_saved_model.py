"""A SavedModel is a program: its functions compute with tensors, or it is refused before TensorFlow loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import AccuracyRequest, BuildRequest, DataRequest, SourceRequest
from enginewright_builder.errors import UserError
from enginewright_builder.resolve import resolve
from enginewright_builder.sources.formats import locate
from enginewright_builder.sources.saved_model import _messages as messages
from enginewright_builder.sources.saved_model import signature_interface
from enginewright_builder.sources.tensorflow_ops import PLAIN, SAVERS
from enginewright_builder.sources.tensorflow_packages import PACKAGES_VARIABLE

Ops = Mapping[str, Sequence[str]]
PLAIN_FUNCTION: Ops = {"answer": ("MatMul", "Relu")}


def build(functions: Ops = PLAIN_FUNCTION, signatures: Sequence[str] = ("serving_default",),
          change: Callable[[Any], object] = lambda model: None) -> bytes:
    """``change`` edits the message; the objects name the first function."""
    model = messages()["SavedModel"]()
    graph = model.graphs.add()
    library = graph.graph.add().library.add()
    for name, operators in functions.items():
        function = library.functions.add()
        function.signature.add().name.append(name.encode())
        for operator in operators:
            function.nodes.add().op.append(operator.encode())
    for name in (*signatures, "__saved_model_init_op"):
        graph.signatures.add().name.append(name.encode())
    graph.objects.add().nodes.add().bare.add().name.append(next(iter(functions)).encode())
    change(model)
    content: bytes = model.SerializeToString()
    return content


def write(folder: Path, content: bytes) -> Path:
    (folder / "variables").mkdir(parents=True, exist_ok=True)
    (folder / "variables" / "variables.index").write_bytes(b"")
    (folder / "saved_model.pb").write_bytes(content)
    return folder


def refused(folder: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        locate(folder)
    return caught.value


def functions_of(model: Any) -> Any:
    return model.graphs[0].graph[0].library[0].functions


def test_what_computes_is_taken(tmp_path: Path) -> None:
    assert locate(write(tmp_path, build())).format == "saved-model"


def test_what_tensorflow_saves_and_restores_by_is_taken_where_nothing_calls_it(tmp_path: Path) -> None:
    functions = {**PLAIN_FUNCTION, "__inference__traced_save_1": ("SaveV2", "MergeV2Checkpoints", "Identity")}
    assert locate(write(tmp_path, build(functions))).format == "saved-model"


def _call(model: Any) -> None:
    attribute = functions_of(model)[0].nodes[0].attributes.add()
    attribute.value.add().function.add().name.append(b"save")


def _call_within(model: Any) -> None:
    attribute = functions_of(model)[0].nodes[0].attributes.add()
    call = attribute.value.add().list.add().function.add()
    call.name.append(b"other")
    call.attributes.add().value.add().function.add().name.append(b"save")


def _name_it_in_a_text(model: Any) -> None:
    functions_of(model)[0].attributes.add().value.add().text.append(b"save")


def _trace(model: Any) -> None:
    model.graphs[0].objects[0].nodes.add().function.add().functions.append(b"save")


def _list(model: Any) -> None:
    model.graphs[0].objects[0].functions.add().name.append(b"save")


def _stand_in(model: Any) -> None:
    functions_of(model)[1].attributes.add().name.append(b"api_implements")


@pytest.mark.parametrize("change", [_call, _call_within, _name_it_in_a_text, _trace, _list, _stand_in])
def test_what_saves_is_refused_where_anything_may_call_it(change: Callable[[Any], None], tmp_path: Path) -> None:
    error = refused(write(tmp_path, build({**PLAIN_FUNCTION, "save": ("SaveV2", "Identity")}, change=change)))
    assert (error.reason, error.value) == ("UnsupportedOperator", "SaveV2")


@pytest.mark.parametrize("operator", [
    "ReadFile", "WriteFile", "PyFunc", "EagerPyFunc", "PrintV2", "ImmutableConst", "RpcCall", "DebugIdentityV2",
    "InitializeTableFromTextFileV2", "LookupTableFindV2", "IteratorGetNext", "XlaLaunch", "a\xff",
])
@pytest.mark.parametrize("called", [True, False])
def test_other_operators_are_refused(operator: str, called: bool, tmp_path: Path) -> None:
    other = {"other": (operator,)}
    functions = {**other, **PLAIN_FUNCTION} if called else {**PLAIN_FUNCTION, **other}
    error = refused(write(tmp_path, build(functions)))
    assert error.reason == "UnsupportedOperator"
    assert operator in error.message
    assert error.field == "spec.source.uri"


def test_a_function_called_as_an_operator_is_refused(tmp_path: Path) -> None:
    """Functions are called by attributes; else one of an operator's name would hide the operator."""
    assert refused(write(tmp_path, build({"ReadFile": ("Relu",), "answer": ("ReadFile",)}))).value == "ReadFile"


@pytest.mark.parametrize(("signatures", "says"), [
    ((), "it has no signature at all"), (("train", "predict"), "it has predict, train"),
])
def test_without_a_serving_signature(signatures: tuple[str, ...], says: str, tmp_path: Path) -> None:
    error = refused(write(tmp_path, build(signatures=signatures)))
    assert error.reason == "UnsupportedModel"
    assert says in error.message
    assert "model.export" in error.remedy


def test_the_only_signature_serves_whatever_its_name(tmp_path: Path) -> None:
    assert locate(write(tmp_path, build(signatures=("predict",)))).format == "saved-model"


def _of_tensorflow_1(model: Any) -> None:
    del model.graphs[0].objects[:]


def _of_two_graphs(model: Any) -> None:
    model.graphs.add()


@pytest.mark.parametrize("change", [_of_tensorflow_1, _of_two_graphs])
def test_tensorflow_1_is_refused(change: Callable[[Any], None], tmp_path: Path) -> None:
    error = refused(write(tmp_path, build(change=change)))
    assert (error.reason, "TensorFlow 1" in error.message) == ("UnsupportedModel", True)


def test_a_table_of_words_is_refused(tmp_path: Path) -> None:
    def table(model: Any) -> None:
        model.graphs[0].objects[0].nodes.add().resource.add()

    assert "resource" in refused(write(tmp_path, build(change=table))).message


@pytest.mark.parametrize("name", ["saved_model.cpb", "saved_model.pbtxt"])
def test_another_form_beside_it_is_refused(name: str, tmp_path: Path) -> None:
    (write(tmp_path, build()) / name).write_bytes(b"")
    assert name in refused(tmp_path).message


@pytest.mark.parametrize("content", [b"", b"no protobuf", build()[:-3]])
def test_damaged(content: bytes, tmp_path: Path) -> None:
    assert refused(write(tmp_path, content)).reason == "SourceCorrupt"


def test_without_weights(tmp_path: Path) -> None:
    (write(tmp_path, build()) / "variables" / "variables.index").unlink()
    assert "variables.index" in refused(tmp_path).message


def tensor(side: Any, name: str, kind: int, *sizes: int, unknown: bool = False) -> None:
    info = side.add(name=[name.encode()]).info.add(kind=[kind])
    shape = info.shape.add(unknown=[1] if unknown else [])
    for size in sizes:
        shape.sizes.add(size=[size])


def signed(fill: Callable[[Any], None]) -> bytes:
    return build(change=lambda model: fill(model.graphs[0].signatures[0].value.add()))


def test_the_signature_says_the_interface(tmp_path: Path) -> None:
    def fill(sides: Any) -> None:
        tensor(sides.inputs, "x", 1, -1, 16)
        tensor(sides.inputs, "gain", 9)
        tensor(sides.outputs, "y", 19, -1, 3)

    found = signature_interface(write(tmp_path, signed(fill)))
    assert [(one.name, one.dtype, one.shape) for one in (*found.inputs, *found.outputs)] == [
        ("gain", "int64", ()), ("x", "float32", ("x_0", 16)), ("y", "float16", ("y_0", 3))]


def test_outputs_without_a_shape_are_left_to_the_build(tmp_path: Path) -> None:
    def fill(sides: Any) -> None:
        tensor(sides.inputs, "x", 1, -1, 16)
        tensor(sides.outputs, "y", 1, unknown=True)

    assert signature_interface(write(tmp_path, signed(fill))).outputs == ()


@pytest.mark.parametrize(("kind", "unknown", "says"), [(7, False, "type"), (8, False, "type"), (1, True, "no shape")])
def test_what_is_not_converted_is_named(kind: int, unknown: bool, says: str, tmp_path: Path) -> None:
    folder = write(tmp_path, signed(lambda sides: tensor(sides.inputs, "x", kind, unknown=unknown)))
    with pytest.raises(UserError, match=says) as caught:
        signature_interface(folder)
    assert (caught.value.reason, caught.value.value) == ("InterfaceInvalid", "x")


def test_evaluation_data_are_held_against_it_before_a_device_is_used(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages" / "tensorflow").mkdir(parents=True)
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path / "packages"))
    folder = write(tmp_path / "model", signed(lambda sides: tensor(sides.inputs, "x", 1, -1, 16)))
    np.savez(tmp_path / "evaluation", x=np.zeros((20, 17), np.float32))
    request = BuildRequest(model_name="m", source=SourceRequest(uri=str(folder)), accuracy=AccuracyRequest(
        evaluation=DataRequest(uri=str(tmp_path / "evaluation.npz"))))
    with pytest.raises(UserError, match=r"x has shape \[17\], expected \[16\]") as caught:
        resolve(request, tmp_path / "scratch")
    assert caught.value.reason == "EvaluationDataInvalid"


def test_no_operator_is_on_both_lists() -> None:
    assert not PLAIN & SAVERS
